#!/usr/bin/env bash
# Builds the simulated CUDA driver, the Vulkan test layers and vkgdr-sim:
#
#     sim/build.sh [PROFILE]
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
# VKGDR_SIM_DIR is "sim" in cargo's target folder by default, which is sim/target or CARGO_TARGET_DIR; relative paths are
# those of this folder. PROFILE is "release". GLIBC=2.28 links with zig (PyPI's ziglang and cargo-zigbuild) for that
# glibc or a newer one, and leaves no links, which wheels cannot have: then libcuda.so is a library that loads libcuda.so.1.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"
profile=${1:-release}
target=${CARGO_TARGET_DIR:-target}
sim=${VKGDR_SIM_DIR:-$target/sim}
# Neither wheels nor installations take the folder "cache". It is on the file system of the files that are renamed.
temporary=$sim/cache/build.sh.$$
trap 'rm -rf "$temporary"' EXIT
mkdir -p "$sim"/{bin,lib64,vklayers} "$temporary"

build=(build)
# As make and configure scripts take it: words.
read -ra cc <<<"${CC:-cc}"
if [ -n "${GLIBC:-}" ]; then
    export CARGO_BUILD_TARGET
    CARGO_BUILD_TARGET=$(uname -m)-unknown-linux-gnu
    build=(zigbuild --target "$CARGO_BUILD_TARGET.$GLIBC")
    # With zigbuild, cargo starts build scripts through its runner, too, which is to start them as they are.
    export VKGDR_CUDA_DRIVER=real
    cc=(python3 -m ziglang cc -target "$(uname -m)-linux-gnu.$GLIBC" -s)
fi
built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}${profile/#dev/debug}
# A first build shows cargo's progress; later ones are silent.
quiet=(--quiet)
if [ ! -e "$built/libsimcuda.so" ]; then
    quiet=()
    echo '==> building the simulated GPU (half a minute or more, once)'
fi
cargo "${build[@]}" "${quiet[@]}" --locked --profile "$profile" --package simcuda --package vklayer --package vkgdr-sim \
    --lib --bins

# Renamed into place: a running program may have the old file mapped.
placed=:libcuda.so:
place() { # FILE NAME
    placed+=$2:
    cmp -s "$1" "$sim/$2" 2>/dev/null && return
    cp "$1" "$temporary/file"
    mv -f "$temporary/file" "$sim/$2"
}
place "$built/libsimcuda.so" libcuda.so.1
if [ -z "${GLIBC:-}" ]; then
    ln -s libcuda.so.1 "$temporary/libcuda.so"
else
    "${cc[@]}" -shared -Wl,-soname,libcuda.so -Wl,--no-as-needed -o "$temporary/libcuda.so" -x c /dev/null \
        -x none "$sim/libcuda.so.1"
fi
mv -f "$temporary/libcuda.so" "$sim/libcuda.so"
place "$built/vkgdr-sim" vkgdr-sim
# Their symbols have versions, as those of NVIDIA's have, or libraries that are linked against them would not load.
shared() { # NAME MAJOR SYMBOLS FOLDER
    local library=$1.so.$2 newer
    placed+=$library:
    [ -e "$sim/$library" ] && [ -z "$changed" ] && newer=$(find "$4" build.sh -newer "$sim/$library") &&
        [ -z "$newer" ] && return
    printf '%s { global: %s local: *; };\n' "$library" "$3" >"$temporary/map"
    "${cc[@]}" -O2 -Wall -Wextra -shared -fPIC -fvisibility=hidden -DMAJOR="$2" -Wl,-soname,"$library" \
        -Wl,--version-script="$temporary/map" -o "$temporary/$library" "$4"/*.c -ldl -lpthread
    mv -f "$temporary/$library" "$sim/$library"
}
# Whether another compiler, or the same for another glibc, made them.
changed=yes
[ "$(cat "$sim/cache/compiler" 2>/dev/null)" != "${cc[*]}" ] || changed=
for major in 12 13; do
    shared libnvJitLink "$major" '*nvJitLink*;' nvjitlink
    shared libcudart "$major" 'cuda*; __cuda*;' cudart
done
printf '%s\n' "${cc[*]}" >"$sim/cache/compiler"
place cli/nvcc bin/nvcc
# The driver recognises this library by the name of its member, which is empty.
: >"$temporary/cuda_device_runtime.o"
ar rcD "$temporary/libcudadevrt.a" "$temporary/cuda_device_runtime.o"
place "$temporary/libcudadevrt.a" lib64/libcudadevrt.a
place "$built/libvklayer.so" vklayers/libvklayer.so
for json in vulkan/*.json; do
    layer=${json##*_}
    mkdir -p "$sim/vklayers/${layer%.json}"
    place "$json" "vklayers/${layer%.json}/${json##*/}"
done
# What an older version left, in cargo's folder only: another one may hold files of the user's.
if [ "$sim" -ef "$target/sim" ]; then
    find "$sim" -path "$sim/cache" -prune -o ! -type d -print0 | while IFS= read -r -d '' file; do
        [[ $placed == *":${file#"$sim/"}:"* ]] || rm -f -- "$file"
    done
fi
