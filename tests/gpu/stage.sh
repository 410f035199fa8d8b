#!/usr/bin/env bash
# One stage of run.sh, which sets the environment: facts, probe, tests, validation, python, examples or bench.
set -u -o pipefail
bundle=$VKGDR_BUNDLE
scratch=$VKGDR_SCRATCH
run=$scratch/workspace/sim/run

# Programs find their files from their package's folder, as under cargo. nextest also finds the runner from there.
cd "$scratch/workspace" || exit 1

# At the end of the time what is running is told first, and has last words, which bash waits for.
trap 'exit 143' TERM

# The tests, those of the simulator itself aside. Why a test skips itself is among what it prints when it passes; most of
# the rest of that is the test harness's.
nextest() { # VKGDR_TEST_LAYERS
    mkdir -p "$scratch/$1"
    VKGDR_TEST_LAYERS=$1 "$scratch/bin/cargo-nextest" nextest run --profile gpu --no-fail-fast \
        --filterset 'not (package(ptx) + package(simcuda) + package(vkgdr-sim))' --success-output immediate \
        --archive-file "$bundle/tests.tar.zst" --extract-to "$scratch/$1" --workspace-remap "$PWD" 2>&1 |
        (trap '' TERM && exec grep --text --line-buffered -vE \
            '^ *$|^ *std(out|err) [^ a-z]*$|^ *running 1 test$|^ *test .* \.\.\. ok$|^ *test result: ok\.')
}

status=0
program() { # TITLE COMMAND...
    printf '\n---- %s\n' "$1"
    shift
    "$run" "$@"
    local code=$?
    [ $code -eq 0 ] && return
    echo "exit code $code"
    status=1
}

# Several at once share the tests' files: most tests make a CUDA context, which a GPU's driver takes its time for. What
# is left when three quarters of the stage's time are over is interrupted, and says what has failed until then.
pytests() { # PYTHON
    local files=(ffi/python/tests/test_*.py) count=$(($(nproc) < 8 ? $(nproc) : 8)) number i part jobs=()
    for ((number = 0; number < count; number++)); do
        part=()
        for ((i = number; i < ${#files[@]}; i += count)); do part+=("${files[i]}"); done
        # A shell without job control lets what runs in the background ignore interrupts.
        VKGDR_TEST_LAYERS=faults timeout --foreground --signal=INT --kill-after=5 $((${VKGDR_STAGE_SECONDS:-500} * 3 / 4)) \
            env --default-signal=INT "$run" "$1" -X dev -W error -m pytest -p pytest_timeout --durations 5 \
            "${part[@]}" >"$scratch/pytest.$number" 2>&1 &
        jobs+=($!)
    done
    for number in "${!jobs[@]}"; do
        wait "${jobs[number]}"
        i=$?
        printf '\n---- pytest %d of %d\n' $((number + 1)) "$count"
        cat "$scratch/pytest.$number"
        [ $i -eq 0 ] || { echo "exit code $i" && status=1; }
    done
}

# The package, pytest and the tests, with the machine's Python and what it has: numpy, perhaps PyTorch and CuPy.
python_tests() {
    local python=${PYTHON:-python3} wheel file
    "$python" -c 'import sys, numpy; print("Python", sys.version, "numpy", numpy.__version__);
sys.exit(sys.version_info < (3, 11))' || {
        echo "skipped: $python is not Python 3.11 or newer with numpy"
        exit 0
    }
    # Unpacked rather than installed: that needs neither pip nor venv.
    for wheel in "$scratch"/python/*.whl; do "$python" -m zipfile -e "$wheel" "$scratch/site" || exit 1; done
    export PYTHONPATH=$scratch/site PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
    program 'python -m vkgdr' "$python" -X dev -W error -m vkgdr
    pytests "$python"
    for file in examples/python/*.py; do
        if [[ $file == *pycuda* ]] && ! "$python" -c 'import pycuda' 2>/dev/null; then
            echo "skipped: $file, since pycuda is not installed"
        else
            # What CuPy and PyTorch warn of is theirs.
            program "$file" "$python" -X dev "$file"
        fi
    done
    exit $status
}

# The benches within VKGDR_STAGE_SECONDS, the most important first. Each writes its results when it is done, `gpu` and
# `copies` also before.
benches() {
    local seconds=${VKGDR_STAGE_SECONDS:-500} left name
    # At full length each may take two minutes; the simulator takes one for all.
    if [ "$seconds" -lt 400 ]; then export VKGDR_BENCH_QUICK=1; fi
    export VKGDR_BENCH_SECONDS=$((seconds / 4))
    for name in gpu allocation c_calls pool copies; do
        # One that hangs leaves time for the others.
        left=$(((seconds - SECONDS - 4) * 3 / 5))
        if [ "$left" -lt 5 ]; then
            echo "no time was left for the bench $name"
            status=1
        else
            # criterion's own measurements, beside which ours are, in their quick form.
            program "$name" timeout --kill-after=2 "$left" "$scratch/bench/$name" --bench --quick
        fi
    done
    exit $status
}

case $1 in
    facts) exec bash "$bundle/facts.sh" ;;
    probe) exec "$run" "$scratch/examples/gpu_probe" ;;
    tests) nextest faults ;;
    validation) nextest validation ;;
    python) python_tests ;;
    examples)
        for file in "$scratch"/examples/*; do
            [ "${file##*/}" = gpu_probe ] || program "${file##*/}" "$file"
        done
        head -c 256M /dev/urandom >"$scratch/large.bin"
        program 'share_file, 256 MiB' "$scratch/examples/share_file" "$scratch/large.bin"
        exit $status
        ;;
    bench) benches ;;
    *) echo "stage.sh: no stage '$1'" >&2 && exit 2 ;;
esac
