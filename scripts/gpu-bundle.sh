#!/usr/bin/env bash
# Packs the tests and benches into one folder of less than 40 MiB (BUNDLE, default dist/gpu-bundle), for a machine with an NVIDIA
# GPU and driver but without Rust, internet access or a Vulkan loader. Usage there:
#
#     gpu-bundle/run.sh OUTPUT-FOLDER                what fits into 9 minutes, most benches in quick mode
#     gpu-bundle/run.sh OUTPUT-FOLDER facts bench    the benches, in full (run.sh documents more)
#
# The tests are a nextest archive (tests.tar.zst), all other binaries are in programs.tar.gz; run.sh unpacks both. The GPU machine
# needs a glibc at least as new as this machine's. The Python tests use its Python if that is 3.11 or newer and has numpy; their
# other requirements are packed as wheels. `make gpu-bundle` runs this.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2 && exit 1; }
target=$(realpath -m "${CARGO_TARGET_DIR:-target}") bundle=$(realpath -m "${BUNDLE:-dist/gpu-bundle}")
tools=$target/python/tools/bin new=$target/gpu-bundle.new programs=$target/gpu-bundle.programs
# The last version that the oldest supported Rust compiles.
nextest=cargo-nextest@0.9.114
# The loader, vulkaninfo and the validation layer, then those libraries of vulkaninfo and NVIDIA's Vulkan driver that are missing
# on a machine without a desktop.
packages=(libvulkan1 vulkan-tools vulkan-validationlayers libx11-6 libxext6 libxcb1 libxau6 libxdmcp6 libbsd0 libmd0
    libwayland-client0 libffi8 libglvnd0 libegl1 libglx0 libgl1 libopengl0 libgles2)

