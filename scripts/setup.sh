#!/usr/bin/env bash
# Makes sure that the requirements of a make target are installed:
#
#     scripts/setup.sh NEED...      rust vulkan lavapipe validation c python aarch64
#
# Looks for files and programs rather than packages, so that a Vulkan SDK or another distribution will do. Missing
# packages are installed if this runs as root on Debian; otherwise the command to install them is printed.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

has_layer() {
    local dir
    for dir in /usr/share/vulkan /usr/local/share/vulkan /etc/vulkan "${VULKAN_SDK:-/nowhere}/share/vulkan"; do
        has_file "$dir/explicit_layer.d/$1" && return 0
    done
    return 1
}

has_sanitizers() { has_file "$(clang -print-resource-dir)/lib/linux/libclang_rt.asan-$(uname -m).a"; }

# Whether the interpreter of find_python can make virtual environments.
has_venv() { "$(find_python)" -c 'import ensurepip, venv' 2>/dev/null; }

has_python_headers() {
    has_file "$("$(find_python)" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"
}

# Debian's prefix of the interpreter's packages: python3, or python3.11 beside an older python3.
python_package() {
    local python
    if python=$(find_python); then
        case ${python##*/} in python3.*) echo "${python##*/}" ;; *) echo python3 ;; esac
    elif has python3; then
        echo python3.11
    else
        echo python3
    fi
}

packages=()
absent=()
need() { # PACKAGES DESCRIPTION
    read -ra words <<<"$1"
    packages+=("${words[@]}")
    absent+=("$2")
}

check() {
    packages=()
    absent=()
    local item
    for item in "$@"; do
        case $item in
            rust)
                has cargo || die 'cargo is missing. Install Rust from https://rustup.rs, then run this again.'
                has cc || need 'gcc libc6-dev' 'a C compiler, which Rust links with (cc)'
                ;;
            vulkan) has_library libvulkan.so.1 || need libvulkan1 'the Vulkan loader (libvulkan.so.1)' ;;
            lavapipe)
                has_file '/usr/share/vulkan/icd.d/lvp_icd*.json' ||
                    need mesa-vulkan-drivers "lavapipe, Mesa's CPU Vulkan driver (lvp_icd*.json)"
                ;;
            validation)
                has_layer 'VkLayer_khronos_validation.json' ||
                    need vulkan-validationlayers 'the Khronos validation layer (VkLayer_khronos_validation.json)'
                ;;
            c)
                has cc || need 'gcc libc6-dev' 'a C compiler (cc)'
                has c++ || need g++ 'a C++ compiler (c++)'
                has clang++ || need 'clang libclang-rt-dev' 'the other compilers (clang, clang++)'
                ! has clang || has_sanitizers || need libclang-rt-dev "clang's sanitizers (libclang_rt.asan)"
                has cmake || need cmake 'CMake (cmake)'
                has pkg-config || need pkg-config 'pkg-config'
                has valgrind || need valgrind 'Valgrind (valgrind)'
                ;;
            python)
                if [ -n "${PYTHON:-}" ] && ! find_python >/dev/null; then
                    die "PYTHON=$PYTHON is not a Python 3.11 or newer"
                fi
                local package
                package=$(python_package)
                if ! find_python >/dev/null; then
                    need "$package $package-venv $package-dev" 'Python 3.11 or newer (python3)'
                else
                    has_venv || need "$package-venv" "$(find_python)'s virtual environments (its modules venv, ensurepip)"
                    has_python_headers || need "$package-dev" "$(find_python)'s headers (Python.h)"
                fi
                has c++ || need g++ 'a C++ compiler, to build pycuda (c++)'
                ;;
            aarch64)
                has aarch64-linux-gnu-gcc ||
                    need 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' 'a C compiler for AArch64 (aarch64-linux-gnu-gcc)'
                has qemu-aarch64 || need qemu-user 'an emulator of AArch64 programs (qemu-aarch64)'
                ;;
            *) die "scripts/setup.sh: unknown need '$item'" ;;
        esac
    done
}

apt() { # silent unless it fails
    local log
    if ! log=$(DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@" 2>&1); then
        printf '%s\n' "$log" >&2
        return 1
    fi
}

check "$@"
[ ${#absent[@]} -eq 0 ] && exit 0

if ! has apt-get; then
    printf 'missing: %s\n' "${absent[@]}" >&2
    die 'install these with your package manager, then run this again'
fi
if [ "$(id -u)" -ne 0 ]; then
    printf 'missing: %s\n' "${absent[@]}" >&2
    printf 'Run this command, then try again:\n\n    sudo apt-get install %s\n\n' "${packages[*]}" >&2
    exit 1
fi

say "installing Debian packages: ${packages[*]}"
# The first attempt fails on a fresh image, which has no package lists, and on an old one, whose lists are stale.
install=(install --yes --no-install-recommends "${packages[@]}")
apt "${install[@]}" 2>/dev/null || { apt update && apt "${install[@]}"; } ||
    die "apt-get could not install ${packages[*]}"

check "$@"
if [ ${#absent[@]} -gt 0 ]; then
    printf 'missing: %s\n' "${absent[@]}" >&2
    die 'still missing after the packages were installed'
fi
