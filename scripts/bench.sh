#!/usr/bin/env bash
# Runs the benchmarks and combines their results: a table on the terminal, and in $CARGO_TARGET_DIR/bench the full
# table, results.json and plots.
#
#     scripts/bench.sh [OPTION...]
#     scripts/bench.sh --from FILE [--to FOLDER]
#
#   --quick       a tenth of the measurements, under two minutes: checks that everything runs
#   --strict      exit code 1 if a goal is missed; otherwise it is 0
#   --all         every row in the table on the terminal, not only the worst of each group
#   --only NAME   one bench, or several separated by commas: allocation pool copies gpu c_calls python
#   --from FILE   run nothing; read FILE, the bench.json of a GPU machine's run.sh or an earlier results.json
#   --to FOLDER   the folder for the results; default $CARGO_TARGET_DIR/bench
#
# `make bench` passes QUICK=1, STRICT=1, ALL=1, ONLY=, FROM= and TO= on as these options.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

benches=(allocation pool copies gpu c_calls python)
quick=
from=
to=$target/bench
summary=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=1 ;;
        --strict | --all) summary+=("$1") ;;
        --only | --from | --to)
            [ $# -ge 2 ] || die "scripts/bench.sh: $1 needs a value"
            case $1 in
                --only) IFS=', ' read -ra benches <<<"$2" ;;
                --from) from=$2 ;;
                --to) to=$2 ;;
            esac
            shift
            ;;
        *) die "scripts/bench.sh: unknown option '$1'" ;;
    esac
    shift
done
for name in "${benches[@]}"; do
    case $name in
        allocation | pool | copies | gpu | c_calls | python) ;;
        *) die "scripts/bench.sh: there is no bench '$name', only allocation, pool, copies, gpu, c_calls, python" ;;
    esac
done

[ -z "$from" ] || [ -e "$from" ] || die "there is no $from"

# The benches' output; emptied first, so that no result of an earlier run is mixed in.
reports=$target/bench/reports
failed=()

run_rust() { # NAME
    # --quick is criterion's own option, which the bench `allocation` uses.
    cargo bench --quiet --locked --workspace --bench "$1" -- ${quick:+--quick}
}

run_c_calls() {
    # Without it, the bench says so in its rows.
    scripts/python-peer.sh "$python" || say 'without vkgdr 0.1: the C functions are not compared with it'
    run_rust c_calls
}

run_python() {
    # Its exit code reports missed goals, as the summary does: only a missing report is a failure.
    scripts/python-bench.sh --json "$reports/python_peer.json" ${quick:+--rounds 3} || [ -s "$reports/python_peer.json" ]
}

run_all() {
    local name number=0
    choose_driver
    say 'building the benches'
    cargo bench --quiet --locked --workspace --no-run --bench '*'
    rm -rf "$reports"
    mkdir -p "$reports"
    export VKGDR_BENCH_DIR=$reports
    [ -z "$quick" ] || export VKGDR_BENCH_QUICK=1
    for name in "${benches[@]}"; do
        number=$((number + 1))
        say "bench $number of ${#benches[@]}: $name"
        case $name in
            c_calls) run_c_calls || failed+=("$name") ;;
            python) run_python || failed+=("$name") ;;
            *) run_rust "$name" || failed+=("$name") ;;
        esac
    done
}

# Draws the plots with matplotlib, in a virtual environment of its own, since nothing else needs it.
draw() { # RESULTS FOLDER
    local venv=$python_target/plots key
    key=$(cat benches/requirements.txt)
    if [ "$(cat "$venv/vkgdr-stamp" 2>/dev/null)" != "$key" ]; then
        say 'making an environment with matplotlib (some downloads, once)'
        rm -rf "$venv"
        "$python" -m venv "$venv" || return
        "$venv/bin/python" -m pip install "${pip_options[@]}" --only-binary :all: --no-deps \
            --requirement benches/requirements.txt || return
        printf '%s\n' "$key" >"$venv/vkgdr-stamp"
    fi
    MPLCONFIGDIR=$venv/config "$venv/bin/python" benches/plots.py "$1" "$2"
}

python=$(find_python) || die 'there is no Python 3.11 or newer: install one, or name it with PYTHON='
export PYTHONDONTWRITEBYTECODE=1
if [ -z "$from" ]; then
    run_all
    from=$reports
fi
mkdir -p "$to"
say 'plots'
"$python" benches/summary.py "$from" --json "$to/results.json" --table "$to/table.txt" >/dev/null
draw "$to/results.json" "$to" || say 'no plots: matplotlib could not be installed or failed'
printf '\n'
status=0
"$python" benches/summary.py "$to/results.json" "${summary[@]}" || status=$?
printf '\nfull table, samples and plots: %s\n' "$to"
if [ ${#failed[@]} -gt 0 ]; then die "these benches failed: ${failed[*]}"; fi
exit "$status"
