#!/usr/bin/env bash
# Makes or updates the virtual environment of the Python package's tests and lints, $CARGO_TARGET_DIR/python/venv:
#
#     scripts/python.sh [PART...]
#
#   package   the package itself, built from the current sources
#   pycuda    pycuda, built against the simulated CUDA driver (scripts/pycuda.sh)
#   nvcc      NVIDIA's CUDA compiler, which pycuda runs to compile kernels: 120 MB
#   torch     PyTorch without CUDA's libraries (scripts/torch.sh)
#   wheel     the requirements of scripts/wheel.sh
#   usage     prints how to use the environment
#
# Without a part, only the packages of tests/requirements.txt. Parts that are up to date are skipped, in under a second.
# PYTHON names the interpreter; the default is the first python3 that is new enough.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

requirements=ffi/python/tests/requirements.txt
venv=$python_target/venv
# One stamp file for each installed part, inside the environment, so that both are removed together.
stamps=$venv/vkgdr-stamps

python=$(find_python) || die 'there is no Python 3.11 or newer: install one, or name it with PYTHON='

up_to_date() { # PART KEY
    [ "$(cat "$stamps/$1" 2>/dev/null)" = "$2" ]
}

stamp() { # PART KEY
    printf '%s\n' "$2" >"$stamps/$1"
}

key=$("$python" -c 'import sys; print(sys.executable, sys.version)' && cat "$requirements")
if ! up_to_date base "$key"; then
    say "making a virtual environment with $("$python" --version) (some downloads, once)"
    rm -rf "$venv"
    "$python" -m venv "$venv" || die "$python cannot make a virtual environment"
    mkdir "$stamps"
    "$venv/bin/python" -m pip install "${pip_options[@]}" --no-deps --requirement "$requirements" ||
        die "the packages of $requirements could not be installed (is there internet?)"
    stamp base "$key"
fi

package() {
    local key
    key=$(package_key)
    up_to_date package "$key" && return
    say 'building the Python package'
    # Like `pip install ./ffi/python`, which test.sh runs too, but with the maturin already installed.
    PATH=$venv/bin:$PATH MATURIN_PEP517_ARGS=--locked "$venv/bin/python" -m pip install "${pip_options[@]}" \
        --no-deps --no-build-isolation --force-reinstall ./ffi/python || die 'the Python package could not be built'
    stamp package "$key"
}

pycuda() {
    local key wheel
    key=$(cat scripts/pycuda.sh)
    up_to_date pycuda "$key" && return
    wheel=$(scripts/pycuda.sh "$venv/bin/python")
    "$venv/bin/python" -m pip install "${pip_options[@]}" --no-deps --force-reinstall "$wheel"
    stamp pycuda "$key"
}

nvcc() {
    local packages=(nvidia-cuda-nvcc==13.5.37 nvidia-nvvm==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cuda-runtime==13.5.37)
    up_to_date nvcc "${packages[*]}" && return
    say 'installing nvcc (120 MB, once)'
    "$venv/bin/python" -m pip install "${pip_options[@]}" --no-deps "${packages[@]}"
    stamp nvcc "${packages[*]}"
}

torch() {
    local key
    key=$(cat scripts/torch.sh scripts/torch_stubs.py)
    up_to_date torch "$key" && return
    scripts/torch.sh "$venv/bin/python"
    stamp torch "$key"
}

wheel() {
    local packages=(auditwheel==6.8.0 pyelftools==0.33 ziglang==0.15.2)
    up_to_date wheel "${packages[*]}" && return
    say 'installing zig and auditwheel (once)'
    "$venv/bin/python" -m pip install "${pip_options[@]}" --no-deps "${packages[@]}"
    stamp wheel "${packages[*]}"
}

usage() {
    printf '\nThe package is in %s. A program that uses it, on the %s driver:\n\n    sim/run %q PROGRAM.py\n' \
        "$venv" "$(sim/run --driver)" "$venv/bin/python"
    printf '\nThe tests, all or one:\n\n    scripts/python.sh package && scripts/python-test.sh tests [-k NAME]\n'
}

for part in "$@"; do
    case $part in
        package | pycuda | nvcc | torch | wheel | usage) "$part" ;;
        *) die "scripts/python.sh: unknown part '$part'" ;;
    esac
done
