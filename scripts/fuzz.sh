#!/usr/bin/env bash
# Fuzzes targets of fuzz/ with AddressSanitizer and the nightly compiler, on the simulated driver:
#
#     scripts/fuzz.sh [TARGET...]     all by default, SECONDS_EACH (60) seconds each
#
# The corpus is in `fuzz-corpus` in cargo's target folder, and later runs extend it; `seeds` has the first inputs, those of ptx are
# the repository's kernels. A failing input is in `artifacts` of the target's folder, and its path in the output.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}") seconds=${SECONDS_EACH:-60}
[ $# -gt 0 ] || set -- c_abi ipc ptx
for name in "$@"; do
    [ -f "fuzz/fuzz_targets/$name.rs" ] || { echo "there is no target '$name' in fuzz/fuzz_targets" >&2 && exit 2; }
done
command -v cargo-fuzz >/dev/null || cargo install --quiet --locked cargo-fuzz@0.13.1
sim/build.sh

# Each function of each module with the module's head: short texts are read fast, and a change of one leaves the others valid.
# shellcheck disable=SC2016
kernels() { # FOLDER
    find examples cli sim tests -name '*.ptx' ! -path '*/target/*' -print0 | xargs -0 awk -v folder="$1" '
        FNR == 1 { head = ""; part = ""; begun = 0; name = FILENAME; gsub("/", "-", name) }
        !begun && (/\.entry/ || /\.func/ && !/\.extern/) { begun = 1 }
        !begun { head = head $0 "\n"; next }
        { part = part $0 "\n" }
        /^}/ { if (length(head part) <= 4096) { file = folder "/" name "-" FNR; printf "%s%s", head, part > file; close(file) }
               part = "" }'
}
# Opcodes, modifiers and special registers, as libFuzzer's dictionary.
words() {
    find examples cli sim tests -name '*.ptx' ! -path '*/target/*' -exec sed -E 's|//.*||; s|^\s*(@!?%\w+ )?||' {} + |
        grep -oE '^[a-z][a-z0-9_]+\b|[.][a-zA-Z_][a-zA-Z0-9_:]*|%(n?(tid|ctaid|smid|warpid)|laneid|gridid|clock|globaltimer|\w+_smem)\w*' |
        grep -v ':$' | sort -u | sed 's/.*/"&"/'
}
failed=()
for name in "$@"; do
    corpus=$target/fuzz-corpus/$name log=$target/fuzz-$name.log options=()
    mkdir -p "$corpus" "fuzz/artifacts/$name"
    if [ "$name" = ptx ]; then
        options=(-max_len=4096 "-dict=$target/fuzz-ptx.dict") && words >"$target/fuzz-ptx.dict" && kernels "$corpus"
    else
        cp -r "fuzz/seeds/$name/." "$corpus"
    fi
    echo "==> fuzzing $name for $seconds s"
    # Comparisons are not traced, which takes a third of the time or more.
    (cd fuzz && CARGO_TARGET_DIR="$target/fuzz" cargo +nightly fuzz build --no-trace-compares --fuzz-dir . "$name")
    # Without a stack for each allocation: the failing input, run again without this, shows them.
    if ASAN_OPTIONS=malloc_context_size=0 VKGDR_CUDA_DRIVER=sim sim/run "$target"/fuzz/*/release/"$name" -max_total_time="$seconds" \
        -rss_limit_mb=4096 "${options[@]}" -artifact_prefix="fuzz/artifacts/$name/" "$corpus" >"$log" 2>&1; then
        grep -a '^Done ' "$log" && grep -a '^#.*cov:' "$log" | tail -n 1
    else
        tail -n 40 "$log"
        failed+=("$name")
    fi
done
[ ${#failed[@]} -eq 0 ] || { echo "FAILED: ${failed[*]}" >&2 && exit 1; }
