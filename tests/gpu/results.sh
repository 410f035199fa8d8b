# Sourced by run.sh: what a run leaves in its output folder, whatever ends it.
# shellcheck shell=bash disable=SC2154 # set by run.sh

remove_earlier() { # the results of an earlier run, which the report would mix with this one's
    local stage
    for stage in "${!due[@]}"; do rm -f "$out/$stage.log"; done
    rm -f "$out"/{report.md,bench.json}{,.new}
}

max_log=$((8 << 20))
trim_log() { # keeps both ends of a log that is too large
    [ "$(stat -c %s "$1")" -gt $max_log ] || return
    { head -c $((max_log / 2)) "$1" && printf '\n[... cut ...]\n' && tail -c $((max_log / 2)) "$1"; } >"$scratch/cut"
    cat "$scratch/cut" >"$1"
}

# In a subshell, since `finish` ignores SIGPIPE, on which the report's pipes rely.
report() { (trap - PIPE && exec bash "$here/report.sh" "$out" "$scratch/stages"); }

record() { # STAGE STATUS SECONDS; in the file first, since nobody may read the standard output any more
    printf '%-11s %5d %8d\n' "$@" >>"$scratch/stages"
    tail -n 1 "$scratch/stages"
}

# Whatever ends the run, what the stages have found is reported before $scratch goes.
# shellcheck disable=SC2329 # called by the trap
finish() {
    trap '' HUP INT PIPE TERM
    if [ -n "$running" ]; then
        kill "$running" 2>/dev/null
        # At once, since this script may be killed next; again when the stage has printed its last.
        report
        wait "$running"
        status=$?
        trim_log "$log"
        record "$stage" $status $((SECONDS - from))
    fi
    if [ -e "$scratch/stages" ]; then
        echo "total: $SECONDS s" >>"$scratch/stages"
        report
        tail -n 1 "$scratch/stages"
        echo "the report: $out/report.md"
    fi
    # Of a report that was killed, perhaps a stage's first.
    rm -f "$out"/{report.md,bench.json}.new
    rm -rf "$scratch"
}

trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM
