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
version=$("$ours" -c 'import sys; print(sys.base_prefix, sys.version)')
if ! "$peer" -c 'import sys, vkgdr; assert (vkgdr.__version__, sys.argv[1]) == ("0.1", f"{sys.base_prefix} {sys.version}")' \
    "$version" 2>/dev/null; then
    say 'making a virtual environment with vkgdr 0.1 (once)'
    rm -rf "$python_target/peer"
    "$ours" -c 'import sys, venv; venv.create(sys.argv[1], with_pip=True)' "$python_target/peer"
    "$peer" -m pip install "${pip_options[@]}" vkgdr==0.1 || die 'vkgdr 0.1 could not be installed (is there internet?)'
fi
say 'the Python package against vkgdr 0.1'
sim/run "$ours" benches/python_peer.py --ours "$ours" --peer "$peer" --json "$python_target/peer.json" "$@"
