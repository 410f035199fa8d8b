# Sourced by the other scripts: paths, messages, and functions to find programs.
# shellcheck shell=bash
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

target=${CARGO_TARGET_DIR:-target}
case $target in /*) ;; *) target=$root/$target ;; esac
export CARGO_TARGET_DIR=$target
export VKGDR_SIM_DIR=${VKGDR_SIM_DIR:-$target/sim}
# shellcheck disable=SC2034 # used by the scripts that source this
python_target=$target/python

say() { printf '==> %s\n' "$*"; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# Chooses the CUDA driver once for the whole run; sim/run keeps the choice.
choose_driver() {
    VKGDR_CUDA_DRIVER=$(sim/run --driver) || exit 1
    export VKGDR_CUDA_DRIVER
    case $VKGDR_CUDA_DRIVER in
        real) say 'CUDA driver: the real one' ;;
        sim) say 'CUDA driver: simulated, on lavapipe (no GPU, or VKGDR_CUDA_DRIVER=sim)' ;;
    esac
}

# Runs a command in a subshell that ends at its first error, and stores the exit status in $status. In an `if` or before
# `||`, bash would ignore `set -e` within the command, and only its last status would count.
attempt() { # COMMAND...
    set +e
    (
        set -e
        "$@"
    )
    # shellcheck disable=SC2034 # used by the caller
    status=$?
    set -e
}

has() { command -v "$1" >/dev/null 2>&1; }

# On Debian, ldconfig is not in an ordinary user's PATH.
has_library() { [[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null) == *"$1 "* ]]; }

has_file() { compgen -G "$1" >/dev/null; }

# ---- Python ---------------------------------------------------------------------------------------------------------

# shellcheck disable=SC2034 # used by the scripts that source this
pip_options=(--quiet --disable-pip-version-check --no-input)

# Prints the interpreter: $PYTHON, or the first on PATH that is 3.11 or newer.
find_python() {
    local python
    for python in ${PYTHON:+"$PYTHON"} python3 python3.{14,13,12,11}; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$python"
            return
        fi
        # If PYTHON is set, no other interpreter is tried.
        [ -z "${PYTHON:-}" ] || return 1
    done
    return 1
}

# A hash of all sources of the Python package.
package_key() {
    find Cargo.{toml,lock} src ffi/python/{src,python,Cargo.toml,pyproject.toml,README.md} -type f \
        ! -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

# Writes the lines of the test requirements for these packages to FILE.
python_needs() { # FILE PACKAGE...
    local file=$1 package
    shift
    for package in "$@"; do
        grep "^$package==" ffi/python/tests/requirements.txt || die "tests/requirements.txt does not name $package"
    done >"$file"
}
