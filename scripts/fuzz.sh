#!/usr/bin/env bash
# Fuzzes each target of fuzz/ for SECONDS_EACH seconds (60), with AddressSanitizer, on the simulated driver.
#
#     scripts/fuzz.sh [TARGET...]
#
# The corpus is in cargo's target folder, and later runs extend it; fuzz/seeds has the first inputs. A failing input is
# written to fuzz/artifacts, and its path is printed.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
seconds=${SECONDS_EACH:-60}
export VKGDR_CUDA_DRIVER=sim
PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
version=0.13.1

if ! has cargo-fuzz; then
    say "building cargo-fuzz $version (takes minutes, once)"
    cargo install --quiet --locked "cargo-fuzz@$version" || die 'cargo-fuzz could not be installed'
fi
scripts/sim.sh

# Copies the seeds of a target; those of `ptx` are the repository's kernels.
seeds() { # TARGET CORPUS
    case $1 in
        ptx) find examples benches sim tests -name '*.ptx' -size -64k -exec cp {} "$2" \; ;;
        *) cp fuzz/seeds/"$1"/* "$2" ;;
    esac
}

fuzz() { # TARGET
    local work=$target/fuzz corpus=$target/fuzz-corpus/$1 log=$target/fuzz-$1.log
    mkdir -p "$corpus" "fuzz/artifacts/$1"
    seeds "$1" "$corpus"
    say "fuzzing $1: building"
    (cd fuzz && CARGO_TARGET_DIR=$work cargo +nightly fuzz build --fuzz-dir . "$1") >"$log" 2>&1 ||
        { cat "$log" >&2; return 1; }
    say "fuzzing $1 for $seconds s"
    # Progress: the first columns of libFuzzer's last line, every 10 s.
    sim/run "$work/$(rustc +nightly -vV | sed -n 's/^host: //p')/release/$1" -max_total_time="$seconds" \
        -rss_limit_mb=4096 -artifact_prefix="fuzz/artifacts/$1/" "$corpus" >"$log" 2>&1 &
    local pid=$! last
    while kill -0 "$pid" 2>/dev/null; do
        sleep 10
        last=$(grep -E '^#[0-9]+' "$log" | tail -1 | sed -E 's/ (lim|exec|rss|L):.*//; s/\t/ /g' || true)
        printf '  %s\n' "${last:-starting}"
    done
    if ! wait "$pid"; then
        tail -40 "$log" >&2
        return 1
    fi
    report "$1" "$log"
}

report() { # TARGET LOG
    local runs last cov ft
    runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$2")
    last=$(grep -E '^#[0-9]+.*cov:' "$2" | tail -1)
    cov=$(sed -E 's/.*cov: ([0-9]+).*/\1/' <<<"$last")
    ft=$(sed -E 's/.*ft: ([0-9]+).*/\1/' <<<"$last")
    echo "reliability: fuzz target=$1 seconds=$seconds executions=$runs coverage=$cov features=$ft"
}

[ $# -gt 0 ] || { mapfile -t all < <(cd fuzz/fuzz_targets && printf '%s\n' *.rs) && set -- "${all[@]%.rs}"; }
failed=()
for name in "$@"; do fuzz "$name" || failed+=("$name"); done
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}"
