#!/usr/bin/env bash
# Builds the manylinux wheel of the Python package into dist/ and tests it with each installed Python from 3.11 on:
#
#     scripts/wheel.sh [--build-only]
#
# zig links it for an older glibc than this machine's, and auditwheel checks that. One wheel serves all versions of
# Python (abi3); each version runs all tests except those that need pycuda or PyTorch.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

versions=(3.11 3.12 3.13 3.14)
policy=manylinux2014
venv=$python_target/venv

scripts/python.sh wheel
say "building the wheel ($policy)"
new=$python_target/new-wheel
rm -rf "$new"
# The wheel must use the system's unwinder: at exit Python ends threads by pthread_exit, which unwinds them with it and
# cannot cross frames of another unwinder. Linked by path, since zig would resolve the name to its own unwinder.
unwinder=$(cc -print-file-name=libgcc_s.so.1)
[[ $unwinder == /* ]] || die 'libgcc_s.so.1, the unwinder, is missing (package libgcc-s1)'
# A separate target folder keeps zig's objects apart from those of other builds.
log=$(PATH=$venv/bin:$PATH CARGO_TARGET_DIR=$python_target/zig RUSTFLAGS="-C link-arg=$unwinder" "$venv/bin/maturin" build --quiet --release --locked \
    --zig --compatibility "$policy" --interpreter "$venv/bin/python" --manifest-path ffi/python/Cargo.toml \
    --out "$new" 2>&1) || {
    printf '%s\n' "$log" >&2
    die 'the wheel could not be built'
}
wheel=$(echo "$new"/*.whl)
[[ $wheel == */vkgdr-*-cp311-abi3-*"$policy"_"$(uname -m)"*.whl ]] || die "the wheel's tags are wrong: $wheel"
report=$("$venv/bin/auditwheel" show "$wheel" | tr -s ' \n' ' ')
[[ $report == *"following platform tag: \"manylinux_2_17_$(uname -m)\""* ]] || die "auditwheel refuses it: $report"
say "${wheel##*/}: $(($(stat -c %s "$wheel") >> 10)) KiB, accepted by auditwheel"

keep() { # REMARK: copies the wheel into dist/
    mkdir -p dist
    rm -f dist/vkgdr-*.whl
    cp "$wheel" dist/
    say "dist/${wheel##*/}: $1"
}
if [ "${1:-}" = --build-only ]; then
    keep 'not tested'
    exit
fi

# Prints the interpreter of a version, from PATH or from pyenv.
interpreter() { # VERSION
    local python
    for python in "python$1" python3 "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        if "$python" -c "import sys, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    return 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python_needs "$work/requirements.txt" iniconfig numpy packaging pluggy Pygments pytest pytest-timeout
choose_driver
"$venv/bin/python" -m zipfile --extract "$wheel" "$work/wheel"
[[ $(LC_ALL=C readelf -d "$work/wheel/vkgdr/_vkgdr.abi3.so") == *'[libgcc_s.so.1]'* ]] || die 'the wheel does not use the system unwinder'
tried=()
failed=()
skipped=()
for version in "${versions[@]}"; do
    if ! python=$(interpreter "$version"); then
        skipped+=("$version")
        continue
    fi
    say "$("$python" --version)"
    "$python" -m venv "$work/$version"
    "$work/$version/bin/python" -m pip install "${pip_options[@]}" --no-deps --only-binary :all: "$wheel" \
        --requirement "$work/requirements.txt"
    export PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=$python_target/cache VKGDR_TEST_LAYERS=faults
    tried+=("$version")
    sim/run "$work/$version/bin/python" -X dev -W error -m pytest --quiet -r fE ffi/python/tests || failed+=("$version")
done
[ ${#failed[@]} -eq 0 ] || die "the wheel fails with Python ${failed[*]}"
[ ${#tried[@]} -gt 0 ] || die 'there is no Python to test the wheel with'
[ ${#skipped[@]} -eq 0 ] || say "not found, hence not tested: Python ${skipped[*]}"
keep "works with Python ${tried[*]}"
