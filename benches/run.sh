#!/usr/bin/env bash
# Runs the benches, and shows the table of their results; `make bench` calls it with its variables: QUICK=1, ONLY="NAME..." and the
# options of `bench table` (see main.rs). Results are in `bench` in cargo's target folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
to=$target/bench tools=$target/python/tools/bin peer=$target/python/peer ours=$target/python/nox/tests/bin/python
options=("$@")
driver=$(sim/run --driver)
export VKGDR_BENCH_DIR=$to/reports VKGDR_BENCH_QUICK=${QUICK:+1}
all=(pool copies allocation c_calls gdr_copies python gpu)
read -ra names <<<"${ONLY//,/ }"

cargo build --quiet --locked --release --package benches
bench=$target/release/bench
if [[ " ${options[*]-} " != *' --from '* ]]; then
    # Emptied first, so that no result of an earlier run is mixed in.
    rm -rf "$VKGDR_BENCH_DIR" && mkdir -p "$VKGDR_BENCH_DIR"
    # The peer, whose extension module has vkgdr 0.1's C functions. The time of an import is that of compiled modules.
    if "$tools/uv" venv --quiet --allow-existing "$peer" &&
        UV_COMPILE_BYTECODE=1 "$tools/uv" pip install --quiet vkgdr==0.1 --python "$peer/bin/python"; then
        VKGDR_PEER_LIBRARY=$(echo "$peer"/lib/*/site-packages/vkgdr/*.so) && export VKGDR_PEER_LIBRARY
    else
        echo 'without vkgdr 0.1: nothing is compared with it' >&2
    fi
    failed=
    for name in "${names[@]:-${all[@]}}"; do
        echo "==> $name"
        case $name in
            python) "$tools/nox" --session tests --install-only && "$ours" -m compileall -q "${ours%/bin/*}"/lib/*/site-packages/vkgdr &&
                sim/run "$ours" benches/python.py "$peer/bin/python" "$VKGDR_BENCH_DIR/python.json" ;;
            # Simulated memory that is not cached.
            copies) VKGDR_TEST_PROFILE=$([ "$driver" = real ] || echo rebar) sim/run "$bench" copies ;;
            *) sim/run "$bench" "$name" ;;
        esac || failed+=" $name"
    done
    [ -z "$failed" ] || { echo "FAILED:$failed" >&2 && exit 1; }
fi
exec "$bench" table "${options[@]}" --to "$to"
