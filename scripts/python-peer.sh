#!/usr/bin/env bash
# Makes a virtual environment with vkgdr 0.1 from PyPI, the peer of the benches, in $CARGO_TARGET_DIR/python/peer:
#
#     scripts/python-peer.sh [INTERPRETER]
#
# The C bench loads its extension module, benches/python_peer.py imports it. An environment of the same interpreter is
# left alone. Without INTERPRETER it is $PYTHON, or the first python3 that is new enough.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=${1:-$(find_python)} || die 'there is no Python 3.11 or newer: install one, or name it with PYTHON='
peer=$python_target/peer

version=$("$python" -c 'import sys; print(sys.base_prefix, sys.version)')
if ! "$peer/bin/python" \
    -c 'import sys, vkgdr; assert (vkgdr.__version__, sys.argv[1]) == ("0.1", f"{sys.base_prefix} {sys.version}")' \
    "$version" 2>/dev/null; then
    say 'making a virtual environment with vkgdr 0.1 (once)'
    rm -rf "$peer"
    "$python" -c 'import sys, venv; venv.create(sys.argv[1], with_pip=True)' "$peer"
    "$peer/bin/python" -m pip install "${pip_options[@]}" vkgdr==0.1 ||
        die 'vkgdr 0.1 could not be installed (is there internet?)'
fi
