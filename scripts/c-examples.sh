#!/usr/bin/env bash
# Installs the C library as a packager would, moves it to a folder that no tool searches, builds the C and C++ examples
# against it with CMake and pkg-config, and runs them with the driver chosen by sim/run.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
choose_driver

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The user's build settings must not influence the test.
unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CMAKE_GENERATOR DESTDIR LIBDIR PREFIX
unset PKG_CONFIG_PATH CMAKE_PREFIX_PATH PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR

# Silent unless it fails.
quietly() { # COMMAND...
    local log
    log=$("$@" 2>&1) && return
    printf '%s\n' "$log" >&2
    die "failed: $*"
}

# Fails unless the program shares its text with the GPU, and fails with one line for an empty text.
run() { # PROGRAM
    local out err text='a text for the GPU'
    out=$(sim/run "$1" "$text") || die "$1 failed"
    for line in "GPU reads   $text" "CPU reads   ${#text} bytes of 0xa5"; do
        [[ $out == *"$line"* ]] || die "$1 did not say '$line' but: $out"
    done
    [[ $out =~ CPU.s\ view\ +0x[0-9a-f]+.*GPU.s\ view\ +0x[0-9a-f]+ ]] || die "$1 prints no addresses: $out"
    if out=$(sim/run "$1" '' 2>"$work/err"); then die "$1 does not fail for an empty text"; fi
    err=$(<"$work/err")
    [[ -z $out && $err == 'share: '*'cannot allocate 0 bytes of mapped memory' && $err != *$'\n'* ]] ||
        die "$1 fails for an empty text with: $out $err"
}

needs_shared_library() { [[ $(ldd "$1") == *libvkgdr.so.1* ]]; }

