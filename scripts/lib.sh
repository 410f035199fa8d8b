# Sourced by the scripts beside it: where things are, and how they speak.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$root/$target ;; esac
export CARGO_TARGET_DIR=$target
export VKGDR_SIM_DIR=${VKGDR_SIM_DIR:-$target/sim}

say() { printf '==> %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Decided once for a whole run, so that no test can decide differently (tests/run keeps it).
choose_driver() {
    VKGDR_CUDA_DRIVER=$(tests/run --driver) || exit 1
    export VKGDR_CUDA_DRIVER
    case $VKGDR_CUDA_DRIVER in
        real) say 'CUDA driver: the real one' ;;
        sim) say 'CUDA driver: simulated, on lavapipe (no GPU, or VKGDR_CUDA_DRIVER=sim)' ;;
    esac
}

has() { command -v "$1" >/dev/null 2>&1; }

# ldconfig is outside an ordinary user's PATH on Debian.
has_library() { [[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null) == *"$1 "* ]]; }

has_file() { compgen -G "$1" >/dev/null; }
