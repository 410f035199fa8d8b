#!/usr/bin/env bash
# Builds the C library and installs it, or removes what was installed:
#
#     scripts/install.sh [--uninstall]
#
# PREFIX, LIBDIR and DESTDIR say where to (scripts/prefix.sh).
#
# An ordinary user builds, and may leave the installing to root, who need not have cargo: root then takes what the
# user has built.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=prefix.sh
source scripts/prefix.sh

includedir=$(realpath -ms "$prefix/include")

# The library of the C API has a version of its own, which its soname begins.
setting() { # TABLE KEY FILE
    sed -n "/^\[$1\]/,/^\[/s/^$2 = \"\(.*\)\".*/\1/p" "$3"
}
version=$(setting workspace.package version Cargo.toml)
so_version=$(setting package.metadata.capi.library version ffi/c/Cargo.toml)
so_major=${so_version%%.*}
[[ $version == *.*.* && $so_version == *.*.* ]] || die 'Cargo.toml or ffi/c/Cargo.toml tells no version'

built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}release
# What a program that links libvkgdr.a needs besides, as rustc says.
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

# The dynamic linker's cache, where that is ours to write.
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
    # rustc repeats its note when nothing has to be built.
    log=$(cargo rustc --color never --locked --release --package vkgdr-c -- --print native-static-libs 2>&1) || {
        printf '%s\n' "$log" >&2
        die 'the C library could not be built'
    }
    libs=$(sed -n 's/^note: native-static-libs: //p' <<<"$log" | tail -n 1)
    [ -n "$libs" ] || die 'rustc does not tell what the static library needs'
    # Each once, without those that compilers add to every program: libc, and the unwinder, which is libgcc_s or, with
    # -static, libgcc_eh.
    tr ' ' '\n' <<<"$libs" | awk 'NF && $0 != "-lc" && $0 != "-lgcc_s" && !seen[$0]++' | paste -sd ' ' \
        >"$static_libs_file"
}

# For root without cargo: what a user has built must be there, and newer than the sources.
check_build() {
    local newer
    [ -e "$static_libs_file" ] || die 'cargo is missing: run this as the user who has it first, then as root'
    newer=$(find src ffi/c/{src,build.rs,Cargo.toml} Cargo.{toml,lock} -newer "$static_libs_file" -print -quit)
    [ -z "$newer" ] || die "$newer has changed since the C library was built: run this as the user who has cargo first"
}

# In FILE, with the @NAMES@ filled in.
filled_in() { # FILE
    local text libs prefix_from_pc=$prefix include_from_lib=$includedir
    text=$(<"$1")
    libs=$(<"$static_libs_file")
    # Relative, so that the tree can be moved, unless it is not one tree.
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

# How programs find a library that is not where the tools look.
explain() {
    [ -z "$destdir" ] || return 0
    [[ $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null) == *" $libdir/libvkgdr.so.$so_major"* ]] && return
    say 'tools do not look there by themselves; tell them:'
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
