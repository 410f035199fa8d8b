#!/usr/bin/env bash
# Tests vkgdr on a machine with an NVIDIA GPU and driver, from the folder made by `make gpu-bundle`:
#
#     gpu-bundle/run.sh OUTPUT-FOLDER [STAGE...]
#
# Needs no Rust, internet access, Vulkan loader or root. Runs the stages of stage.sh, or the given ones, one after the other
# within VKGDR_GPU_SECONDS, by default 540; a failed stage does not stop the next. On a GPU `validation` runs only if it is
# given: it checks this library's calls, which the simulated driver suffices for, and the benches need its time. Leaves at
# most 8 files: report.md, which is for people (stages with exit code and seconds, 124 being "timed out"; answers, failures),
# a log for each stage (the probe's is in facts.log), and bench.json. The exit code is 0 if every stage succeeded. PYTHON
# names the interpreter for the Python tests, which need 3.11 and NumPy 2.1, or newer.
#
# With all stages in one run, most benches run in quick mode, and some tests may not run in time, since a GPU's driver
# takes long to create a CUDA context. For complete results make three runs, each with its own OUTPUT-FOLDER:
#
#     run.sh OUTPUT-FOLDER facts probe bench
#     run.sh OUTPUT-FOLDER tests python
#     run.sh OUTPUT-FOLDER validation examples
#
# docs/gpu-report.md says how to use a machine that is lent for 15 minutes.
#
# VKGDR_CUDA_DRIVER=sim makes it a dry run on the simulated driver (Mesa's lavapipe must be installed).
set -u -o pipefail

unset CDPATH # by which cd may go elsewhere
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
die() { printf '%s\n' "$*" >&2 && exit 2; }
[ $# -ge 1 ] || die "usage: $0 OUTPUT-FOLDER [STAGE...]"
[ -e "$here/tests.tar.zst" ] || die "$0 is not in a bundle; make one with \`make gpu-bundle\`"
mkdir -p "$1" && out=$(cd "$1" && pwd) || exit 2

# Less the time to unpack and to end late stages. By default the stages' shares add up to 505.
[[ ${VKGDR_GPU_SECONDS:=540} =~ ^[1-9][0-9]{1,4}$ ]] && [ "$VKGDR_GPU_SECONDS" -ge 60 ] ||
    die "VKGDR_GPU_SECONDS is '$VKGDR_GPU_SECONDS'; it must be a number of seconds from 60 on"
budget=$((VKGDR_GPU_SECONDS - 25))
stages=(facts probe tests validation python examples bench)
declare -A due=([facts]=40 [probe]=105 [tests]=115 [validation]=100 [python]=55 [examples]=30 [bench]=60)
# Stages that gain nothing from more time, however much is left.
declare -A longest=([facts]=60 [probe]=150)
declare -A log_of=([probe]=facts)
shift
for stage in "$@"; do
    [ -n "${due[$stage]:-}" ] || die "there is no stage '$stage'; there are: ${stages[*]}"
done

scratch=$(mktemp -d "${TMPDIR:-/tmp}/vkgdr-gpu.XXXXXX") || exit 2
running=
# shellcheck source-path=SCRIPTDIR source=results.sh
. "$here/results.sh"

tar -C "$scratch" -xzf "$here/programs.tar.gz" || die "cannot unpack $here/programs.tar.gz"
# shellcheck source-path=SCRIPTDIR source=requirements.sh
. "$here/requirements.sh"
remove_earlier
# shellcheck source-path=SCRIPTDIR source=environment.sh
. "$here/environment.sh"

# Only a GPU's benches measure anything.
if [ "$driver" = real ]; then
    [ $# -gt 0 ] || stages=(facts probe tests python examples bench)
    due[bench]=160
fi
[ $# -eq 0 ] || stages=("$@")

# The time limit of a stage: the time left, less the shares of the stages after it, but at least half of its own share
# while there is time, and at most what it may take. On a machine that is slow to start, later stages run out of time.
seconds_for() {
    local all=$((budget - SECONDS)) left name after='' half=$((due[$1] / 2)) limit=${longest[$1]:-$budget}
    left=$all
    for name in "${stages[@]}"; do
        [ -n "$after" ] && left=$((left - due[$name]))
        [ "$name" = "$1" ] && after=yes
    done
    left=$((left > half ? left : half))
    left=$((left < all ? left : all))
    left=$((left < limit ? left : limit))
    echo $((left > 5 ? left : 5))
}

sed -n 2,3p "$here/bundle.txt"
echo "$vulkan"
printf '%-11s %5s %8s\n' stage exit seconds | tee "$scratch/stages"
failed=0
for stage in "${stages[@]}"; do
    log=$out/${log_of[$stage]:-$stage}.log
    from=$SECONDS
    seconds=$(seconds_for "$stage")
    VKGDR_STAGE_SECONDS=$seconds timeout --kill-after=5 "$seconds" bash "$here/stage.sh" "$stage" >>"$log" 2>&1 </dev/null &
    running=$!
    wait "$running"
    status=$?
    running=
    # Killed at its time limit, rather than for want of memory.
    [ $status -eq 137 ] && [ $((SECONDS - from)) -ge "$seconds" ] && status=124
    trim_log "$log"
    record "$stage" $status $((SECONDS - from))
    grep -a '^skipped: validation' "$log"
    [ $status -eq 0 ] || { failed=1 && tail -n 12 "$log" | cut -c1-200 | sed 's/^/    /'; }
    report
done
exit $failed
