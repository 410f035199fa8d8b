#!/usr/bin/env bash
# Runs every test twice: plain, then under the Khronos validation layer. Before them the doctests and the examples, in
# Rust, C and C++; after them the same for Python.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
choose_driver
failed=()

# Everything is run even when something failed, so that one run tells all.
stage() { # NAME COMMAND...
    local name=$1
    shift
    say "$name"
    "$@" || failed+=("$name")
}

if has cargo-nextest; then
    plain=(cargo nextest run --workspace --locked --no-fail-fast)
    validated=("${plain[@]}" --profile validation)
else
    say 'cargo-nextest is not installed: using cargo test, which runs one test at a time'
    plain=(cargo test --workspace --locked --no-fail-fast --lib --bins --tests)
    validated=("${plain[@]}")
fi

# cargo passes its runner to doctests from 1.89 on only, hence tests/run here.
doctests() { tests/run cargo test --workspace --locked --doc; }

examples() {
    local file name status=0
    for file in examples/*.rs; do
        name=$(basename "$file" .rs)
        cargo run --quiet --locked --example "$name" </dev/null || { status=1; say "example $name failed"; }
    done
    # The probe's answers are for a GPU; here it only has to run.
    cargo run --quiet --locked --example gpu_probe >/dev/null </dev/null || { status=1; say 'gpu_probe failed'; }
    return $status
}

stage 'doctests' doctests
stage 'examples' examples
stage 'C and C++ examples' scripts/c-examples.sh
VKGDR_TEST_LAYERS=faults stage 'tests' "${plain[@]}"
VKGDR_TEST_LAYERS=validation stage 'tests under the validation layer' "${validated[@]}"
stage 'Python: virtual environment' scripts/python.sh package pycuda torch
stage 'Python: pip install' scripts/python-test.sh install
stage 'Python: examples' scripts/python-test.sh examples
VKGDR_TEST_LAYERS=faults stage 'Python: tests' scripts/python-test.sh tests
VKGDR_TEST_LAYERS=validation stage 'Python: tests under the validation layer' scripts/python-test.sh tests

if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
say "all passed, in Rust, C, C++ and Python: doctests, examples, tests, tests under validation ($VKGDR_CUDA_DRIVER driver)"
