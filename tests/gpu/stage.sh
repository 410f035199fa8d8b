#!/usr/bin/env bash
# Runs one stage of run.sh, which sets the environment: facts, probe, tests, validation, python, examples or bench.
set -u -o pipefail
bundle=$VKGDR_BUNDLE
scratch=$VKGDR_SCRATCH
run=$scratch/workspace/sim/run

# Programs find their files relative to their package's folder, as under cargo; nextest finds the runner there.
cd "$scratch/workspace" || exit 1

# At the time limit, and when run.sh is interrupted, running programs are ended first, and bash waits for their last output.
# Those of `program` are in process groups of their own.
stop() {
    # shellcheck disable=SC2046 # numbers
    kill $(jobs -p) 2>/dev/null
    wait
}
trap 'stop; exit 143' TERM

no_vulkan() { grep -q 'NONE FOUND' "$scratch/vulkan.txt"; }
left() { echo $((${VKGDR_STAGE_SECONDS:-500} - SECONDS - $1)); } # LESS: the seconds left of the stage's time

# Runs the tests. Reasons of skips are in the output of passed tests, from which most lines of the test harness are
# removed. A module that is loaded lazily may wait, at the first launch of a kernel, for work that a test holds back.
nextest() { # VKGDR_TEST_LAYERS [ARGUMENT...]
    mkdir -p "$scratch/$1"
    CUDA_MODULE_LOADING=EAGER NEXTEST_TEST_THREADS=${NEXTEST_TEST_THREADS:-$VKGDR_TEST_THREADS} VKGDR_TEST_LAYERS=$1 \
        "$scratch/bin/cargo-nextest" nextest run --profile gpu --no-fail-fast --success-output immediate \
        --archive-file "$bundle/tests.tar.zst" --extract-to "$scratch/$1" --workspace-remap "$PWD" "${@:2}" 2>&1 |
        (trap '' TERM && exec grep --text --line-buffered -vE \
            '^ *$|^ *std(out|err) [^ a-z]*$|^ *running 1 test$|^ *test .* \.\.\. ok$|^ *test result: ok\.')
}

# Runs a program for at most SECONDS, and not beyond the stage's time.
status=0
program() { # SECONDS TITLE COMMAND...
    local limit=$1 left
    left=$(left 4)
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -ge 5 ] || { echo "no time was left for $2" && status=1 && return; }
    printf '\n---- %s\n' "$2"
    # In the background, since bash handles a signal only when the program in the foreground has ended.
    timeout --kill-after=2 "$limit" "$run" "${@:3}" &
    wait $! || { echo "exit code $?" && status=1; }
}

# Runs the benches within VKGDR_STAGE_SECONDS, the most important first. Each writes its results so far as it goes.
benches() {
    local name time full
    for name in gpu copies gdr_copies allocation c_calls pool; do
        # A part of the time each, so that one that hangs leaves time for the others; the rest for the last.
        time=$(($(left 4) * 3 / 5))
        [ $name != pool ] || time=$(left 4)
        # Seconds of a full measurement.
        case $name in
            gpu) full=0 ;; # takes VKGDR_BENCH_SECONDS
            copies) full=60 ;;
            gdr_copies) full=20 ;;
            allocation) full=40 ;;
            pool) full=90 ;;
            c_calls) full=30 ;;
        esac
        if [ $full -le "$time" ]; then unset VKGDR_BENCH_QUICK; else export VKGDR_BENCH_QUICK=1; fi
        # With time to start and to end. More than 120 buys nothing for `gpu`, whose default is 90.
        export VKGDR_BENCH_SECONDS=$((time * 2 / 3 < 120 ? time * 2 / 3 : 120))
        program "$time" "$name" "$scratch/bench/bench" "$name"
    done
    exit $status
}

case $1 in
    facts) exec bash "$bundle/facts.sh" ;;
    probe) exec timeout --kill-after=2 "$(left 2)" "$run" "$scratch/examples/gpu_probe" ;;
    tests)
        if no_vulkan; then
            echo 'left out: the tests that need Vulkan, which finds no NVIDIA device'
            nextest faults -E 'binary(=failures) + binary(=kernels) + binary(=missing_drivers) + binary(=ring) + binary(=sequences)'
        else
            for file in "$scratch"/c/*; do
                [ ! -x "$file" ] || program 20 "the client of every function, ${file##*/}" "$file"
            done
            # The bundle has not the scripts that these test.
            nextest faults -E 'not binary(=scripts)' || status=1
            exit $status
        fi
        ;;
    validation)
        if no_vulkan; then
            echo 'skipped: validation, since Vulkan finds no NVIDIA device'
        else
            nextest validation -E 'not binary(=scripts)'
        fi
        ;;
    python)
        # shellcheck source-path=SCRIPTDIR source=python.sh
        . "$bundle/python.sh"
        ;;
    examples)
        for file in "$scratch"/examples/*; do
            [[ $file != */gpu_probe ]] || continue
            [[ $file != */receive_* ]] || { echo "skipped: ${file##*/} waits for another program" && continue; }
            program 15 "${file##*/}" "$file"
        done
        exit $status
        ;;
    bench) benches ;;
esac
