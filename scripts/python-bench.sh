#!/usr/bin/env bash
# Measures the Python package against vkgdr 0.1 from PyPI, which has a virtual environment of its own:
#
#     scripts/python-bench.sh [ARGUMENT of benches/python_peer.py...]
#
# The samples go to $CARGO_TARGET_DIR/python/peer.json.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

scripts/python.sh package
ours=$python_target/venv/bin/python
peer=$python_target/peer/bin/python

# Both must use the same interpreter.
scripts/python-peer.sh "$ours"
say 'the Python package against vkgdr 0.1'
sim/run "$ours" benches/python_peer.py --ours "$ours" --peer "$peer" --json "$python_target/peer.json" "$@"
