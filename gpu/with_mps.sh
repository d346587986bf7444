#!/usr/bin/env bash
# Runs a command whose processes share a GPU, under NVIDIA's MPS if it can be started. Then their
# kernels run at the same time, not in turns of milliseconds.
#
# usage: gpu/with_mps.sh COMMAND…

set -u
folder=$(mktemp -d)
mkdir "$folder"/{pipe,log}
mps() { CUDA_MPS_PIPE_DIRECTORY=$folder/pipe CUDA_MPS_LOG_DIRECTORY=$folder/log "$@"; }
end() {
    echo quit | mps nvidia-cuda-mps-control >/dev/null 2>&1
    rm -rf "$folder"
}
trap end EXIT

if mps nvidia-cuda-mps-control -d >/dev/null 2>&1; then
    echo "under MPS" >&2
    mps "$@"
else
    echo "without MPS, which cannot be started" >&2
    "$@"
fi
