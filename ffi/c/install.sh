#!/usr/bin/env bash
# Installs the C library and the command vkgdr, or removes them with --uninstall; `make install` and `make uninstall` run it.
#
# From the environment: PREFIX (/usr/local), LIBDIR ($PREFIX/lib), INCLUDEDIR ($PREFIX/include), DESTDIR, a staging folder for
# packagers, and GDRAPI=1: also gdrcopy's names for the library, and its header.
# As root without cargo, and under sudo, it installs an existing build and builds nothing.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LC_ALL=C
umask 022
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
die() { printf 'error: %s\n' "$*" >&2 && exit 1; }
for name in PREFIX LIBDIR INCLUDEDIR DESTDIR; do
    [[ -z ${!name-} || ${!name} == /* ]] || die "$name must begin with a slash, unlike '${!name}'"
    # What shells, pkg-config, CMake or a list of folders would read as something else.
    [[ ${!name-} != *[$'"\'`\\$&|;:\n']* ]] || die "$name has a character that shells, pkg-config or CMake would read as another: '${!name}'"
done
[[ ${GDRAPI:-0} == [01] ]] || die "GDRAPI must be 0 or 1, unlike '$GDRAPI'"
prefix=$(realpath -sm "${PREFIX:-/usr/local}") libdir=$(realpath -sm "${LIBDIR:-${PREFIX:-/usr/local}/lib}")
include=$(realpath -sm "${INCLUDEDIR:-${PREFIX:-/usr/local}/include}") share=${prefix%/}/share
target=${CARGO_TARGET_DIR:-target}
built=$target/${CARGO_BUILD_TARGET:-.}/release texts=$target/vkgdr-texts
value() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$2" | head -n 1; }
version=$(value version Cargo.toml) so=$(value library-version ffi/c/Cargo.toml) gdrapi=$(value gdrapi-version ffi/c/Cargo.toml)

each() { # COMMAND: runs it with the mode, the source and the place of each file; the mode of links is "link"
    local file
    "$1" 755 "$built/vkgdr" "${prefix%/}/bin/vkgdr"
    "$1" 755 "$built/libvkgdr_c.so" "$libdir/libvkgdr.so.$so"
    "$1" link "libvkgdr.so.$so" "$libdir/libvkgdr.so.${so%%.*}"
    "$1" link "libvkgdr.so.${so%%.*}" "$libdir/libvkgdr.so"
    "$1" 644 "$built/libvkgdr_c.a" "$libdir/libvkgdr.a"
    "$1" 644 "$made/vkgdr.pc" "$libdir/pkgconfig/vkgdr.pc"
    for file in vkgdrConfig.cmake vkgdrConfigVersion.cmake; do "$1" 644 "$made/$file" "$libdir/cmake/vkgdr/$file"; done
    for file in ffi/c/include/vkgdr*.h* src/ring/vkgdr_ring.cuh; do "$1" 644 "$file" "$include/${file##*/}"; done
    for file in vkgdr{,-bench{,-alloc,-bw,-latency,-pingpong},-completions,-doctor,-info,-sim}.1; do
        "$1" 644 "$texts/man/$file" "$share/man/man1/$file"
    done
    "$1" 644 "$texts/completions/vkgdr" "$share/bash-completion/completions/vkgdr"
    "$1" 644 "$texts/completions/_vkgdr" "$share/zsh/site-functions/_vkgdr"
    "$1" 644 "$texts/completions/vkgdr.fish" "$share/fish/vendor_completions.d/vkgdr.fish"
    [ "${GDRAPI:-0}" = 1 ] || return 0
    "$1" 755 "$built/libgdrapi.so.2" "$libdir/libgdrapi.so.$gdrapi"
    "$1" link "libgdrapi.so.$gdrapi" "$libdir/libgdrapi.so.2"
    # Linkers do not look for symbols in what a library needs, and programs also load this name: it is the library itself.
    "$1" link "libvkgdr.so.${so%%.*}" "$libdir/libgdrapi.so"
    "$1" 644 "$made/gdrapi.pc" "$libdir/pkgconfig/gdrapi.pc"
    "$1" 644 ffi/c/include/gdrapi.h "$include/gdrapi.h"
}
check() {
    local folder=${DESTDIR-}${3%/*}
    [ "$1" = link ] || [ -r "$2" ] || die "$2 is missing: first run this as a user who has cargo"
    [ ! -d "${DESTDIR-}$3" ] || [ -L "${DESTDIR-}$3" ] || die "${DESTDIR-}$3 is a folder"
    until [ -e "$folder/." ] || [ -e "$folder" ] || [ -L "$folder" ]; do folder=${folder%/*}; done
    [ -d "$folder/." ] && [ -w "$folder/." ] || die "${folder:-/} is not writable: choose another PREFIX, or run this again as root (sudo make ...)"
}
put() {
    if [ "$1" = link ]; then ln -sfT "$2" "${DESTDIR-}$3"; else install -DT -m "$1" "$2" "${DESTDIR-}$3"; fi
    printf '%s\n' "${DESTDIR-}$3"
}
remove() { rm -fv "${DESTDIR-}$3"; }
update() { [ -n "${DESTDIR-}" ] || [ "$(id -u)" -ne 0 ] || PATH=$PATH:/usr/sbin:/sbin ldconfig 2>/dev/null || true; }

made=$(mktemp -d) && trap 'rm -rf "$made"' EXIT
if [ "${1-}" = --uninstall ]; then
    each remove
    rmdir "${DESTDIR-}$libdir/cmake/vkgdr" 2>/dev/null || true
    update && exit
fi
if [ "$(id -u)" -eq 0 ] && { [ "${SUDO_USER-}" ] || { ! cargo --version && [ -e "$built/installable" ]; } >/dev/null 2>&1; }; then
    [ -e "$built/installable" ] || die 'nothing is built yet: first run this without sudo, then again with it (which drops CARGO_TARGET_DIR)'
    newer=$(find Cargo.* src cli/{Cargo.toml,src} ffi/c/{Cargo.toml,build.rs,src,include} -newer "$built/installable" -print -quit)
    [ -z "$newer" ] || die "$newer has changed since the library was built: first run this as a user who has cargo"
else
    scripts/setup.sh rust
    echo '==> building the C library and the command vkgdr'
    touch "$made/begun"
    cargo build --quiet --locked --release --package vkgdr-c --lib --package vkgdr-cli --bins
    # This machine writes the manual, also of a command for another one.
    env -u CARGO_BUILD_TARGET cargo build --quiet --locked --release --package vkgdr-cli --example manual
    rm -rf "$texts" && "$target/release/examples/manual" "$texts"
    # Without a symbol of its own: the dynamic linker finds those of the library that it needs, which is beside it.
    ${CC:-cc} -shared -nostdlib -Wl,--no-as-needed,-soname,libgdrapi.so.2,-rpath,\$ORIGIN \
        -o "$built/libgdrapi.so.2" "$built/libvkgdr_c.so"
    touch -r "$made/begun" "$built/installable"
fi
# Relative paths let the installed tree be moved; impossible outside of PREFIX.
from() { # FOLDER PATH
    [[ $1/ == "${prefix%/}"/* && $2/ == "${prefix%/}"/* ]] && realpath -sm --relative-to="$1" "$2" || printf '%s\n' "$2"
}
pc_prefix=$(from "$libdir/pkgconfig" "$prefix") pc_include=$(from "$libdir/pkgconfig" "$include")
[[ $pc_prefix == /* ]] || pc_prefix="\${pcfiledir}/$pc_prefix"
[[ $pc_include == /* ]] || pc_include="\${pcfiledir}/$pc_include"
sed "s|@PREFIX@|${pc_prefix// /\\\\ }|; s|@INCLUDE@|${pc_include// /\\\\ }|; s|@VERSION@|$version|" ffi/c/vkgdr.pc.in >"$made/vkgdr.pc"
for file in vkgdrConfig.cmake vkgdrConfigVersion.cmake; do
    sed "s|@INCLUDE@|$(from "$libdir" "$include")|; s|@VERSION@|$version|; s|@SO_VERSION@|$so|" ffi/c/cmake/$file.in >"$made/$file"
done
printf 'Name: gdrapi\nDescription: the interface of gdrcopy over memory of vkgdr and CUDA\nVersion: %s\nRequires: vkgdr\n' "$gdrapi" >"$made/gdrapi.pc"
each check
each put
update
[ -z "${DESTDIR-}" ] || exit 0
cached=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null || true)
if [[ $cached != *" $libdir/libvkgdr.so"* ]]; then
    echo '==> tools do not search this folder by default; set'
    printf "    export %s='%s'\"\${%s:+:\$%s}\"\n" PKG_CONFIG_PATH "$libdir/pkgconfig" PKG_CONFIG_PATH{,} \
        LD_LIBRARY_PATH "$libdir" LD_LIBRARY_PATH{,}
    printf "    export vkgdr_DIR='%s'\n" "$libdir/cmake/vkgdr"
fi
case :$PATH: in
    *":${prefix%/}/bin:"*) ;;
    *) printf "==> shells do not search this folder; set\n    export PATH='%s':\"\$PATH\"\n" "${prefix%/}/bin" ;;
esac
