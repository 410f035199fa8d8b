#!/usr/bin/env bash
# Tests `make install`: installs the C library as a packager would, moves it to a folder that no tool searches, builds the C and
# C++ examples against it (CMakeLists.txt beside this file), and runs them with the driver that sim/run chooses; then installs
# with inputs that must be refused. With VKGDR_TEST_ALL=1 by gcc and clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
root=$PWD target=$(realpath "${CARGO_TARGET_DIR:-target}")
# Variables of the user's builds, which must not influence the test.
unset CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CMAKE_GENERATOR DESTDIR GDRAPI LIBDIR INCLUDEDIR PREFIX PKG_CONFIG_PATH \
    CMAKE_PREFIX_PATH PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR SUDO_USER
VKGDR_CUDA_DRIVER=$(sim/run --driver)
export VKGDR_CUDA_DRIVER
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
die() { printf 'FAILED: %s\n' "$*" >&2 && exit 1; }
quietly() { # COMMAND...: its output is printed only if it fails
    "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2 && die "$*"; }
}

echo '==> install, move'
quietly make install PREFIX=/opt/vkgdr DESTDIR="$work/stage" GDRAPI=1
prefix="$work/moved to here"
mv "$work/stage/opt/vkgdr" "$prefix"
diff <(cd "$prefix" && find . ! -type d -printf '%P\n' | LC_ALL=C sort) - <<'FILES' || die 'other files are installed'
bin/vkgdr
include/gdrapi.h
include/vkgdr.h
include/vkgdr.hpp
include/vkgdr_mr.hpp
include/vkgdr_ring.cuh
lib/cmake/vkgdr/vkgdrConfig.cmake
lib/cmake/vkgdr/vkgdrConfigVersion.cmake
lib/libgdrapi.so
lib/libgdrapi.so.2
lib/libgdrapi.so.2.6.0
lib/libvkgdr.a
lib/libvkgdr.so
lib/libvkgdr.so.1
lib/libvkgdr.so.1.0.0
lib/pkgconfig/gdrapi.pc
lib/pkgconfig/vkgdr.pc
share/bash-completion/completions/vkgdr
share/fish/vendor_completions.d/vkgdr.fish
share/man/man1/vkgdr-bench-alloc.1
share/man/man1/vkgdr-bench-bw.1
share/man/man1/vkgdr-bench-latency.1
share/man/man1/vkgdr-bench-pingpong.1
share/man/man1/vkgdr-bench.1
share/man/man1/vkgdr-completions.1
share/man/man1/vkgdr-doctor.1
share/man/man1/vkgdr-info.1
share/man/man1/vkgdr-sim.1
share/man/man1/vkgdr.1
share/zsh/site-functions/_vkgdr
FILES
! grep -rIE "@[A-Z_]+@|/opt/vkgdr|(^|[^[:alnum:]_])($root|$target|$work)/" "$prefix" || die 'paths of the build, or placeholders'
! readelf -SW "$prefix/lib/libvkgdr.a" | grep -F .llvmbc >/dev/null || die 'the static library has bitcode'
for library in "$prefix"/lib/*.so; do
    # glibc from 2.41 on loads no library that wants an executable stack.
    readelf -lW "$library" | grep -E 'GNU_STACK.* RW ' >/dev/null || die "the stack of $library"
done

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
compilers=(cc:c++)
[ "${VKGDR_TEST_ALL-}" != 1 ] || compilers=(gcc:g++ clang:clang++)
for pair in "${compilers[@]}"; do
    echo "==> CMake, pkg-config and CTest, with $pair"
    rm -rf "$work/build"
    quietly env CC="${pair%:*}" CXX="${pair#*:}" cmake -S ffi/c/tests/installed -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix"
    quietly cmake --build "$work/build"
    quietly sim/run ctest --test-dir "$work/build" --output-on-failure
done
for language in c cpp; do
    echo "==> examples/$language as a project of its own; its head shows what it prints"
    quietly cmake -S examples/$language -B "$work/$language" -DCMAKE_PREFIX_PATH="$prefix"
    quietly cmake --build "$work/$language"
    shape() { sed -E 's/^(GPU  ).*/\1/; s/0x[0-9a-f]{4,}/ADDRESS/; s/ +/ /g'; }
    diff <(sed -nE '/\$ \.\/share/,/^( \*|\/\/)$/ s,^( \*|//)     ([^$]),\2,p' examples/$language/share.$language | shape) \
        <(sim/run "$work/$language/share" 'a text for the GPU' | shape) || die "the head of share.$language"
