# Sourced by run.sh, which sets $here and $scratch: ends it with a clear message where the machine cannot start the bundle's
# programs, and makes paths of the environment absolute, since the stages run in another folder.
# shellcheck shell=bash disable=SC2154 # set by run.sh

# Prints a list of paths with colons in between, relative ones from this folder. Links stay as they are: a virtual
# environment's interpreter is one.
absolute() { # LIST
    local path list=
    local -a paths
    IFS=: read -ra paths <<<"$1"
    for path in "${paths[@]}"; do
        [[ -z $path || $path == /* ]] || path=$PWD/$path
        list+=:$path
    done
    printf '%s\n' "${list#:}"
}

# A name without a slash is looked up in PATH.
if [[ ${PYTHON-} == */* ]]; then
    PYTHON=$(absolute "$PYTHON")
    export PYTHON
fi

printf '#!/bin/sh\n' >"$scratch/try" && chmod +x "$scratch/try"
"$scratch/try" 2>/dev/null ||
    die "programs cannot be started in $scratch (mounted with noexec?); set TMPDIR to another folder"

# The version that the bundle was made with is sufficient, not always necessary: with an older one, the linker decides.
needed=$(awk '$1 == "glibc" { print $2 }' "$here/bundle.txt")
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ print $2 }')
if [ "$(printf '%s\n' "$needed" "${glibc:-0}" | sort -V | head -n 1)" != "$needed" ]; then
    [ -n "$glibc" ] || die "this machine has no glibc; the bundle needs glibc $needed or newer"
    missing=$(ldd "$scratch"/{bin,examples,bench,lib}/* 2>&1 | grep -oE '\bGLIBC_[0-9.]+' | sort -uV | tail -n 1)
    [ -z "$missing" ] ||
        die "this machine's glibc $glibc is too old: the bundle needs ${missing#GLIBC_}"
    echo "The bundle was made with glibc $needed; this machine's is $glibc, which its programs accept."
fi
