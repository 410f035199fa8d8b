#!/usr/bin/env bash
# Breaks flush in copies of the sources, as the patches of tests/mutations do: at least three tests must detect each, on memory that
# is not coherent.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
VKGDR_SIM_DIR=$(realpath "${VKGDR_SIM_DIR:-${CARGO_TARGET_DIR:-sim/target}/sim}")
# A folder of its own: cargo would take what it builds for that of the sources, which are older and have the same names.
CARGO_TARGET_DIR=$(realpath "${CARGO_TARGET_DIR:-target}")/broken-flush
export CARGO_TARGET_DIR VKGDR_SIM_DIR VKGDR_CUDA_DRIVER=sim VKGDR_TEST_PROFILE=non-coherent VKGDR_TEST_LAYERS=none
copy=$(mktemp -d) && trap 'rm -rf "$copy"' EXIT
for patch in tests/mutations/*.patch; do
    rm -rf "${copy:?}"/*
    cp -a .cargo Cargo.toml Cargo.lock README.md src cli tests examples benches ffi "$copy"
    cp -a --parents sim/run sim/test-layers.sh sim/tests/support "$copy"
    patch --quiet --strip 1 --directory "$copy" <"$patch" || { echo "$patch no longer fits the source: bring it up to date" >&2 && exit 1; }
    (cd "$copy" && cargo test --quiet --locked --package vkgdr --test memory --no-run)
    # Test failures are the expected result.
    (cd "$copy" && cargo test --locked --package vkgdr --test memory --no-fail-fast -- conformance:: 2>&1 || true) \
        >"$CARGO_TARGET_DIR/tests.log"
    detected=$(sed -n 's/^test \(.*\) \.\.\. FAILED$/    \1/p' "$CARGO_TARGET_DIR/tests.log" | sort -u)
    echo "$patch is detected by"$'\n'"$detected"
    [ "$(grep -c . <<<"$detected")" -ge 3 ] || { echo "too few tests: see $CARGO_TARGET_DIR/tests.log" >&2 && exit 1; }
done
