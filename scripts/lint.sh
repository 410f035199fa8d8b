#!/usr/bin/env bash
# Checks formatting, lints, types and documentation of Rust, Python and the shell scripts; warnings are errors.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

say 'rustfmt'
cargo fmt --all --check
rustfmt --check --edition 2024 fuzz/fuzz_targets/*.rs
say 'clippy'
cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
say 'rustdoc'
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked

scripts/python.sh package
venv=$python_target/venv
config=ffi/python/pyproject.toml
python_files=(ffi/python scripts)
if has_file 'benches/*.py'; then python_files+=(benches/*.py); fi
typed=(ffi/python/python/vkgdr)
if has_file 'examples/python/*.py'; then
    python_files+=(examples/python)
    typed+=(examples/python)
fi
say 'ruff'
"$venv/bin/ruff" check --quiet --config "$config" --cache-dir "$python_target/ruff" "${python_files[@]}"
"$venv/bin/ruff" format --quiet --check --config "$config" --cache-dir "$python_target/ruff" "${python_files[@]}"
say 'mypy'
export MYPYPATH=ffi/python/python MYPY_CACHE_DIR=$python_target/mypy
"$venv/bin/mypy" --config-file "$config" --no-error-summary "${typed[@]}"
# Compares the type stubs with the built extension module.
"$venv/bin/python" -m mypy.stubtest --mypy-config-file "$config" --concise \
    --allowlist ffi/python/stubtest-allowlist.txt --ignore-unused-allowlist vkgdr._vkgdr

if has shellcheck; then
    say 'shellcheck'
    shellcheck -x scripts/*.sh sim/run sim/cli/nvcc tests/gpu/*.sh .ci/run
else
    say 'shellcheck is not installed: shell scripts not checked'
fi
