# Sourced by stage.sh: the stage "python", which runs the Python tests and examples with the machine's Python and its
# packages: numpy, perhaps PyTorch and CuPy.
# shellcheck shell=bash disable=SC2154 # set by stage.sh

# Starts pytest in the background. After SECONDS it is interrupted, and reports the failures so far.
pids=()
titles=()
pytest() { # SECONDS TITLE PYTHON FILE...
    # One interrupt each, since a second one ends pytest's report: `--foreground` sends none to the whole process group, and
    # in a session of its own it gets none of the stage's signals, but from `stop`. A shell without job control makes
    # background processes ignore interrupts. Verbose, since a killed process leaves no more than the line of each test.
    VKGDR_TEST_LAYERS=faults setsid env --default-signal=INT timeout --foreground --signal=INT --kill-after=5 "$1" \
        "$run" "$3" -X dev -W error -m pytest -v -p pytest_timeout --durations 5 "${@:4}" \
        >"$scratch/pytest.${#pids[@]}" 2>&1 &
    pids+=($!)
    titles+=("$2")
}

printed=0 # the number of pytest processes whose output was printed
print_next() {
    printf '\n---- pytest, %s\n' "${titles[printed]}"
    cat "$scratch/pytest.$printed"
    printed=$((printed + 1))
}

# Waits for the pytest processes, and prints the output of each.
collect() {
    local code log
    while [ "$printed" -lt ${#pids[@]} ]; do
        wait "${pids[printed]}"
        code=$?
        log=$scratch/pytest.$printed
        print_next
        # 5: no tests were selected.
        if [ $code -eq 0 ] || [ $code -eq 5 ]; then continue; fi
        printf '\npytest, %s: exit code %d\n' "${titles[printed - 1]}" $code
        # One that was killed has printed no summary.
        grep -q '= short test summary' "$log" ||
            awk '$1 ~ /::/ { last = $1; if (/ FAILED /) print "FAILED", $1 }
                END { print "ERROR", last, "was the last to start" }' "$log"
        status=1
    done
}

# Replaces the function of stage.sh, which would wait for every process. Interrupts them instead, and prints their output.
# shellcheck disable=SC2329 # called by stage.sh's trap
stop() {
    local tenths
    # shellcheck disable=SC2046 # numbers
    kill -INT $(jobs -p) 2>/dev/null
    for ((tenths = 0; tenths < 30; tenths++)); do
        [ -n "$(jobs -rp)" ] || break
        sleep 0.1
    done
    while [ "$printed" -lt ${#pids[@]} ]; do print_next; done
}

# Runs several pytest processes that share the test files, since most tests create a CUDA context, which takes a GPU's
# driver long. The files whose tests destroy contexts run last, in a process each, since a driver may crash: as many at a time.
# Time to report, and to be killed, is left of the stage's. Each round of the latter gets a part, so that one that hangs leaves
# time for the others.
pytests() { # PYTHON
    local files risky count number part seconds file
    count=${NEXTEST_TEST_THREADS:-$(($(nproc) < 8 ? $(nproc) : 8))}
    files=$(find ffi/python/tests -name 'test_*.py' -exec grep -LE '\.(destroy|detach)\(\)' {} + | sort)
    mapfile -t risky < <(find ffi/python/tests -name 'test_*.py' -exec grep -lE '\.(destroy|detach)\(\)' {} + | sort)
    seconds=$(($(left 8) * 3 / 4))
    for ((number = 0; number < count; number++)); do
        mapfile -t part < <(awk -v number="$number" -v count="$count" 'NR % count == number' <<<"$files")
        pytest $((seconds > 5 ? seconds : 5)) "part $((number + 1)) of $count" "$1" "${part[@]}"
    done
    collect
    for ((number = 0; number < ${#risky[@]}; number += count)); do
        part=("${risky[@]:number:count}")
        seconds=$(($(left 8) * 3 / 5))
        [ $seconds -ge 5 ] || { echo "no time was left for pytest, ${part[*]}" && status=1 && continue; }
        for file in "${part[@]}"; do pytest $seconds "$file" "$1" "$file"; done
        collect
    done
}

python=${PYTHON:-python3}
timeout 20 "$python" -c 'import sys, numpy; print("Python", sys.version, "numpy", numpy.__version__);
sys.exit(sys.version_info < (3, 11) or tuple(map(int, numpy.__version__.split(".")[:2])) < (2, 1))' ||
    { echo "skipped: $python is not Python 3.11 or newer with NumPy 2.1 or newer" && exit 0; }
# Wheels are unpacked, not installed, which needs neither pip nor venv.
for wheel in "$scratch"/python/*.whl; do "$python" -m zipfile -e "$wheel" "$scratch/site" || exit 1; done
export PYTHONPATH=$scratch/site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 VKGDR_TEST_TORCH=1
program 15 'python -m vkgdr' "$python" -X dev -W error -m vkgdr
# Their first import may take longer than a test may.
for library in torch cupy; do
    program 30 "import $library" "$python" -c "from importlib.util import find_spec
print(__import__('$library').__version__ if find_spec('$library') else 'not installed')"
done
status=0 # neither needs to work
pytests "$python"
for file in examples/python/*.py; do
    [[ $file != *pycuda* ]] || timeout 20 "$python" -c 'import pycuda' || { echo "skipped: $file" && continue; }
    [[ $file != */@(ring_packets|send_memory).py ]] || { echo "skipped: $file waits for another program" && continue; }
    # Warnings of CuPy and PyTorch are not errors.
    program 30 "$file" "$python" -X dev "$file"
done
exit "$status"
