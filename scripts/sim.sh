#!/usr/bin/env bash
# Builds the simulated CUDA driver, the test layers and what starts programs with them, and lays them out:
#
#     $VKGDR_SIM_DIR/vkgdr-sim                      finds the others beside itself
#     $VKGDR_SIM_DIR/libcuda.so.1, libcuda.so       under both names that programs look for
#     $VKGDR_SIM_DIR/bin/nvcc                       makes PTX, which the driver runs, where a cubin is asked for
#     $VKGDR_SIM_DIR/vklayers/libvklayer.so         the Vulkan layers
#     $VKGDR_SIM_DIR/vklayers/{faults,…}/           their manifests, each in a folder of its own
#
# An argument names the cargo profile; the default is "release".
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
profile=${1:-release}

# The first build takes a minute, so cargo shows its progress; later ones are silent.
quiet=()
[ -e "$VKGDR_SIM_DIR/libcuda.so.1" ] && quiet=(--quiet)
cargo build "${quiet[@]}" --locked --profile "$profile" --package simcuda --package vklayer \
    --package vkgdr-sim

# Renamed into place, since a running program may have the old file mapped.
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
