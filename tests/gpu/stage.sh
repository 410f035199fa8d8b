#!/usr/bin/env bash
# One stage of run.sh, which sets the environment: facts, probe, tests, validation, python, examples or bench.
set -u -o pipefail
bundle=$VKGDR_BUNDLE
scratch=$VKGDR_SCRATCH
run=$scratch/workspace/tests/run

# Programs find their files from their package's folder, as under cargo. nextest also finds the runner from there.
cd "$scratch/workspace" || exit 1

nextest() { # VKGDR_TEST_LAYERS
    mkdir -p "$scratch/$1"
    VKGDR_TEST_LAYERS=$1 "$scratch/bin/cargo-nextest" nextest run --profile gpu --no-fail-fast \
        --archive-file "$bundle/tests.tar.zst" --extract-to "$scratch/$1" --workspace-remap "$PWD"
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
    VKGDR_TEST_LAYERS=faults program 'pytest' "$python" -X dev -W error -m pytest -p pytest_timeout \
        --durations 10 ffi/python/tests
    for file in examples/python/*.py; do program "$file" "$python" -X dev -W error "$file"; done
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
    bench)
        for file in "$scratch"/bench/*; do
            [ "${file%.so}" = "$file" ] || continue # a library that one of them loads
            program "${file##*/}" "$file" --bench
        done
        exit $status
        ;;
    *) echo "stage.sh: no stage '$1'" >&2 && exit 2 ;;
esac
