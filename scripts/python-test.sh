#!/usr/bin/env bash
# Tests the Python package in the virtual environment of scripts/python.sh, with the driver and layers chosen by
# sim/run:
#
#     scripts/python-test.sh tests [PYTEST-ARGUMENT...]
#     scripts/python-test.sh examples     runs examples/python
#     scripts/python-test.sh install      runs `pip install ./ffi/python` in a fresh virtual environment
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Keeps __pycache__ folders out of the sources.
export PYTHONDONTWRITEBYTECODE=1
python=("$python_target/venv/bin/python" -X dev -W error)

# pycuda and Mesa write caches.
use_own_cache() { export XDG_CACHE_HOME=$python_target/cache; }

tests() {
    use_own_cache
    # Without the layer, tests that inspect Vulkan or inject faults skip themselves.
    [ "$(sim/run --driver)" != sim ] || export VKGDR_TEST_LAYERS=${VKGDR_TEST_LAYERS:-faults}
    sim/run "${python[@]}" -m pytest ffi/python/tests "$@"
}

examples() {
    local file status=0
    use_own_cache
    for file in examples/python/*.py; do
        say "$file"
        sim/run "${python[@]}" "$file" </dev/null || { status=1; say "$file failed"; }
    done
    return $status
}

install() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$(find_python)" -m venv "$work/venv"
    # As a user would install it: pip fetches maturin, and numpy is absent.
    "$work/venv/bin/python" -m pip install "${pip_options[@]}" ./ffi/python
    cd "$work"
    "$root/sim/run" "$work/venv/bin/python" -X dev -W error -m vkgdr
}

mode=${1:?}
shift
case $mode in
    tests | examples | install) "$mode" "$@" ;;
    *) die "scripts/python-test.sh: no mode '$mode'" ;;
esac
