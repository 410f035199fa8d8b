# Sourced by stage.sh: the stage "python", which runs the Python tests and examples with the machine's Python and its
# packages: numpy, perhaps PyTorch and CuPy.
# shellcheck shell=bash disable=SC2154 # set by stage.sh

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

python=${PYTHON:-python3}
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
exit "$status"