PREFIX=/opt/vkgdr DESTDIR=$work/stage quietly scripts/install.sh
prefix="$work/moved to here"
mv "$work/stage/opt/vkgdr" "$prefix"
files=$(cd "$prefix" && find . -type f -o -type l | sort | paste -sd ' ')
expected='./include/vkgdr.h ./include/vkgdr.hpp ./lib/cmake/vkgdr/vkgdrConfig.cmake'
expected+=' ./lib/cmake/vkgdr/vkgdrConfigVersion.cmake ./lib/libvkgdr.a ./lib/libvkgdr.so ./lib/libvkgdr.so.1'
expected+=' ./lib/libvkgdr.so.1.0.0 ./lib/pkgconfig/vkgdr.pc'
[ "$files" = "$expected" ] || die "installed is: $files"
for text in "$prefix"/{include/*,lib/cmake/vkgdr/*,lib/pkgconfig/*}; do
    # Matches the start of a path only, not the end of a longer one.
    at='\(^\|[^[:alnum:]_]\)'
    if grep -e "$at$root/" -e "$at$target/" -e "$at$work/" -e /opt/vkgdr -e '@[A-Z_]*@' "$text" >&2; then
        die "$text contains build paths or placeholders"
    fi
done

say 'CMake'
for language in c cpp; do
    build="$work/cmake $language"
    quietly cmake -S "examples/$language" -B "$build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release
    quietly cmake --build "$build"
    needs_shared_library "$build/share" || die "examples/$language is not linked to libvkgdr.so.1"
    run "$build/share"
done
mkdir "$work/static"
sed 's/vkgdr::vkgdr/vkgdr::static/' examples/c/CMakeLists.txt >"$work/static/CMakeLists.txt"
cp examples/c/share.c "$work/static/"
quietly cmake -S "$work/static" -B "$work/static/build" -DCMAKE_PREFIX_PATH="$prefix"
quietly cmake --build "$work/static/build"
if needs_shared_library "$work/static/build/share"; then die 'vkgdr::static links to libvkgdr.so.1'; fi
run "$work/static/build/share"
# glibc 2.34 and newer contains libpthread, so that the programs above link without it.
grep -q -e '-lpthread' "$work/static/build/CMakeFiles/share.dir/link.txt" || die 'vkgdr::static lists no libraries'

find_package() { # ARGUMENTS
    mkdir -p "$work/version"
    {
        printf 'cmake_minimum_required(VERSION 3.19)\nproject(version LANGUAGES C)\n'
        printf 'find_package(vkgdr %s REQUIRED)\n' "$1"
    } >"$work/version/CMakeLists.txt"
    cmake -S "$work/version" -B "$work/version/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null 2>&1
}
for version in '' 0.1 0.1...0.9 '0.1...<9'; do
    find_package "$version" || die "find_package(vkgdr $version) does not find the library"
done
for version in 1.0 0.999 0.0...0.1 '0.1...<0.2.0'; do
    if find_package "$version"; then die "find_package(vkgdr $version) accepts an incompatible version"; fi
done

say 'pkg-config'
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" LD_LIBRARY_PATH="$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[[ $(pkg-config --libs --static vkgdr) == *-lpthread* ]] || die 'vkgdr.pc lists no libraries for static linking'
[[ $(pkg-config --libs vkgdr) != *-lpthread* ]] || die 'vkgdr.pc lists the libraries for static linking without --static'
for tool in cc:c gcc:c clang:c c++:cpp g++:cpp clang++:cpp; do
    compiler=${tool%:*} language=${tool#*:}
    has "$compiler" || continue
    case $language in c) standards='gnu99 gnu11 gnu17' ;; cpp) standards='c++17 c++20' ;; esac
    for standard in $standards; do
        program="$work/$compiler-$standard"
        # eval, since pkg-config escapes the spaces in the folder's name.
        eval "flags=($(pkg-config --cflags --libs vkgdr))"
        # shellcheck disable=SC2154 # assigned by eval
        quietly "$compiler" "-std=$standard" -Wall -Wextra -Wpedantic -Werror "examples/$language/share.$language" \
            -o "$program" "${flags[@]}" -ldl
        run "$program"
    done
done

# Links with libvkgdr.a; with "static" as its first argument, with archives only.
link_statically() { # STATIC|DYNAMIC PROGRAM
    local flags
    eval "flags=($(pkg-config --static --cflags --libs vkgdr))"
    case $1 in
        static) flags=(-static "${flags[@]}") ;;
        # From a folder without the shared library, which the linker would prefer.
        dynamic) flags=(-L"$work/archive" "${flags[@]}") ;;
    esac
    quietly gcc -std=gnu11 -Wall -Wextra -Werror examples/c/share.c -o "$2" "${flags[@]}"
}

say 'pkg-config --static'
mkdir "$work/archive"
cp "$prefix/lib/libvkgdr.a" "$work/archive/"
link_statically dynamic "$work/with-archive"
if needs_shared_library "$work/with-archive"; then die 'pkg-config --static links to libvkgdr.so.1'; fi
run "$work/with-archive"
if [ -e "$(gcc -print-file-name=libc.a)" ]; then
    link_statically static "$work/all-static"
    if ldd "$work/all-static" >/dev/null 2>&1; then die 'gcc -static made a program that needs shared libraries'; fi
    # glibc's dlopen works in such a program, but not every driver does. Without a driver the error must say so.
    case $VKGDR_CUDA_DRIVER in
        sim)
            if out=$(env -u LD_LIBRARY_PATH "$work/all-static" text 2>&1); then die "a static program said: $out"; fi
            [[ $out == *'libcuda.so.1 could not be loaded'* ]] || die "a static program fails with: $out"
            ;;
    esac
else
    say 'skipped: gcc -static has no libc.a'
fi

say 'uninstall'
DESTDIR=$work/stage PREFIX=/opt/vkgdr quietly scripts/install.sh
DESTDIR=$work/stage PREFIX=/opt/vkgdr quietly scripts/install.sh --uninstall
left=$(find "$work/stage" ! -type d)
[ -z "$left" ] || die "uninstall leaves: $left"
