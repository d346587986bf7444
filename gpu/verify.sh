#!/usr/bin/env bash
# Tries the GPU twin on a machine with CUDA and prints the table for gpu/VERIFIED.md.
#
#   gpu/verify.sh [FOLDER]     FOLDER takes the table and what each step printed; else
#                              build/verified. Run from a checkout or an unpacked bundle.
#
# LOCKSTEP_BUILD names another build folder, VERIFY_SECONDS another limit for all of it (580).
# A step that fails does not stop the others; one that takes too long is cut and said to be.
# Exit status: 0 where every step that must pass did.

set -uo pipefail

root=$(dirname "$(dirname "$(realpath "${BASH_SOURCE[0]}")")")
build=$(realpath -m "${LOCKSTEP_BUILD:-$root/build}")
folder=$(realpath -m "${1:-$build/verified}")
table=$folder/table.md
lockstep=$build/lessons/lockstep
deadline=$((SECONDS + ${VERIFY_SECONDS:-580}))
failures=0
export LOCKSTEP_BUILD=$build GPU_REQUIRED=1

mkdir -p "$folder" || exit 3
cd "$root" || exit 3

row() {   # row WHAT COMMAND RESULT FIGURE
    # shellcheck disable=SC2016   # the quotes are Markdown's
    printf '| %s | `%s` | %s | %s |\n' "$1" "${2//|/\\|}" "$3" "${4//|/\\|}" | tee -a "$table"
}

say() { printf '%s\n' "$*" | tee -a "$table"; }

# A figure from what a step printed is the last line of this function's output.
figure_of() {   # figure_of KIND FILE
    case $1 in
        time) ;;
        last) grep -v '^ *$' "$2" | tail -n 1 ;;
        cases) grep -E '^(All tests passed|test cases:)' "$2" | tail -n 1 ;;
        errors) grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$2" | tail -n 1 | sed 's/=* *//' ;;
        *) python3 -B "$root/gpu/verify_figures.py" "$1" "$2" ;;
    esac
}

# step MUST|MAY KIND SECONDS WHAT COMMAND…  runs it, at most so long, and adds its row, with
# $shown as the command where that is set.
step() {
    local need=$1 kind=$2 limit=$3 what=$4 left status result started figure log
    shift 4
    local command=${shown:-${*//"$build"/build}}
    left=$((deadline - SECONDS))
    log=$folder/$(tr -c 'a-zA-Z0-9\n' '-' <<<"$what").log
    if ((left < 5)); then
        row "$what" "$command" "not run: no time was left" ""
        [[ $need == MAY ]] || failures=$((failures + 1))
        return 1
    fi
    ((limit < left)) || limit=$left
    started=$SECONDS
    timeout -k 5 "$limit" "$@" >"$log" 2>"$log.errors" </dev/null
    status=$?
    case $status in
        0) result=ok ;;
        124 | 137) result="cut after $limit s" ;;
        *) result="FAILED with status $status" ;;
    esac
    figure=$(figure_of "$kind" "$log" 2>/dev/null | tail -n 1)
    [[ $status == 0 ]] || figure="$figure $(grep -v '^ *$' "$log.errors" | tail -n 1 | cut -c 1-200)"
    row "$what" "$command" "$result" "$((SECONDS - started)) s${figure:+; $figure}"
    if [[ $status != 0 && $need == MUST ]]; then
        failures=$((failures + 1))
    fi
    return "$status"
}

value() { python3 -B "$root/gpu/verify_figures.py" "$@" 2>/dev/null || echo unknown; }

describe_machine() {
    say "- date: $(date -u +%Y-%m-%d)"
    say "- commit: $(cat bundled/commit 2>/dev/null || git describe --always --dirty 2>/dev/null || echo unknown)"
    say "- GPU: $(nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null |
        paste -sd ';' - || true)"
    say "- CUDA, driver, NCCL: $(value versions "$folder/doctor.log")"
    say ""
}

build_all() {
    ./lockstep --version && ninja -C "$build" all
}

# Fewer steps for lessons that train a language model for long: what is tried is the backend.
short() {   # short SLUG; settings, one a line
    local steps
    steps=$("$lockstep" lesson "$1" --help | sed -nE 's/^  steps .*\(([0-9]+)\)$/\1/p')
    ((${steps:-0} <= 100)) || printf '%s\n' --set steps=100
}

fewest_ranks() {   # fewest_ranks SLUG
    "$lockstep" lesson "$1" --ranks 1 --step 1 >/dev/null 2>&1
    if [[ $? == 2 ]]; then echo 2; else echo 1; fi
}

