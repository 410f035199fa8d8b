#!/usr/bin/env bash
# Applies each patch of tests/mutations, which breaks flush, to a copy of the sources, and fails unless at least three
# tests detect it on non-coherent memory. Prints their names.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
choose_driver
[ "$VKGDR_CUDA_DRIVER" = sim ] || die 'only the simulated driver has non-coherent memory'

work=$target/mutations
copy=$work/source
# Modules of tests/memory.
tests=(access:: map:: memory:: sharing::)
export VKGDR_TEST_PROFILE=non-coherent VKGDR_TEST_LAYERS=none

for patch in tests/mutations/*.patch; do
    name=$(basename "$patch" .patch)
    log=$work/$name.log
    rm -rf "$copy"
    mkdir -p "$copy"
    cp -a .cargo Cargo.toml Cargo.lock README.md src sim tests examples benches ffi "$copy"
    patch --quiet --directory "$copy" --strip 1 <"$patch" || die "$patch no longer fits the source: bring it up to date"
    (cd "$copy" && cargo test --locked --package vkgdr --test memory --no-run) >"$log" 2>&1 || die "$name does not build: see $log"
    # Test failures are the expected result.
    (cd "$copy" && cargo test --locked --package vkgdr --test memory -- "${tests[@]}") >"$log" 2>&1 || true
    mapfile -t failures < <(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$log")
    say "$name: detected by ${#failures[@]} tests"
    printf '    %s\n' "${failures[@]}"
    # For scripts/reliability.sh.
    printf 'reliability: flush result=%s broken=%s tests=%s\n' "${#failures[@]}" "$name" "$(IFS=, && echo "${failures[*]}")"
    [ "${#failures[@]}" -ge 3 ] || die "too few tests detect $name: see $log"
done
rm -rf "$copy"
