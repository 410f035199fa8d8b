#!/usr/bin/env bash
# Writes what run.sh found so far: report.md, for a person to read and send, which names neither the machine nor its user, and
# bench.json. Arguments: the folder of the logs, where they go, and the file with a line for each stage.
set -u -o pipefail
out=$1
stages=$2
bundle=$VKGDR_BUNDLE
facts=$out/facts.log
# shellcheck source-path=SCRIPTDIR source=hide.sh
. "$bundle/hide.sh"

section() { # TITLE: of facts.log, without its heading
    [ ! -e "$facts" ] || awk -v title="---- $1" '$0 == title { on = 1; next } /^---- / { on = 0 } on && NF' "$facts"
}

block() { # TITLE: a code block of standard input, if there is any
    local text
    text=$(cat)
    # shellcheck disable=SC2016 # backquotes for Markdown
    [ -z "$text" ] || printf '\n## %s\n\n```text\n%s\n```\n' "$1" "$text"
}

results() { # LOG: the numbers of a stage, its failures, and what those say
    local log=$out/$1.log name stopped
    [ -e "$log" ] || return
    grep -aE '^ *Summary \[|^=+ .* in .*=+$|^---- |^exit code|^no time was left|^skipped: (.* is not Python|validation)|^pytest' "$log" |
        sed 's/^ *//' | short 200
    stopped=$(grep -acE '^ +SIGTERM \[' "$log")
    [ "$stopped" -eq 0 ] || echo "stopped by the time limit, counted as failed above: $stopped"
    grep -aE '^ +(FAIL|TIMEOUT|SIG[A-Z]+|LEAK) \[|^(FAILED|ERROR) ' "$log" | grep -v SIGTERM | sed 's/^ *//' | sort -u | head -60
    # A panic's message follows the line that names the test's thread.
    grep -aoE '^ +(FAIL|SIG[A-Z]+) \[.*' "$log" | grep -v SIGTERM | awk '{ print $NF }' | sort -u | head -40 | while IFS= read -r name; do
        grep -aF -A3 "thread '$name'" "$log" | grep -avE 'stack backtrace|^--$' | head -4 | short 220
    done
    grep -aE '^E  ' "$log" | head -60 | short 220
}

# The reasons for which tests were left out, the most frequent first.
left_out() {
    cat "$out"/tests.log "$out"/validation.log "$out"/python.log 2>/dev/null |
        grep -aoE '(skipped|left out): .*|^SKIPPED \[.*' |
        sed -E 's/^(skipped|left out): /1 /; s/^SKIPPED \[([0-9]+)\] [^ ]+: /\1 /' | short 160 |
        awk '{ count = $1; sub(/^[0-9]+ /, ""); tests[$0] += count } END { for (why in tests) printf "%5d %s\n", tests[why], why }' |
        sort -rn | head -n 40
}

# Combines the benches' reports into one JSON object, keyed by file name.
collect_bench() {
    local file json=$VKGDR_SCRATCH/bench.json
    find "$VKGDR_BENCH_DIR" -name '*.json' -size +0 2>/dev/null | sort | while IFS= read -r file; do
        printf ',\n"%s": ' "${file#"$VKGDR_SCRATCH"/}" && cat "$file"
    done >"$json"
    [ -s "$json" ] || return
    { printf '{' && tail -c +2 "$json" && printf '\n}\n'; } >"$out/bench.json.new" &&
        mv "$out/bench.json.new" "$out/bench.json"
}

# Whether every stage so far succeeded.
verdict() {
    awk 'BEGIN { why[124] = " (out of time)"; why[137] = " (killed)"; why[143] = " (interrupted)" }
        $1 == "stage" || $1 == "total:" { next }
        { count++ }
        $2 != 0 { failed = failed (failed ? ", " : "") $1 why[$2] }
        END { print failed ? "FAILED: " failed : "Passed: all of the " count " stages that ran" }' "$stages"
}

collect_bench
# Whole at any time: written elsewhere and renamed, since this script may be killed.
exec >"$VKGDR_SCRATCH/report.md"
title='A SIMULATED GPU: nothing here is about a GPU'
if [ "$VKGDR_CUDA_DRIVER" = real ]; then
    title=$(section 'nvidia-smi --query-gpu=name,driver_version,vbios_version,pci.bus_id,memory.total,compute_cap --format=csv' |
        awk -F ', ' 'NR == 2 && NF > 1 { print $1 ", driver " $2 }')
    # Where the stage "facts" did not run.
    [ -n "$title" ] || title=$(timeout --kill-after=2 5 nvidia-smi --query-gpu=name,driver_version --format=csv,noheader \
        2>/dev/null | awk -F ', ' 'NR == 1 && NF > 1 { print $1 ", driver " $2 }')
fi
cat <<EOF
# vkgdr on ${title:-an unknown GPU}

Made by the GPU bundle on $(date -u +%F), $(sed -n 2p "$bundle/bundle.txt" | tr -s ' '). Please attach this file to an issue.
EOF
head -n 20 "$VKGDR_SCRATCH/vulkan.txt" | short 300 | block 'Vulkan driver'
{ verdict && cat "$stages"; } | block 'Stages'
{
    uname -srm
    section system | grep -E '^PRETTY_NAME|^glibc|^IOMMU|^modules|^infiniband'
    section CPU | head -n 20
    section 'device nodes' | awk '/^[bcd]/ { print $1, $NF }'
    sed -n '/^---- PCI /,/^$/p' "$facts" 2>/dev/null
} | block 'Machine'
section 'Vulkan memory types and heaps' | block 'Vulkan memory types and heaps'
section 'Vulkan limits' | block 'Vulkan limits'
section 'libraries of the Vulkan driver' | block 'Libraries of the Vulkan driver'
section 'loader' | tail -n 80 | short 300 | block 'Messages of the Vulkan loader'
sed -n '/^gpu_probe: /,$p' "$facts" 2>/dev/null | grep -aE '^(gpu_probe: |[A-Z][0-9]+[a-z]? )' | short 600 | block 'Answers'
for log in tests validation python examples; do results "$log" | block "Results of $log"; done
left_out | block 'Left out, with the number of tests'
# The benches' tables.
[ ! -e "$out/bench.log" ] || head -n 150 "$out/bench.log" | short 160 | block 'Benches'
hide <"$VKGDR_SCRATCH/report.md" >"$out/report.md.new" && mv "$out/report.md.new" "$out/report.md"
