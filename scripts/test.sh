#!/usr/bin/env bash
# Runs the doctests and the examples in Rust, C and C++, then every test twice: plain, and under the Khronos validation
# layer. Then some of the tests under device profiles, and the same for Python.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
choose_driver
failed=()

# Runs a stage and notes its failure; later stages run nevertheless, so that one run reports all failures.
stage() { # NAME COMMAND...
    local name=$1
    shift
    say "$name"
    "$@" || failed+=("$name")
}

if has cargo-nextest; then
    some=(cargo nextest run --workspace --locked --no-fail-fast)
    plain=("${some[@]}")
    validated=("${some[@]}" --profile validation)
    crate=("${some[@]}" -E 'package(vkgdr)')
    selected() { # BINARY[::MODULE]...
        local name filter=
        for name in "$@"; do
            filter+=${filter:+ + }"(package(vkgdr) & binary(=${name%%::*})"
            case $name in *::*) filter+=" & test(/^${name#*::}::/)" ;; esac
            filter+=')'
        done
        "${some[@]}" -E "$filter"
    }
else
    say 'cargo-nextest is not installed: using cargo test, which runs one test at a time'
    some=(cargo test --workspace --locked --no-fail-fast)
    plain=("${some[@]}" --lib --bins --tests)
    validated=("${plain[@]}")
    crate=("${some[@]}" --exclude vkgdr-c --exclude vkgdr-python --lib --tests)
    selected() { # BINARY[::MODULE]...
        local name status=0
        for name in "$@"; do
            case $name in
                *::*) cargo test --package vkgdr --locked --no-fail-fast --test "${name%%::*}" -- "${name#*::}::" || status=1 ;;
                *) cargo test --package vkgdr --locked --no-fail-fast --test "$name" || status=1 ;;
            esac
        done
        return $status
    }
fi

# sim/run is explicit because cargo before 1.89 does not use its runner for doctests.
doctests() { sim/run cargo test --workspace --locked --doc; }

examples() {
    local file name status=0
    for file in examples/*.rs; do
        name=$(basename "$file" .rs)
        cargo run --quiet --locked --example "$name" </dev/null || { status=1; say "example $name failed"; }
    done
    # The probe's answers mean something on a GPU only; here it only has to run.
    cargo run --quiet --locked --example gpu_probe >/dev/null </dev/null || { status=1; say 'gpu_probe failed'; }
    return $status
}

# Runs the tests that depend on the GPU under a device profile (sim/vulkan/src/profile.rs).
profiled() { # PROFILE COMMAND...
    local profile=$1
    shift
    VKGDR_TEST_PROFILE=$profile VKGDR_TEST_LAYERS=faults stage "tests under the profile $profile" "$@"
}

profiles() {
    profiled non-coherent "${crate[@]}"
    profiled rebar selected memory::access memory::map memory::memory copy::routines copy::engine copy::policy
    profiled bar256 selected memory::cycles failures pool
    profiled two-gpus-swapped selected device stream interop memory::contexts copy::engine pool::pool
    stage 'tests detect a broken flush' scripts/broken-flush.sh
}

# Without the tests of forks and of the interpreter's end: they take more than half of the time, mostly to start
# interpreters, and their copies are covered by other tests.
python_profiles() {
    local file left_out=()
    for file in fork interpreter_end; do left_out+=("--ignore=ffi/python/tests/process/test_$file.py"); done
    VKGDR_TEST_PROFILE=non-coherent VKGDR_TEST_LAYERS=faults \
        stage 'Python: tests under the profile non-coherent' scripts/python-test.sh tests "${left_out[@]}"
}

stage 'doctests' doctests
stage 'examples' examples
stage 'C and C++ examples' scripts/c-examples.sh
VKGDR_TEST_LAYERS=faults stage 'tests' "${plain[@]}"
VKGDR_TEST_LAYERS=validation stage 'tests under the validation layer' "${validated[@]}"
if [ "$VKGDR_CUDA_DRIVER" = sim ]; then profiles; fi
stage 'Python: virtual environment' scripts/python.sh package pycuda nvcc torch
stage 'Python: pip install' scripts/python-test.sh install
stage 'Python: examples' scripts/python-test.sh examples
VKGDR_TEST_LAYERS=faults stage 'Python: tests' scripts/python-test.sh tests
VKGDR_TEST_LAYERS=validation stage 'Python: tests under the validation layer' scripts/python-test.sh tests
if [ "$VKGDR_CUDA_DRIVER" = sim ]; then python_profiles; fi

if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
say "all passed, in Rust, C, C++ and Python: doctests, examples, tests, tests under validation ($VKGDR_CUDA_DRIVER driver)"
