#!/usr/bin/env bash
# Tries the GPU twin on a machine with CUDA: gpu/verify.sh --help says how.

exec python3 -B "$(dirname "$(realpath "${BASH_SOURCE[0]}")")/verify.py" "$@"
