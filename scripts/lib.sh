# Sourced by the scripts beside it: where things are, and how they speak.
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

# Decided once for a whole run, so that no test can decide differently (sim/run keeps it).
choose_driver() {
    VKGDR_CUDA_DRIVER=$(sim/run --driver) || exit 1
    export VKGDR_CUDA_DRIVER
    case $VKGDR_CUDA_DRIVER in
        real) say 'CUDA driver: the real one' ;;
        sim) say 'CUDA driver: simulated, on lavapipe (no GPU, or VKGDR_CUDA_DRIVER=sim)' ;;
    esac
}

# Runs a command in a subshell that ends at its first error, and puts the exit status in $status. What is run in an `if` or
# before `||` goes on after errors instead, whatever `set -e` says, and only its last command counts.
attempt() { # COMMAND...
    set +e
    (
        set -e
        "$@"
    )
    # shellcheck disable=SC2034 # for the caller
    status=$?
    set -e
}

has() { command -v "$1" >/dev/null 2>&1; }

# ldconfig is outside an ordinary user's PATH on Debian.
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
        # Only what was asked for.
        [ -z "${PYTHON:-}" ] || return 1
    done
    return 1
}

# Changes with everything that the Python package is built from.
package_key() {
    find Cargo.{toml,lock} src ffi/python/{src,vkgdr,Cargo.toml,pyproject.toml,README.md} -type f \
        ! -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

# Writes the lines of the test requirements that name these packages.
python_needs() { # FILE PACKAGE...
    local file=$1 package
    shift
    for package in "$@"; do
        grep "^$package==" ffi/python/tests/requirements.txt || die "tests/requirements.txt does not name $package"
    done >"$file"
}
