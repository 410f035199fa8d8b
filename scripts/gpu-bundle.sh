#!/usr/bin/env bash
# Packs the tests and benches into one folder of less than 40 MiB ($BUNDLE, default dist/gpu-bundle), for a machine with
# an NVIDIA GPU and driver but without Rust, internet access or a Vulkan loader. Usage there:
#
#     gpu-bundle/run.sh OUTPUT-FOLDER                all tests, and the benches in quick mode
#     gpu-bundle/run.sh OUTPUT-FOLDER facts bench    the benches alone, in full (run.sh documents more)
#
# The tests are a nextest archive (tests.tar.zst), all other binaries are in programs.tar.gz; run.sh unpacks both. The
# GPU machine needs a glibc at least as new as this machine's. The Python tests use its Python if that is 3.11 or newer
# and has numpy; their other requirements are packed as wheels.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

bundle=${BUNDLE:-dist/gpu-bundle}
limit_mib=40
# The loader, vulkaninfo and the validation layer, then those libraries of vulkaninfo and NVIDIA's Vulkan driver that
# are missing on a machine without a desktop.
tools=(libvulkan1 vulkan-tools vulkan-validationlayers)
libraries=(
    libx11-6 libxext6 libxcb1 libxau6 libxdmcp6 libbsd0 libmd0 libwayland-client0 libffi8
    libglvnd0 libegl1 libglx0 libgl1 libopengl0 libgles2
)

case $bundle in
    / | . | .. | "$root" | "$HOME") die "BUNDLE=$bundle would be replaced; name a separate folder" ;;
esac
if [ -e "$bundle" ] && [ ! -e "$bundle/run.sh" ] && [ -n "$(ls -A "$bundle")" ]; then
    die "$bundle exists and is not a bundle; remove it or name another folder with BUNDLE="
fi
if ! has apt-get || ! has dpkg-deb; then
    die 'the bundle contains Debian packages: make it on Debian or Ubuntu'
fi

if ! nextest=$(command -v cargo-nextest); then
    nextest=$target/tools/bin/cargo-nextest
    if [ ! -x "$nextest" ]; then
        say 'building cargo-nextest (takes minutes, once)'
        cargo install --quiet --locked --root "$target/tools" cargo-nextest
    fi
fi

# Prints the executables of one kind that a cargo command builds, one path a line. cargo's JSON has one message a line.
executables() { # KIND COMMAND...
    local kind=$1
    shift
    "$@" --message-format json-render-diagnostics |
        sed -n "/\"kind\":\[\"$kind\"\]/s/.*\"executable\":\"\([^\"]*\)\".*/\1/p"
}

new=$target/gpu-bundle.new
programs=$target/gpu-bundle.programs
rm -rf "$new" "$programs"
mkdir -p "$new" "$programs"/{bench,bin,examples,layers,lib,python,sim,workspace}

say 'building the tests, examples and benches (profile "bundle")'
VKGDR_SIM_DIR=$programs/sim scripts/sim.sh bundle
# Without the C library's tests, which need compilers.
"$nextest" nextest archive --workspace --exclude vkgdr-c --exclude vkgdr-python --locked --cargo-profile bundle --zstd-level 19 \
    --archive-file "$new/tests.tar.zst"
executables example cargo build --locked --profile bundle --package examples --examples |
    while IFS= read -r file; do cp "$file" "$programs/examples/"; done
# cargo appends a hash to a bench's file name.
executables bench cargo bench --locked --profile bundle --workspace --no-run --bench '*' |
    while IFS= read -r file; do
        name=${file##*/}
        cp "$file" "$programs/bench/${name%-*}"
    done
# The bench c_calls loads the C library from its own folder.
cp "$target/bundle/deps/libvkgdr_c.so" "$programs/bench/"
cp "$nextest" "$programs/bin/cargo-nextest"
if has strip; then strip "$programs/bin/cargo-nextest"; fi

scripts/wheel.sh --build-only
cp dist/vkgdr-*.whl "$programs/python/"
say 'fetching pytest (wheels)'
python_needs "$programs/requirements.txt" iniconfig packaging pluggy Pygments pytest pytest-timeout
"$python_target/venv/bin/python" -m pip download "${pip_options[@]}" --no-deps --only-binary :all: \
    --requirement "$programs/requirements.txt" --dest "$programs/python"
rm "$programs/requirements.txt"

say 'fetching the Vulkan loader and tools (Debian packages)'
cache=$target/gpu-bundle.debs
unpacked=$target/gpu-bundle.unpacked
mkdir -p "$cache"
rm -rf "$unpacked"
for package in "${tools[@]}" "${libraries[@]}"; do
    compgen -G "$cache/${package}_*.deb" >/dev/null && continue
    (cd "$cache" && apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package") ||
        die "apt-get download $package failed; are the package lists present (sudo apt-get update)?"
done
for deb in "$cache"/*.deb; do
    dpkg-deb --extract "$deb" "$unpacked"
done
has_file "$unpacked/usr/lib/*/libvulkan.so.1" || die "the packages in $cache have no Vulkan loader; remove them and try again"
cp "$unpacked/usr/bin/vulkaninfo" "$programs/bin/"
# Copied under their sonames, the names that programs link to.
find "$unpacked" -name 'lib*.so.[0-9]*' | grep -E '\.so\.[0-9]+$' |
    while IFS= read -r file; do cp -L "$file" "$programs/lib/"; done
find "$unpacked" -name libVkLayer_khronos_validation.so -exec cp {} "$programs/layers/" \;
sed 's|"library_path": *"[^"]*"|"library_path": "./libVkLayer_khronos_validation.so"|' \
    "$unpacked/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json" \
    >"$programs/layers/VkLayer_khronos_validation.json"

# nextest starts each test in its package's folder; tests and examples find their files relative to it.
cp --parents Cargo.toml .cargo/config.toml .config/nextest.toml "$programs/workspace/"
find examples sim tests benches ffi/python/{tests,pyproject.toml} -type f ! -name '*.rs' ! -name '*.pyc' \
    ! -path 'tests/gpu/*' ! -path 'benches/results/*' -exec cp --parents {} "$programs/workspace/" \;
cp tests/gpu/*.sh "$new/"
tar -C "$programs" --owner=0 --group=0 -cf - . | gzip -9 >"$new/programs.tar.gz"
{
    printf 'vkgdr GPU bundle\n'
    printf 'commit   %s\n' "$(git describe --always --dirty 2>/dev/null || echo unknown)"
    printf 'made     %s\n' "$(date -u +%Y-%m-%dT%H:%MZ)"
    printf 'rustc    %s\n' "$(rustc --version)"
    printf 'nextest  %s\n' "$("$nextest" --version | sed -n 1p)"
    printf 'glibc    %s or newer needed\n' "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)"
    printf 'packages %s\n' "$(cd "$cache" && echo *.deb)"
} >"$new/bundle.txt"

bytes=$(du -sb "$new" | cut -f1)
[ "$bytes" -lt $((limit_mib << 20)) ] || die "the bundle is $((bytes >> 20)) MiB; the limit is $limit_mib MiB"
rm -rf "$bundle"
mkdir -p "$(dirname "$bundle")"
mv "$new" "$bundle"
rm -rf "$unpacked" "$programs"
say "$bundle: $(((bytes + (1 << 20) - 1) >> 20)) MiB. On the GPU machine: run.sh OUTPUT-FOLDER"