run_lessons() {
    local slug ranks settings gpus shared=(--set nccl=shared --set timeout=30)
    gpus=$(value gpus "$folder/doctor.log")
    for slug in $("$lockstep" lessons | grep -E '^[a-z]'); do
        mapfile -t settings < <(short "$slug")
        ranks=$(fewest_ranks "$slug")
        step MUST last 60 "$slug on 4 virtual devices, cuda" \
            "$lockstep" lesson "$slug" --backend cuda --ranks 4 "${settings[@]}"
        step MUST compared 90 "$slug, sim against cuda" "$lockstep" compare "$slug" \
            --backends sim,cuda --ranks 4 --json "${settings[@]}"
        if [[ $ranks == 1 || $gpus != [01] ]]; then
            step MUST last 60 "$slug on $ranks rank$([[ $ranks == 1 ]] || echo s), nccl" \
                "$lockstep" lesson "$slug" --backend nccl --ranks "$ranks" "${settings[@]}"
            step MUST compared 90 "$slug, sim against nccl" "$lockstep" compare "$slug" \
                --backends sim,nccl --ranks "$ranks" --json "${settings[@]}"
        else
            step MAY compared 90 "$slug, sim against two NCCL ranks that share the GPU" \
                "$lockstep" compare "$slug" --backends sim,nccl --ranks 2 --json \
                "${shared[@]}" "${settings[@]}"
        fi
        step MAY last 60 "$slug, two NCCL ranks share the GPU" "$lockstep" lesson "$slug" \
            --backend nccl --ranks 2 "${shared[@]}" "${settings[@]}"
    done
}

# What tests fork is watched too. A call that fails is no finding: tests provoke some, and NCCL
# tries what a GPU may not have.
sanitize() {   # sanitize MUST|MAY TOOL SECONDS WHAT TESTS…
    local need=$1 tool=$2 limit=$3 what=$4 sanitizer options=(--target-processes all)
    shift 4
    [[ $tool != memcheck ]] || options+=(--report-api-errors no)
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    if [[ -z $sanitizer ]]; then
        row "$tool of $what" "compute-sanitizer --tool $tool" "not run" \
            "compute-sanitizer is not here"
        return
    fi
    step "$need" errors "$limit" "$tool of $what" "$sanitizer" --tool "$tool" \
        "${options[@]}" --error-exitcode 9 "$@"
}

bench() {
    if [[ ! -x $build/tests/bench/gpu_bench ]]; then
        row "speed" "tests/bench/gpu_bench" "not built" "Google Benchmark is not here"
        return
    fi
    step MUST time 90 "speed" "$build/tests/bench/gpu_bench" --benchmark_format=json || return
    shown="the same" step MUST last 10 "4096³ product, at most 1.05 of the time of plain cuBLAS" \
        python3 -B gpu/verify_figures.py matmul "$folder/speed.log"
    shown="the same" step MAY last 10 "attention, of the time of cuBLAS, softmax and cuBLAS" \
        python3 -B gpu/verify_figures.py attention "$folder/speed.log"
    shown="the same" step MUST last 10 "kernels, at least 85 % of copy bandwidth" \
        python3 -B gpu/verify_figures.py kernels "$folder/speed.log"
}

: >"$table"
if ! shown="./lockstep --version && ninja -C build all" step MUST time 300 build \
    bash -c "build=$build; $(declare -f build_all); build_all" >/dev/null; then
    tail -n 20 "$folder/build.log" "$folder/build.log.errors" >&2
    exit 1
fi
build_row=$(<"$table")
: >"$table"
"$lockstep" doctor --json >"$folder/doctor.log" 2>/dev/null
describe_machine
say '| what | command | result | figure |'
say '| --- | --- | --- | --- |'
say "$build_row"
shown="lockstep doctor" step MUST last 20 "what this machine can do" \
    python3 -B gpu/verify_figures.py backends "$folder/doctor.log"
run_lessons
device_tests=$build/tests/gpu/gpu_device_tests comm_tests=$build/tests/gpu/gpu_comm_tests
step MUST cases 100 "the device's contract on the GPU" "$device_tests"
step MUST cases 100 "the communicator's contract on the GPUs" "$comm_tests"
bench
sanitize MUST memcheck 80 "the device's contract" "$device_tests"
sanitize MUST racecheck 80 "the device's contract" "$device_tests"
sanitize MAY memcheck 60 "the communicator's contract" "$comm_tests"
step MUST last 240 "the suite" ./lockstep test
say ""
say "$failures of the steps that must pass did not."
[[ $failures == 0 ]]
