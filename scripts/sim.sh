#!/usr/bin/env bash
# Builds the simulated CUDA driver, the Vulkan test layers and vkgdr-sim:
#
#     scripts/sim.sh [PROFILE [CARGO-ARGUMENT...]]
#
#     $VKGDR_SIM_DIR/vkgdr-sim                      starts programs; finds the other files beside itself
#     $VKGDR_SIM_DIR/libcuda.so.1, libcuda.so       the driver, under both names that programs look for
#     $VKGDR_SIM_DIR/libnvJitLink.so.{12,13}        nvJitLink by the driver's linker, for vkgdr-sim to preload
#     $VKGDR_SIM_DIR/libcudart.so.{12,13}           the CUDA runtime by the driver, likewise
#     $VKGDR_SIM_DIR/bin/nvcc                       compiles to PTX, which the driver executes, if a cubin is requested
#     $VKGDR_SIM_DIR/lib64/libcudadevrt.a           its name, which pycuda looks for beside nvcc; its code is in the driver
#     $VKGDR_SIM_DIR/vklayers/libvklayer.so         the Vulkan layers
#     $VKGDR_SIM_DIR/vklayers/{faults,…}/           their manifests, one folder each
#
# VKGDR_SIM_DIR is "sim" in cargo's target folder by default, PROFILE is "release". The other arguments name targets
# that the same cargo command builds, in parallel. GLIBC=2.28 links with zig (PyPI's ziglang and cargo-zigbuild) for that
# glibc or a newer one, and leaves no links, which wheels cannot have: then libcuda.so is a library that loads libcuda.so.1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
profile=${1:-release}
target=${CARGO_TARGET_DIR:-target}
sim=${VKGDR_SIM_DIR:-$target/sim}

# A first build shows cargo's progress; later ones are silent.
quiet=()
if [ -e "$sim/libcuda.so.1" ]; then
    quiet=(--quiet)
else
    echo '==> building the simulated GPU (half a minute or more, once)'
fi
build=(build) cc=("${CC:-cc}")
if [ -n "${GLIBC:-}" ]; then
    export CARGO_BUILD_TARGET
    CARGO_BUILD_TARGET=$(uname -m)-unknown-linux-gnu
    build=(zigbuild --target "$CARGO_BUILD_TARGET.$GLIBC")
    # With zigbuild, cargo starts build scripts through its runner, too, which is to start them as they are.
    export VKGDR_CUDA_DRIVER=real
    cc=(python3 -m ziglang cc -target "$(uname -m)-linux-gnu.$GLIBC" -s)
fi
cargo "${build[@]}" "${quiet[@]}" --locked --profile "$profile" --package simcuda --package vklayer --package vkgdr-sim \
    --lib --bins "${@:2}"

# Renamed into place: a running program may have the old file mapped.
place() { # FILE DESTINATION
    cmp -s "$1" "$2" && return
    cp "$1" "$2.$$"
    mv -f "$2.$$" "$2"
}
mkdir -p "$sim"/{bin,vklayers}
built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}${profile/#dev/debug}
place "$built/libsimcuda.so" "$sim/libcuda.so.1"
if [ -z "${GLIBC:-}" ]; then
    ln -sfn libcuda.so.1 "$sim/libcuda.so"
else
    "${cc[@]}" -shared -Wl,-soname,libcuda.so -Wl,--no-as-needed -o "$sim/libcuda.so" -x c /dev/null -x none "$sim/libcuda.so.1"
fi
place "$built/vkgdr-sim" "$sim/vkgdr-sim"
# Their symbols have versions, as those of NVIDIA's have, or libraries that are linked against them would not load.
shared() { # NAME MAJOR SYMBOLS FOLDER
    local library=$1.so.$2 newer
    [ -e "$sim/$library" ] && newer=$(find "$4" scripts/sim.sh -newer "$sim/$library") && [ -z "$newer" ] && return
    printf '%s { global: %s local: *; };\n' "$library" "$3" >"$sim/$library.map"
    "${cc[@]}" -O2 -Wall -Wextra -shared -fPIC -fvisibility=hidden -DMAJOR="$2" -Wl,-soname,"$library" \
        -Wl,--version-script="$sim/$library.map" -o "$sim/$library.$$" "$4"/*.c -ldl -lpthread
    mv -f "$sim/$library.$$" "$sim/$library"
    rm "$sim/$library.map"
}
for major in 12 13; do
    shared libnvJitLink "$major" '*nvJitLink*;' sim/nvjitlink
    shared libcudart "$major" 'cuda*; __cuda*; simcudart_not_simulated;' sim/cudart
done
place sim/cli/nvcc "$sim/bin/nvcc"
# The driver recognises this library by the name of its member, which is empty.
if [ ! -e "$sim/lib64/libcudadevrt.a" ]; then
    folder=$(mktemp -d)
    : >"$folder/cuda_device_runtime.o"
    ar rcD "$folder/libcudadevrt.a" "$folder/cuda_device_runtime.o"
    mkdir -p "$sim/lib64"
    place "$folder/libcudadevrt.a" "$sim/lib64/libcudadevrt.a"
    rm -r "$folder"
fi
place "$built/libvklayer.so" "$sim/vklayers/libvklayer.so"
for json in sim/vulkan/*.json; do
    layer=${json##*_}
    mkdir -p "$sim/vklayers/${layer%.json}"
    place "$json" "$sim/vklayers/${layer%.json}/${json##*/}"
done
