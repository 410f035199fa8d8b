#!/usr/bin/env bash
# Runs the parts of docs/reliability.md and rewrites it:
#
#     scripts/reliability.sh [PART...]
#
#   sweep       every driver call of every public operation made to fail
#   sequences   random sequences against the model: STEPS (100,000) on one thread, with uncached copies, and on 16
#               threads, and on 1 and 16 threads for each device profile; 10,000 under the validation layer
#   processes   forks, kills, limits, signals, and gdrcopy's sanity suite
#   sanitizers  scripts/sanitize.sh
#   fuzz        scripts/fuzz.sh, SECONDS_EACH (60) seconds a target
#   flush       scripts/broken-flush.sh: tests must detect a broken flush
#   soak        scripts/soak.sh, MINUTES (10)
#   page        only rewrites the page from the last results
#
# Without a part, all. Each part's log is kept in cargo's target folder, so that the page includes the last results of
# parts that did not run.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
logs=$target/reliability
mkdir -p "$logs"
steps=${STEPS:-100000}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
failed=()

tests() { # NEXTEST-ARGUMENT...
    VKGDR_TEST_LAYERS=${VKGDR_TEST_LAYERS:-faults} cargo nextest run --locked --package vkgdr --no-fail-fast \
        --success-output immediate "$@"
}

sequences_of() { # STEPS TEST [VARIABLE=VALUE...]
    local count=$1 test=$2
    shift 2
    env VKGDR_TEST_LAYERS=faults VKGDR_STEPS="$count" "$@" \
        cargo test --quiet --locked --package vkgdr --test sequences -- --nocapture "$test"
}

# Lists the device profiles of the simulated GPU.
profiles() { "$VKGDR_SIM_DIR/vkgdr-sim" --profiles | awk '/^[a-z][a-z0-9-]*  /{print $1}'; }

sweep() { tests --test failures; }

sequences() {
    local alone=random_sequences threads=sixteen_threads profile
    sequences_of "$steps" $alone
    sequences_of "$steps" $alone VKGDR_COPY=portable
    sequences_of "$steps" $threads
    sequences_of 10000 $alone VKGDR_TEST_LAYERS=validation
    for profile in $(profiles); do
        sequences_of "$steps" $alone VKGDR_TEST_PROFILE="$profile"
        sequences_of "$steps" $threads VKGDR_TEST_PROFILE="$profile"
    done
}

processes() { tests --test process; }

sanitizers() { scripts/sanitize.sh; }

fuzz() { scripts/fuzz.sh; }

flush() { scripts/broken-flush.sh; }

soak() { scripts/soak.sh; }

run() { # PART
    local log=$logs/$1.log began=$SECONDS status ended=passed
    say "reliability: $1"
    {
        echo "reliability: ran date=$(date -u +%F) time=$(date -u +%H:%M) version=$version" \
            "cores=$(nproc)"
        attempt "$1"
        [ "$status" -eq 0 ] || ended=failed
        echo "reliability: ended status=$ended seconds=$((SECONDS - began))"
    } >"$log" 2>&1
    grep '^reliability: ' "$log" | tail -3
    [ "$ended" = passed ] || { failed+=("$1"); tail -40 "$log" >&2; }
}

[ $# -gt 0 ] || set -- sweep sequences processes sanitizers fuzz flush soak
scripts/sim.sh
for part in "$@"; do
    case $part in
        sweep | sequences | processes | sanitizers | fuzz | flush | soak) run "$part" ;;
        page) ;;
        *) die "scripts/reliability.sh: unknown part '$part'" ;;
    esac
done
"$(find_python)" scripts/reliability.py "$logs" docs/reliability.md
[ ${#failed[@]} -eq 0 ] || die "failed: ${failed[*]}; see $logs"
