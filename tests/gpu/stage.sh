#!/usr/bin/env bash
# One stage of run.sh, which sets the environment: facts, probe, tests, validation, examples or bench.
set -u -o pipefail
bundle=$VKGDR_BUNDLE
scratch=$VKGDR_SCRATCH
run=$scratch/workspace/tests/run

# Programs find their files from their package's folder, as under cargo. nextest also finds the runner from there.
cd "$scratch/workspace" || exit 1

nextest() { # VKGDR_TEST_LAYERS
    mkdir -p "$scratch/$1"
    VKGDR_TEST_LAYERS=$1 "$scratch/bin/cargo-nextest" nextest run --profile gpu --no-fail-fast \
        --archive-file "$bundle/tests.tar.zst" --extract-to "$scratch/$1" --workspace-remap "$PWD"
}

status=0
program() { # TITLE COMMAND...
    printf '\n---- %s\n' "$1"
    shift
    "$run" "$@"
    local code=$?
    [ $code -eq 0 ] && return
    echo "exit code $code"
    status=1
}

case $1 in
    facts) exec bash "$bundle/facts.sh" ;;
    probe) exec "$run" "$scratch/examples/gpu_probe" ;;
    tests) nextest faults ;;
    validation) nextest validation ;;
    examples)
        for file in "$scratch"/examples/*; do
            [ "${file##*/}" = gpu_probe ] || program "${file##*/}" "$file"
        done
        head -c 256M /dev/urandom >"$scratch/large.bin"
        program 'share_file, 256 MiB' "$scratch/examples/share_file" "$scratch/large.bin"
        exit $status
        ;;
    bench)
        for file in "$scratch"/bench/*; do
            [ "${file%.so}" = "$file" ] || continue # a library that one of them loads
            program "${file##*/}" "$file" --bench
        done
        exit $status
        ;;
    *) echo "stage.sh: no stage '$1'" >&2 && exit 2 ;;
esac