done

echo '==> pkg-config --static, gcc -static'
[[ $(pkg-config --libs --static vkgdr) == *-lpthread*-z,nodelete* && $(pkg-config --libs vkgdr) != *-lpthread* ]] || die vkgdr.pc
if [ -e "$(cc -print-file-name=libc.a)" ]; then
    # pkg-config escapes the spaces of the folder's name for a shell.
    quietly bash -c "cc -static examples/c/share.c -o '$work/static' $(pkg-config --static --cflags --libs vkgdr) -ldl"
    ! ldd "$work/static" >/dev/null 2>&1 || die 'gcc -static made a program that needs shared libraries'
    # glibc's dlopen works in such a program, but not every driver does. Without one the error must say so.
    [ "$VKGDR_CUDA_DRIVER" = real ] || { ! LD_LIBRARY_PATH='' "$work/static" text 2>"$work/log" &&
        grep -q 'libcuda.so.1 could not be loaded' "$work/log"; } || die "a static program: $(cat "$work/log")"
else
    echo 'skipped: gcc -static has no libc.a'
fi

echo '==> CMake without the static library'
rm "$prefix/lib/libvkgdr.a"
quietly cmake -S ffi/c/tests/installed -B "$work/without" -DCMAKE_PREFIX_PATH="$prefix" -DWITHOUT_STATIC=1

echo '==> uninstall; folders that are refused before anything is written, or served'
for prefix in /opt/vkgdr "$work/a b" $'/opt/\xff'; do
    quietly make install PREFIX="$prefix" LIBDIR="$prefix/lib64" DESTDIR="$work/stage" GDRAPI=1
    quietly make uninstall PREFIX="$prefix" LIBDIR="$prefix/lib64" DESTDIR="$work/stage" GDRAPI=1
    left=$(find "$work/stage" ! -type d) && [ -z "$left" ] || die "uninstall leaves $left"
    [ -d "$work/stage/$prefix/lib64" ] || die "$prefix is not where the files were"
done
rm -rf "$work/stage"
mkdir -p "$work/stage/taken/lib/libvkgdr.so"
# shellcheck disable=SC2016
for prefix in opt '' /a:b "/it's" '/a"b' /a\\b $'/a\nb' '/a$b' '/$HOME' /taken; do
    ! make install PREFIX="$prefix" DESTDIR="$work/stage" >"$work/log" 2>&1 || die "PREFIX=$prefix is taken"
done
! make install PREFIX=/a GDRAPI=yes DESTDIR="$work/stage" >"$work/log" 2>&1 || die 'GDRAPI=yes is taken'
if [ "$(id -u)" -eq 0 ]; then
    built=$target/${CARGO_BUILD_TARGET:-.}/release
    # Under sudo, the build of a user: never an older one than the sources.
    quietly env SUDO_USER=ada PATH=/usr/bin:/bin HOME=/ make install PREFIX=/b DESTDIR="$work/b"
    ! SUDO_USER=ada CARGO_TARGET_DIR="$work/none" make install PREFIX=/a DESTDIR="$work/stage" >"$work/log" 2>&1 || die 'root builds'
    grep -q 'nothing is built yet' "$work/log" || die "$(cat "$work/log")"
    touch -r "$built/installable" "$work/time" && touch -d 2000-01-01 "$built/installable"
    ! SUDO_USER=ada make install PREFIX=/a DESTDIR="$work/stage" GDRAPI=1 >"$work/log" 2>&1 || die 'a stale build is installed'
    touch -r "$work/time" "$built/installable"
    grep -q 'has changed since the library was built' "$work/log" || die "$(cat "$work/log")"
fi
left=$(find "$work/stage" ! -type d) && [ -z "$left" ] || die "something is written: $left"
echo 'passed'
