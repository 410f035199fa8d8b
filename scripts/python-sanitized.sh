#!/usr/bin/env bash
# Runs the Python tests with the extension module and the simulator under AddressSanitizer; called by
# scripts/sanitize.sh, which sets the instrumentation up. The interpreter is the ordinary one: it gets the sanitizer's
# runtime, which Rust has as an archive only, by LD_PRELOAD. Leaks are not looked for: an interpreter leaves most of what
# it has to the system at its end. That nothing of ours is left is what the tests' own counts are for.
#
#     scripts/python-sanitized.sh VENV [PYTEST-ARGUMENT...]
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
venv=${1:?the virtual environment of the Python tests}
shift
export RUSTUP_TOOLCHAIN=nightly

archive=$(rustc --print sysroot)/lib/rustlib/$CARGO_BUILD_TARGET/lib/librustc-nightly_rt.asan.a
runtime=$target/libasan-of-rust.so
# Without the part that is for programs alone, and with the C++ library, whose exceptions it looks up when it starts.
cp "$archive" "$target/asan.a"
ar d "$target/asan.a" asan_preinit.cpp.o
cc -shared -o "$runtime" -Wl,--whole-archive "$target/asan.a" -Wl,--no-whole-archive -lpthread -ldl -lm -lrt \
    -Wl,--no-as-needed -lstdc++
cargo build --locked --package vkgdr-python

# Found before the package that is installed.
package=$target/python-package
rm -rf "$package"
mkdir -p "$package"
cp -r ffi/python/vkgdr "$package/"
cp "$target/$CARGO_BUILD_TARGET/debug/lib_vkgdr.so" "$package/vkgdr/_vkgdr.abi3.so"

# Python's own allocator hides what is used after a free.
export PYTHONPATH=$package PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=$target/cache
# Its reports go beside what pytest captures. One test ends programs by signals, which are not its to report.
reports=$target/asan-reports
rm -rf "$reports"
mkdir -p "$reports"
export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:handle_segv=0:log_path=$reports/report
# These start an interpreter with an environment of their own, without the runtime.
left_out=(--deselect tests/test_import.py::test_no_driver_at_all_is_an_error_with_a_remedy
    --deselect tests/test_import.py::test_the_rest_of_the_package_works_without_a_driver)
# The instrumented package is no installed distribution.
left_out+=(--deselect tests/test_import.py::test_the_version_is_that_of_the_distribution)
sim/run env LD_PRELOAD="$runtime" "$venv/bin/python" -m pytest -p no:cacheprovider "${left_out[@]}" \
    ffi/python/tests "$@"
