#!/usr/bin/env bash
# Runs one stage of run.sh, which sets the environment: facts, probe, tests, validation, python, examples or bench.
set -u -o pipefail
bundle=$VKGDR_BUNDLE
scratch=$VKGDR_SCRATCH
run=$scratch/workspace/sim/run

# Programs find their files relative to their package's folder, as under cargo; nextest finds the runner there.
cd "$scratch/workspace" || exit 1

# At the time limit running programs are interrupted first, and bash waits for their last output.
trap 'exit 143' TERM

# Runs the tests. Reasons of skips are in the output of passed tests, from which most lines of the test harness are
# removed.
nextest() { # VKGDR_TEST_LAYERS
    mkdir -p "$scratch/$1"
    VKGDR_TEST_LAYERS=$1 "$scratch/bin/cargo-nextest" nextest run --profile gpu --no-fail-fast \
        --success-output immediate --archive-file "$bundle/tests.tar.zst" --extract-to "$scratch/$1" \
        --workspace-remap "$PWD" 2>&1 |
        (trap '' TERM && exec grep --text --line-buffered -vE \
            '^ *$|^ *std(out|err) [^ a-z]*$|^ *running 1 test$|^ *test .* \.\.\. ok$|^ *test result: ok\.')
}

status=0
program() { # TITLE COMMAND...
    printf '\n---- %s\n' "$1"
    "$run" "${@:2}" || { echo "exit code $?" && status=1; }
}

# Starts pytest in the background. After three quarters of the stage's time it is interrupted, and reports the failures so
# far.
jobs=()
pytest() { # PYTHON FILE...
    # A shell without job control makes background processes ignore interrupts.
    VKGDR_TEST_LAYERS=faults timeout --foreground --signal=INT --kill-after=5 $((${VKGDR_STAGE_SECONDS:-500} * 3 / 4)) \
        env --default-signal=INT "$run" "$1" -X dev -W error -m pytest -p pytest_timeout --durations 5 \
        "${@:2}" >"$scratch/pytest.${#jobs[@]}" 2>&1 &
    jobs+=($!)
}

# Runs several pytest processes that share the test files, since most tests create a CUDA context, which takes a GPU's
# driver long. The files whose tests destroy contexts that have memory run last, in a process each: a driver may crash.
pytests() { # PYTHON
    local files risky count number part
    count=${NEXTEST_TEST_THREADS:-$(($(nproc) < 8 ? $(nproc) : 8))}
    files=$(find ffi/python/tests -name 'test_*.py' -exec grep -LE '\.(destroy|detach)\(\)' {} + | sort)
    mapfile -t risky < <(find ffi/python/tests -name 'test_*.py' -exec grep -lE '\.(destroy|detach)\(\)' {} + | sort)
    for ((number = 0; number < count; number++)); do
        mapfile -t part < <(awk -v number="$number" -v count="$count" 'NR % count == number' <<<"$files")
        pytest "$1" "${part[@]}"
    done
    for number in "${!jobs[@]}"; do
        wait "${jobs[number]}" || { echo "pytest $number: exit code $?" && status=1; }
    done
    for part in "${risky[@]}"; do
        pytest "$1" "$part"
        # 5: no tests were selected.
        wait "${jobs[-1]}" || { number=$? && [ $number -eq 5 ] || { echo "pytest of $part: exit code $number" && status=1; }; }
    done
    for number in "${!jobs[@]}"; do
        printf '\n---- pytest %d of %d\n' $((number + 1)) "${#jobs[@]}"
        cat "$scratch/pytest.$number"
    done
}

# Runs the Python tests with the machine's Python and its packages: numpy, perhaps PyTorch and CuPy.
python_tests() {
    local python=${PYTHON:-python3} wheel file
    "$python" -c 'import sys, numpy; print("Python", sys.version, "numpy", numpy.__version__);
sys.exit(sys.version_info < (3, 11))' || { echo "skipped: $python is not Python 3.11 or newer with numpy" && exit 0; }
    # Wheels are unpacked, not installed, which needs neither pip nor venv.
    for wheel in "$scratch"/python/*.whl; do "$python" -m zipfile -e "$wheel" "$scratch/site" || exit 1; done
    export PYTHONPATH=$scratch/site PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
    program 'python -m vkgdr' "$python" -X dev -W error -m vkgdr
    pytests "$python"
    for file in examples/python/*.py; do
        [[ $file != *pycuda* ]] || "$python" -c 'import pycuda' || { echo "skipped: $file" && continue; }
        [[ $file != */@(ring_packets|send_memory).py ]] || { echo "skipped: $file waits for another program" && continue; }
        # Warnings of CuPy and PyTorch are not errors.
        program "$file" "$python" -X dev "$file"
    done
    exit $status
}

# Runs the benches within VKGDR_STAGE_SECONDS, the most important first. Each writes its results at its end, `gpu` and
# `copies` also in between.
benches() {
    local seconds=${VKGDR_STAGE_SECONDS:-500} left name
    # In full each may take two minutes; on the simulator all take one.
    if [ "$seconds" -lt 400 ]; then export VKGDR_BENCH_QUICK=1; fi
    export VKGDR_BENCH_SECONDS=$((seconds / 4))
    for name in gpu allocation c_calls gdr_copies pool copies; do
        # A time limit each, so that one that hangs leaves time for the others.
        left=$(((seconds - SECONDS - 4) * 3 / 5))
        [ "$left" -ge 5 ] || { echo "no time was left for the bench $name" && status=1 && continue; }
        # With criterion's own measurements in quick mode.
        program "$name" timeout --kill-after=2 "$left" "$scratch/bench/$name" --bench --quick
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
        for file in "$scratch"/examples/*; do [[ $file == */gpu_probe ]] || program "${file##*/}" "$file"; done
        head -c 256M /dev/urandom >"$scratch/large.bin"
        program 'share_file, 256 MiB' "$scratch/examples/share_file" "$scratch/large.bin"
        exit $status
        ;;
    bench) benches ;;
esac
