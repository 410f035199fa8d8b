#!/usr/bin/env bash
# Runs the Python tests with the extension module and the simulator under AddressSanitizer. Called by
# scripts/sanitize.sh, which sets up the instrumentation. The interpreter is not instrumented: LD_PRELOAD loads the
# sanitizer's runtime, which Rust ships as an archive only. Leak detection is off, since an interpreter frees little at
# exit; the tests count live allocations themselves.
#
#     scripts/python-sanitized.sh VENV [PYTEST-ARGUMENT...]
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv=${1:?the virtual environment of the Python tests}
shift
export RUSTUP_TOOLCHAIN=nightly

archive=$(rustc --print sysroot)/lib/rustlib/$CARGO_BUILD_TARGET/lib/librustc-nightly_rt.asan.a
runtime=$target/libasan-of-rust.so
# Without the object file for executables, and with the C++ library, whose exception functions the runtime looks up.
cp "$archive" "$target/asan.a"
ar d "$target/asan.a" asan_preinit.cpp.o
cc -shared -o "$runtime" -Wl,--whole-archive "$target/asan.a" -Wl,--no-whole-archive -lpthread -ldl -lm -lrt \
    -Wl,--no-as-needed -lstdc++
cargo build --locked --package vkgdr-python

# PYTHONPATH precedes the installed package.
package=$target/python-package
rm -rf "$package"
mkdir -p "$package"
cp -r ffi/python/python/vkgdr "$package/"
cp "$target/$CARGO_BUILD_TARGET/debug/lib_vkgdr.so" "$package/vkgdr/_vkgdr.abi3.so"

# Python's own allocator would hide uses after free.
export PYTHONPATH=$package PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=$target/cache
# Reports go to files, since pytest captures the output. SIGSEGV is left alone: one test ends programs by signals.
reports=$target/asan-reports
rm -rf "$reports"
mkdir -p "$reports"
export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:handle_segv=0:log_path=$reports/report
# These start an interpreter with another environment, without the runtime.
left_out=(--deselect tests/process/test_import.py::test_no_driver_at_all_is_an_error_with_a_remedy
    --deselect tests/process/test_import.py::test_the_rest_of_the_package_works_without_a_driver)
# The instrumented package is no installed distribution.
left_out+=(--deselect tests/process/test_import.py::test_the_version_is_that_of_the_distribution)
sim/run env LD_PRELOAD="$runtime" "$venv/bin/python" -m pytest -p no:cacheprovider "${left_out[@]}" \
    ffi/python/tests "$@"
