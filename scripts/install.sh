#!/usr/bin/env bash
# Builds the C library and installs it, or uninstalls it:
#
#     scripts/install.sh [--uninstall]
#
# PREFIX, LIBDIR and DESTDIR select the folders (scripts/prefix.sh).
#
# An ordinary user builds, and may leave the installation to root, who needs no cargo: root then installs the user's
# build.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=prefix.sh
source scripts/prefix.sh

includedir=$(realpath -ms "$prefix/include")

# The C API's library version; the soname ends in its major number.
setting() { # TABLE KEY FILE
    sed -n "/^\[$1\]/,/^\[/s/^$2 = \"\(.*\)\".*/\1/p" "$3"
}
version=$(setting workspace.package version Cargo.toml)
so_version=$(setting package.metadata.capi.library version ffi/c/Cargo.toml)
so_major=${so_version%%.*}
[[ $version == *.*.* && $so_version == *.*.* ]] || die 'Cargo.toml or ffi/c/Cargo.toml has no version'

built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release
# The libraries that libvkgdr.a needs, according to rustc.
static_libs_file=$built/libvkgdr_c.libs

installed=(
    "$libdir/libvkgdr.so.$so_version"
    "$libdir/libvkgdr.so.$so_major"
    "$libdir/libvkgdr.so"
    "$libdir/libvkgdr.a"
    "$includedir/vkgdr.h"
    "$includedir/vkgdr.hpp"
    "$libdir/pkgconfig/vkgdr.pc"
    "$libdir/cmake/vkgdr/vkgdrConfig.cmake"
    "$libdir/cmake/vkgdr/vkgdrConfigVersion.cmake"
)

# Updates the dynamic linker's cache, as root and without DESTDIR.
update_linker_cache() {
    if [ -z "$destdir" ] && [ "$(id -u)" -eq 0 ]; then
        PATH=$PATH:/usr/sbin:/sbin ldconfig 2>/dev/null || true
    fi
}

uninstall() {
    remove "${installed[@]}"
    rmdir "$destdir$libdir/cmake/vkgdr" 2>/dev/null || true
    update_linker_cache
}

build() {
    local log libs
    scripts/setup.sh rust
    say 'building the C library'
    # rustc prints the note even if nothing has to be built.
    log=$(cargo rustc --color never --locked --release --package vkgdr-c -- --print native-static-libs 2>&1) || {
        printf '%s\n' "$log" >&2
        die 'the C library could not be built'
    }
    libs=$(sed -n 's/^note: native-static-libs: //p' <<<"$log" | tail -n 1)
    [ -n "$libs" ] || die 'rustc does not list the libraries that the static library needs'
    # Each once, except those that compilers link by default: libc, and the unwinder (libgcc_s, or libgcc_eh with
    # -static).
    tr ' ' '\n' <<<"$libs" | awk 'NF && $0 != "-lc" && $0 != "-lgcc_s" && !seen[$0]++' | paste -sd ' ' \
        >"$static_libs_file"
}

# For root without cargo: the user's build must exist and be newer than the sources.
check_build() {
    local newer
    [ -e "$static_libs_file" ] || die 'cargo is missing: first run this as a user who has cargo, then as root'
    newer=$(find src ffi/c/{src,build.rs,Cargo.toml} Cargo.{toml,lock} -newer "$static_libs_file" -print -quit)
    [ -z "$newer" ] || die "$newer has changed since the C library was built: first run this as a user who has cargo"
}

# Prints FILE with its @PLACEHOLDERS@ filled in.
filled_in() { # FILE
    local text libs prefix_from_pc=$prefix include_from_lib=$includedir
    text=$(<"$1")
    libs=$(<"$static_libs_file")
    # Relative paths let the installed tree be moved; impossible if LIBDIR is outside PREFIX.
    if [[ $libdir == "${prefix%/}"/* ]]; then
        prefix_from_pc="\${pcfiledir}/$(realpath -ms --relative-to="$libdir/pkgconfig" "$prefix")"
        include_from_lib=$(realpath -ms --relative-to="$libdir" "$includedir")
    fi
    text=${text//@PREFIX_FROM_PC@/"${prefix_from_pc// /\\ }"}
    text=${text//@INCLUDE_FROM_LIB@/"$include_from_lib"}
    text=${text//@VERSION@/"$version"}
    text=${text//@VERSION_MAJOR@/"${version%%.*}"}
    text=${text//@SO_VERSION@/"$so_version"}
    text=${text//@SO_MAJOR@/"$so_major"}
    text=${text//@STATIC_LIBS@/"$libs"}
    libs=${libs//-l/}
    text=${text//@STATIC_LIBS_LIST@/"${libs// /;}"}
    text=${text//@POINTER_BYTES@/"$(($(getconf LONG_BIT) / 8))"}
    printf '%s\n' "$text"
}

put_text() { # TEMPLATE DESTINATION
    local text
    text=$(filled_in "$1")
    rm -f "$destdir$2"
    printf '%s\n' "$text" >"$destdir$2"
}

install_all() {
    put 755 "$built/libvkgdr_c.so" "$libdir/libvkgdr.so.$so_version"
    put_link "libvkgdr.so.$so_version" "$libdir/libvkgdr.so.$so_major"
    put_link "libvkgdr.so.$so_major" "$libdir/libvkgdr.so"
    put 644 "$built/libvkgdr_c.a" "$libdir/libvkgdr.a"
    put 644 ffi/c/include/vkgdr.h "$includedir/vkgdr.h"
    put 644 ffi/c/include/vkgdr.hpp "$includedir/vkgdr.hpp"
    put_text ffi/c/vkgdr.pc.in "$libdir/pkgconfig/vkgdr.pc"
    put_text ffi/c/cmake/vkgdrConfig.cmake.in "$libdir/cmake/vkgdr/vkgdrConfig.cmake"
    put_text ffi/c/cmake/vkgdrConfigVersion.cmake.in "$libdir/cmake/vkgdr/vkgdrConfigVersion.cmake"
}

# Prints how to find a library outside the folders that tools search.
explain() {
    [ -z "$destdir" ] || return 0
    [[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null) == *" $libdir/libvkgdr.so.$so_major"* ]] && return
    say 'tools do not search this folder by default; set'
    printf '    export %s=%q\n' \
        PKG_CONFIG_PATH "$libdir/pkgconfig" CMAKE_PREFIX_PATH "$prefix" LD_LIBRARY_PATH "$libdir"
}

case ${1-} in
    '') ;;
    --uninstall) uninstall && exit ;;
    *) die "scripts/install.sh: unknown argument '$1'" ;;
esac

if has cargo || [ "$(id -u)" -ne 0 ]; then build; else check_build; fi
writable "$libdir" "$libdir/pkgconfig" "$libdir/cmake/vkgdr" "$includedir"
install_all
update_linker_cache
for file in "${installed[@]}"; do printf '%s\n' "$destdir$file"; done
explain
