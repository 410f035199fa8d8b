#!/usr/bin/env bash
# Builds the simulated CUDA driver, the Vulkan test layers and vkgdr-sim:
#
#     $VKGDR_SIM_DIR/vkgdr-sim                      starts programs; finds the other files beside itself
#     $VKGDR_SIM_DIR/libcuda.so.1, libcuda.so       the driver, under both names that programs look for
#     $VKGDR_SIM_DIR/bin/nvcc                       compiles to PTX, which the driver executes, if a cubin is requested
#     $VKGDR_SIM_DIR/vklayers/libvklayer.so         the Vulkan layers
#     $VKGDR_SIM_DIR/vklayers/{faults,…}/           their manifests, one folder each
#
# An argument names the cargo profile; the default is "release".
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
profile=${1:-release}

# The first build takes a minute, so that cargo shows its progress; later builds are silent.
quiet=()
[ -e "$VKGDR_SIM_DIR/libcuda.so.1" ] && quiet=(--quiet)
cargo build "${quiet[@]}" --locked --profile "$profile" --package simcuda --package vklayer \
    --package vkgdr-sim

# Renamed into place: a running program may have the old file mapped.
place() { # FILE DESTINATION
    cmp -s "$1" "$2" && return
    cp "$1" "$2.$$"
    mv -f "$2.$$" "$2"
}
mkdir -p "$VKGDR_SIM_DIR"/{bin,vklayers}
built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}${profile/#dev/debug}
place "$built/libsimcuda.so" "$VKGDR_SIM_DIR/libcuda.so.1"
ln -sfn libcuda.so.1 "$VKGDR_SIM_DIR/libcuda.so"
place "$built/vkgdr-sim" "$VKGDR_SIM_DIR/vkgdr-sim"
place sim/cli/nvcc "$VKGDR_SIM_DIR/bin/nvcc"
place "$built/libvklayer.so" "$VKGDR_SIM_DIR/vklayers/libvklayer.so"
for json in sim/vulkan/*.json; do
    layer=${json##*_}
    mkdir -p "$VKGDR_SIM_DIR/vklayers/${layer%.json}"
    place "$json" "$VKGDR_SIM_DIR/vklayers/${layer%.json}/${json##*/}"
done