# Nothing but a bundle is replaced. It is recognised by files that no folder of sources has, unlike run.sh.
[[ $PWD/ != "$bundle"/* && $bundle != "$(realpath -m "${HOME:-/}")" ]] || die "$bundle would be replaced; name a separate folder by BUNDLE="
if [ -e "$bundle" ] && { [ ! -f "$bundle/bundle.txt" ] || [ ! -f "$bundle/tests.tar.zst" ]; }; then
    rmdir "$bundle" 2>/dev/null || die "$bundle exists and is not a bundle; remove it or name another with BUNDLE="
fi
command -v apt-get dpkg-deb >/dev/null || die 'the bundle contains Debian packages: make it on Debian or Ubuntu'
rm -rf "$new" "$programs"
mkdir -p "$new" "$programs"/{bench,bin,examples,layers,lib,python,sim,workspace}
if ! command -v cargo-nextest >/dev/null; then
    say "building $nextest, the test runner (takes minutes, once)"
    # Without the part that updates the program.
    cargo install --quiet --locked "$nextest" --no-default-features --features default-no-update
fi

say 'building the tests, examples and benches (profile "bundle"; minutes)'
# Optimising across crates would double the time.
export VKGDR_SIM_DIR=$programs/sim CARGO_PROFILE_BUNDLE_LTO=off
sim/build.sh bundle
# Without the tests of the C library and of the command, which need compilers, and those of the simulator.
cargo nextest archive --locked --workspace --exclude vkgdr-c --exclude vkgdr-cli --exclude vkgdr-python --exclude benches \
    --cargo-profile bundle --zstd-level 19 --archive-file "$new/tests.tar.zst"
executables() { # KIND CARGO-COMMAND...
    cargo "${@:2}" --locked --profile bundle --message-format json-render-diagnostics | python3 -c '
import json, sys
for line in filter(lambda line: line.startswith("{"), sys.stdin):
    message = json.loads(line)
    if message.get("executable") and message["target"]["kind"] == sys.argv[1:]:
        print(message["executable"])' "$1"
}
executables example build --package examples --examples | xargs -d '\n' cp -t "$programs/examples"
executables bin build --package benches | xargs -d '\n' cp -t "$programs/bench"
# The bench c_calls loads the C library from its own folder.
cp "$target/bundle/deps/libvkgdr_c.so" "$programs/bench"
cp "$(command -v cargo-nextest)" "$programs/bin"
strip "$programs/bin/cargo-nextest" 2>/dev/null || true

say 'the command, and the clients in C and C++'
cargo build --quiet --locked --profile bundle --package vkgdr-c --package vkgdr-cli
mkdir -p "$programs/c" "$programs/workspace/ffi/c/tests/fixtures/client"
cp "$target/bundle/vkgdr" "$programs/bin"
cp "$target/bundle/libvkgdr_c.so" "$programs/lib/libvkgdr.so.1"
fixtures=ffi/c/tests/fixtures
# They find examples/ring_echo.ptx relative to their sources' folder.
client() { # NAME COMPILER [ARGUMENT...]
    "${@:2}" -O1 -pthread -D_POSIX_C_SOURCE=200809L -DEXPECTED_VERSION="\"$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)\"" \
        -Iffi/c/include -I$fixtures/common "$programs/lib/libvkgdr.so.1" -ldl -o "$programs/c/$1"
}
client client cc -std=c99 $fixtures/common/*.c $fixtures/client/*.c
client layer c++ -std=c++17 $fixtures/layer.cpp

say "the package's wheel, and those of pytest"
"$tools/nox" --session build_wheel
cp "$target"/python/wheel/*.whl "$programs/python"
grep -E '^(iniconfig|packaging|pluggy|Pygments|pytest|pytest-timeout)==' ffi/python/tests/requirements.txt | xargs -d '\n' \
    "$tools/uv" run --no-project --with pip python -m pip download --quiet --no-deps --only-binary :all: --dest "$programs/python"

say 'fetching the Vulkan loader and tools (Debian packages)'
cache=$target/gpu-bundle.debs unpacked=$target/gpu-bundle.unpacked
rm -rf "$unpacked"
mkdir -p "$cache"
for package in "${packages[@]}"; do
    compgen -G "$cache/${package}_*" >/dev/null || (cd "$cache" && apt-get -qq -o "APT::Sandbox::User=$(id -un)" download "$package") ||
        die "$package could not be fetched; are the package lists present (sudo apt-get update)?"
done
for file in "$cache"/*; do dpkg-deb --extract "$file" "$unpacked"; done
cp "$unpacked/usr/bin/vulkaninfo" "$programs/bin"
# Under their sonames, the names that programs link to.
find "$unpacked" -regex '.*/lib[^/]*\.so\.[0-9]+' -exec cp -L -t "$programs/lib" {} +
find "$unpacked" -name libVkLayer_khronos_validation.so -exec cp -t "$programs/layers" {} +
[ -e "$programs/lib/libvulkan.so.1" ] || die "the packages in $cache have no Vulkan loader; remove them and try again"
sed -E 's|("library_path": *")[^"]*"|\1./libVkLayer_khronos_validation.so"|' \
    "$unpacked/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json" >"$programs/layers/VkLayer_khronos_validation.json"
grep -q '"./libVkLayer' "$programs/layers/VkLayer_khronos_validation.json" || die 'the validation layer names no library'

# The files that tests and examples read. nextest starts each test in its package's folder, relative to which they are found.
cp --parents Cargo.toml README.md .cargo/config.toml .config/nextest.toml "$programs/workspace"
find examples sim/run sim/test-layers.sh tests cli/src ffi/python/tests ffi/python/pyproject.toml -type f ! -name '*.rs' \
    ! -name '*.pyc' ! -path 'tests/gpu/*' -exec cp --parents -t "$programs/workspace" {} +
cp tests/gpu/*.sh "$new"
tar -C "$programs" --owner=0 --group=0 -I 'gzip -9' -cf "$new/programs.tar.gz" .
cat >"$new/bundle.txt" <<TEXT
vkgdr GPU bundle
commit   $(git describe --always --dirty 2>/dev/null || echo unknown)
made     $(date -u +%Y-%m-%dT%H:%MZ)
rustc    $(rustc --version)
nextest  $(cargo nextest --version | head -n 1)
glibc    $(getconf GNU_LIBC_VERSION | cut -d' ' -f2) or newer needed
packages $(cd "$cache" && echo *)
TEXT
mib=$(($(du --bytes --summarize "$new" | cut -f1) >> 20))
[ $mib -lt 40 ] || die "the bundle is $mib MiB; the limit is 40 MiB"
rm -rf "$bundle" "$programs" "$unpacked"
mkdir -p "$(dirname "$bundle")"
mv "$new" "$bundle"
say "$bundle: $mib MiB. On the GPU machine: run.sh OUTPUT-FOLDER"
