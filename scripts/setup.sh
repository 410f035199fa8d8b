#!/usr/bin/env bash
# Installs the requirements of a make target: scripts/setup.sh NEED...
#
# Looks for files and programs, so that a Vulkan SDK or another distribution will do. Missing packages are installed if
# this is root on Debian or Ubuntu. Rust comes from the distribution's package rustup, else from the official installer, run
# at a terminal or with INSTALL_RUST=1. All that this may not install itself is printed in one message, before anything is.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
PATH=$PATH:${CARGO_HOME:-${HOME-}/.cargo}/bin:/usr/sbin:/sbin
rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
installer="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal"
tools=${CARGO_TARGET_DIR:-target}/python/tools
say() { printf '==> %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2 && exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }
any() { for file in "$@"; do [ ! -e "$file" ] || return 0; done && return 1; }
# A fresh image has no package lists, but a release. VKGDR_TEST_OS_RELEASE is another file that names one.
# shellcheck source=/dev/null
release=$( (. "${VKGDR_TEST_OS_RELEASE:-/etc/os-release}" && echo "$ID-$VERSION_ID") 2>/dev/null || true)
has_rustup_package() {
    [[ $release == @(debian-1[3-9]|ubuntu-2[4-9].*) ]] || grep -q 'Candidate: [0-9]' <(apt-cache policy rustup 2>/dev/null)
}
python() { "${PYTHON:-python3}" "$@"; }
apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@"; }

need() { # DESCRIPTION PACKAGES TEST...: notes the packages unless the test succeeds
    "${@:3}" >/dev/null 2>&1 && return
    absent+=("$1")
    read -ra words <<<"$2" && packages+=("${words[@]}")
}

check() { # NEED...
    packages=() absent=()
    local asan headers layers=({/usr{,/local}/share,/etc,"${VULKAN_SDK:-}/share"}/vulkan/explicit_layer.d/VkLayer_khronos_validation.json)
    for item in "$@"; do
        case $item in
            rust)
                need 'a C compiler, which Rust links with (cc)' 'gcc libc6-dev' has cc
                if has cargo; then :; elif has_rustup_package; then need 'Rust (rustup)' rustup has rustup; else
                    need "curl, for Rust's installer" 'curl ca-certificates' has curl
                fi
                ;;
            vulkan) need 'the Vulkan loader' libvulkan1 grep -q 'libvulkan\.so\.1 ' <(ldconfig -p) ;;
            lavapipe) need "lavapipe, Mesa's CPU Vulkan driver" mesa-vulkan-drivers any /usr/share/vulkan/icd.d/lvp_icd*.json ;;
            validation) need 'the Khronos validation layer' vulkan-validationlayers any "${layers[@]}" ;;
            c)
                need 'a C++ compiler (c++)' g++ has c++
                for tool in cmake pkg-config; do need "$tool" $tool has $tool; done
                ;;
            c-all)
                asan=$(clang -print-resource-dir 2>/dev/null)/lib/linux/libclang_rt.asan-$(uname -m).a || true
                need "clang++ and its sanitizers" 'clang libclang-rt-dev' any "$asan"
                for tool in valgrind patch; do need "$tool" $tool has $tool; done
                ;;
            # Below, with rustup.
            oldest-rust) ;;
            python)
                need 'Python with virtual environments' 'python3 python3-venv' python -c 'import ensurepip, venv'
                headers='import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")'
                need "Python's headers (Python.h)" python3-dev python -c "$headers"
                need 'a C++ compiler, to build pycuda (c++)' g++ has c++
                need 'git, which pre-commit runs' git has git
                ;;
            aarch64)
                need 'a C compiler for AArch64' 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' has aarch64-linux-gnu-gcc
                need 'an emulator of AArch64 programs' qemu-user has qemu-aarch64
                ;;
            *) die "scripts/setup.sh: unknown need '$item'" ;;
        esac
    done
    [ ${#absent[@]} -eq 0 ] || printf 'missing: %s\n' "${absent[@]}" >&2
}
check "$@"
commands=() hint=
if [ ${#absent[@]} -gt 0 ] && { ! has apt-get || [ "$(id -u)" -ne 0 ]; }; then
    if has apt-get; then commands=("sudo apt-get update && sudo apt-get install -y ${packages[*]}"); else
        commands=("# install these by your package manager")
    fi
fi
if [[ " $* " == *' rust '* ]] && ! has cargo && ! has_rustup_package && [ ! -t 0 ] && [ "${INSTALL_RUST:-}" != 1 ]; then
    echo 'missing: Rust (cargo)' >&2
    [ ${#absent[@]} -eq 0 ] || [ ${#commands[@]} -gt 0 ] || commands=("apt-get update && apt-get install -y ${packages[*]}")
    commands+=("$installer") hint=', or set INSTALL_RUST=1 for the last'
fi
[ ${#commands[@]} -eq 0 ] || die "run this, then try again$hint:$(printf '\n    %s' "${commands[@]}")"
if [ ${#absent[@]} -gt 0 ]; then
    say "installing Debian packages: ${packages[*]}"
    install=(install --yes --no-install-recommends "${packages[@]}")
    # The first attempt fails without package lists, or with stale ones.
    apt "${install[@]}" >/dev/null 2>&1 || { apt update && apt "${install[@]}" >/dev/null; } || die 'apt-get failed'
    check "$@"
    [ ${#absent[@]} -eq 0 ] || die 'still missing after the packages were installed'
fi
if [[ " $* " == *' rust '* ]]; then
    if ! has cargo; then
        say 'installing Rust into the home folder by its official installer, https://sh.rustup.rs (a minute)'
        bash -o pipefail -c "$installer" || die 'the installer of Rust failed'
    elif ! { cargo --version || rustup default; } >/dev/null 2>&1; then
        # The package rustup brings a cargo that does nothing until there is a toolchain.
        say 'installing the stable Rust toolchain by rustup (a minute)'
        rustup toolchain install stable --profile minimal && rustup default stable
    fi
    version=$(cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$rust" "$version" | sort -V | head -n 1)" = "$rust" ] ||
        die "cargo $version is older than $rust: run 'rustup update', or remove it and run this again"
fi
if [[ " $* " == *' oldest-rust '* ]] && ! cargo "+$rust.0" --version >/dev/null 2>&1; then
    say "installing Rust $rust, the oldest that is supported, by rustup (a minute)"
    rustup toolchain install "$rust.0" --profile minimal || die "rustup could not install Rust $rust"
fi
[[ " $* " == *' python '* ]] || exit 0
made_with=$(python -VV && cat scripts/requirements/tools.txt)
if [ "$(cat "$tools/made-with" 2>/dev/null)" != "$made_with" ]; then
    say 'making an environment with nox, uv and pre-commit (some downloads, once)'
    python -m venv --clear "$tools"
    "$tools/bin/python" -m pip install --quiet --disable-pip-version-check --requirement scripts/requirements/tools.txt
    printf '%s\n' "$made_with" >"$tools/made-with"
fi
