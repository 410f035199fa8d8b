#!/usr/bin/env bash
# Installs the C library and the command vkgdr for `make install`, or removes them with --uninstall. From the environment: PREFIX
# (/usr/local), LIBDIR ($PREFIX/lib), INCLUDEDIR ($PREFIX/include), DESTDIR, a staging folder for packagers, and GDRAPI=1: also
# gdrcopy's names for the library, and its header. As root without cargo, and under sudo, it installs an existing build.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export LC_ALL=C PATH=$PATH:${CARGO_HOME:-${HOME-}/.cargo}/bin:/usr/sbin:/sbin
die() { printf 'error: %s\n' "$*" >&2 && exit 1; }
for name in PREFIX LIBDIR INCLUDEDIR DESTDIR; do
    [[ ${!name:-/} == /* && ${!name-} != *[$'"\'`\\$&|;:\n']* ]] || die "$name must begin with a slash and have no character that" \
        "shells, pkg-config, CMake or a list of folders would read as another, unlike '${!name}'"
done
[[ ${GDRAPI:-0} == [01] ]] || die "GDRAPI must be 0 or 1, unlike '$GDRAPI'"
prefix=$(realpath -sm "${PREFIX:-/usr/local}") libdir=$(realpath -sm "${LIBDIR:-${PREFIX:-/usr/local}/lib}")
include=$(realpath -sm "${INCLUDEDIR:-${PREFIX:-/usr/local}/include}") bin=${prefix%/}/bin share=${prefix%/}/share
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
target=$CARGO_TARGET_DIR built=$target/${CARGO_BUILD_TARGET:-.}/release
static=$built/libvkgdr_c.a
value() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$2" | head -n 1; }
version=$(value version Cargo.toml) so=$(value library-version ffi/c/Cargo.toml) gdrapi=$(value gdrapi-version ffi/c/Cargo.toml)

each() { # COMMAND: runs it with the mode, the source and the place of each file; the mode of links is "link"
    "$1" 755 "$built/vkgdr" "$bin/vkgdr"
    "$1" 755 "$built/libvkgdr_c.so" "$libdir/libvkgdr.so.$so"
    "$1" link "libvkgdr.so.$so" "$libdir/libvkgdr.so.${so%%.*}"
    "$1" link "libvkgdr.so.${so%%.*}" "$libdir/libvkgdr.so"
    "$1" 644 "$static" "$libdir/libvkgdr.a"
    all "$1" "$libdir/pkgconfig" "$made/vkgdr.pc"
    all "$1" "$libdir/cmake/vkgdr" "$made"/vkgdrConfig{,Version}.cmake
    all "$1" "$include" ffi/c/include/vkgdr*.h* src/ring/vkgdr_ring.cuh
    all "$1" "$share/man/man1" "$built/texts"/man/vkgdr{,-bench{,-alloc,-bw,-latency,-pingpong},-completions,-doctor,-info,-sim}.1
    all "$1" "$share/bash-completion/completions" "$built/texts/completions/vkgdr"
    all "$1" "$share/zsh/site-functions" "$built/texts/completions/_vkgdr"
    all "$1" "$share/fish/vendor_completions.d" "$built/texts/completions/vkgdr.fish"
    [ "${GDRAPI:-0}" = 1 ] || return 0
    "$1" 755 "$built/libgdrapi.so.2" "$libdir/libgdrapi.so.$gdrapi"
    "$1" link "libgdrapi.so.$gdrapi" "$libdir/libgdrapi.so.2"
    # Linkers do not look for symbols in what a library needs, and programs also load this name: it is the library itself.
    "$1" link "libvkgdr.so.${so%%.*}" "$libdir/libgdrapi.so"
    all "$1" "$libdir/pkgconfig" "$made/gdrapi.pc"
    all "$1" "$include" ffi/c/include/gdrapi.h
}
all() { for file in "${@:3}"; do "$1" 644 "$file" "$2/${file##*/}"; done; }
check() {
    local folder=${DESTDIR-}${3%/*}
    [ "$1" = link ] || [ -r "$2" ] || die "$2 is missing: first run this as a user who has cargo"
    [ ! -d "${DESTDIR-}$3" ] || [ -L "${DESTDIR-}$3" ] || die "${DESTDIR-}$3 is a folder"
    until [ -e "$folder/." ] || [ -e "$folder" ] || [ -L "$folder" ]; do folder=${folder%/*}; done
    [ -d "$folder/." ] && [ -w "$folder/." ] || die "${folder:-/} is not writable: choose another PREFIX, or run this again as root (sudo make ...)"
}
put() { if [ "$1" = link ]; then ln -sfTv "$2" "${DESTDIR-}$3"; else install -DTvm "$1" "$2" "${DESTDIR-}$3"; fi; }
remove() { rm -fv "${DESTDIR-}$3"; }
update() { [ "${DESTDIR-}" ] || ldconfig 2>/dev/null || true; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
if [ "${1-}" = --uninstall ]; then
    each remove
    rmdir "${DESTDIR-}$libdir/cmake/vkgdr" 2>/dev/null || true
    update && exit
fi
if [ "$(id -u)" -eq 0 ] && { [ "${SUDO_USER-}" ] || { ! cargo --version && [ -e "$built/installable" ]; } >/dev/null 2>&1; }; then
    newer=$(find Cargo.* src cli/{Cargo.toml,examples,src} ffi/c/{Cargo.toml,build.rs,src,include} -newer "$built/installable" -print -quit) ||
        die 'nothing is built yet: first run this without sudo, then again with it (which drops CARGO_TARGET_DIR)'
    [ -z "$newer" ] || die "$newer has changed since the library was built: first run this as a user who has cargo"
else
    scripts/setup.sh rust
    cargo build --locked --release --package vkgdr-c --lib --package vkgdr-cli --bins
    # This machine writes the manual, also of a command for another one.
    env -u CARGO_BUILD_TARGET cargo build --locked --release --package vkgdr-cli --example manual
    rm -rf "$built/texts" && "$target/release/examples/manual" "$built/texts"
    # Without a symbol of its own: the dynamic linker finds those of the library that it needs, which is beside it. Without an
    # object either, whose absence means an executable stack unless that is refused: glibc 2.41 loads no such library.
    ${CC:-cc} -shared -nostdlib -Wl,-z,noexecstack,--no-as-needed,-soname,libgdrapi.so.2,-rpath,\$ORIGIN \
        -o "$built/libgdrapi.so.2" "$built/libvkgdr_c.so"
    # The time before the build: nothing was put into this folder since.
    touch -r "$made" "$built/installable"
fi
# Relative paths let the installed tree be moved; impossible outside of PREFIX.
from_libdir() { realpath -sm --relative-to="$libdir" --relative-base="$prefix" "$1"; }
for file in vkgdr.pc cmake/vkgdrConfig.cmake cmake/vkgdrConfigVersion.cmake; do
    sed "s|@PREFIX@|$(from_libdir "$prefix")|; s|@INCLUDE@|$(from_libdir "$include")|; s|@VERSION@|$version|; s|@SO_VERSION@|$so|
        /^prefix=\|^includedir=/ { s|=\([^/]\)|=\${libdir}/\1|; s| |\\\\ |g }" "ffi/c/$file.in" >"$made/${file##*/}"
done
printf 'Name: gdrapi\nDescription: the interface of gdrcopy over memory of vkgdr and CUDA\nVersion: %s\nRequires: vkgdr\n' "$gdrapi" >"$made/gdrapi.pc"
each check
# LLVM's plugins for linkers take the bitcode of Rust's standard library for their own version's.
if ${OBJCOPY:-objcopy} -R .llvmbc -R .llvmcmd "$static" "$made/libvkgdr.a" 2>/dev/null; then
    static=$made/libvkgdr.a
else
    printf 'note: libvkgdr.a keeps bitcode, which clang -flto may refuse: set OBJCOPY to an objcopy for its machine\n' >&2
fi
each put
update
[[ ${DESTDIR-} || :$PATH:$(ldconfig -p 2>/dev/null) == *":$bin:"*" $libdir/libvkgdr.so"* ]] || cat <<TEXT
==> tools do not search these folders by default; set
    export PATH='$bin':"\$PATH"
    export LD_LIBRARY_PATH='$libdir'"\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
    export PKG_CONFIG_PATH='$libdir/pkgconfig'"\${PKG_CONFIG_PATH:+:\$PKG_CONFIG_PATH}"
    export vkgdr_DIR='$libdir/cmake/vkgdr'
TEXT
