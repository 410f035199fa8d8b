#!/usr/bin/env bash
# Builds pycuda's wheel for an interpreter and prints its path:
#
#     scripts/pycuda.sh PYTHON
#
# No CUDA toolkit is needed: the headers come from NVIDIA's wheels, and the wheel is linked to the simulated driver,
# which has the real one's soname. A build takes one or two minutes, so the wheel is kept in
# $CARGO_TARGET_DIR/python/wheels, and for other checkouts in ${XDG_CACHE_HOME:-~/.cache}/vkgdr-tests.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=${1:?}
pycuda=2026.1
headers=(nvidia-cuda-runtime==13.5.37 nvidia-cuda-profiler-api==13.5.25 nvidia-cuda-crt==13.5.37)

name=pycuda-$pycuda-cuda13.5
wheels=$python_target/wheels/$name
cache=${XDG_CACHE_HOME:-${HOME:-/nowhere}/.cache}/vkgdr-tests/$name
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
pattern="pycuda-$pycuda-$tag-$tag-linux_$(uname -m).whl"

for folder in "$wheels" "$cache"; do
    if [ -e "$folder/$pattern" ]; then
        echo "$folder/$pattern"
        exit
    fi
done

say "building pycuda $pycuda for $tag (one or two minutes, once)" >&2
[ -e "$VKGDR_SIM_DIR/libcuda.so" ] || scripts/sim.sh >&2
work=$(mktemp -d "${TMPDIR:-/tmp}/vkgdr-pycuda.XXXXXX")
trap 'rm -rf "$work"' EXIT
log=$work/log
{
    "$python" -m pip install "${pip_options[@]}" --no-deps --target "$work/headers" "${headers[@]}" &&
        "$python" -m pip download "${pip_options[@]}" --no-deps --no-binary pycuda --dest "$work" "pycuda==$pycuda" &&
        tar -C "$work" -xzf "$work/pycuda-$pycuda.tar.gz" &&
        cat >"$work/pycuda-$pycuda/siteconf.py" <<SITECONF
CUDA_ENABLE_CURAND = False
CUDA_ROOT = "$work/headers/nvidia/cu13"
CUDA_INC_DIR = ["$work/headers/nvidia/cu13/include"]
CUDADRV_LIB_DIR = ["$VKGDR_SIM_DIR"]
SITECONF
    # pycuda's setup would read a configuration file in HOME.
    HOME=$work PIP_CACHE_DIR=$("$python" -m pip cache dir) "$python" -m pip wheel --no-deps \
        --disable-pip-version-check --no-input --wheel-dir "$work/wheels" "$work/pycuda-$pycuda"
} >"$log" 2>&1 || {
    tail -n 40 "$log" >&2
    die "pycuda $pycuda could not be built (last lines of the log above)"
}
[ -e "$work/wheels/$pattern" ] || die "pycuda was built as $(ls "$work/wheels"), not as $pattern"
keep() { # FOLDER
    # Renamed into place: another checkout may read the folder at the same time.
    mkdir -p "$1" && cp "$work/wheels/$pattern" "$1/.$$" && mv "$1/.$$" "$1/$pattern"
}
keep "$wheels"
keep "$cache" 2>/dev/null || true
echo "$wheels/$pattern"
