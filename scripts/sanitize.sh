#!/usr/bin/env bash
# Runs tests under a sanitizer or under Miri, with the nightly compiler:
#
#     scripts/sanitize.sh miri|address|thread|python [ARGUMENT...]      arguments of cargo miri test, nextest or pytest
#
# Each has a folder of its own in cargo's target folder, in which everything is built, the simulated driver and the test layers
# included, which takes minutes the first time. VKGDR_STEPS is the number of steps of the sequences under ThreadSanitizer (10,000).
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=$(realpath "${CARGO_TARGET_DIR:-target}") sim=${VKGDR_SIM_DIR:-${CARGO_TARGET_DIR:-sim/target}/sim}
kind=${1:?miri, address, thread or python}
shift
# An instrumented standard library takes a minute to write the backtrace of a panic that a test expects.
export RUST_BACKTRACE=0

# Unit tests of code that makes no foreign calls, which Miri does not know, and has no assembly.
driverless=(range addresses:: allocation::tests device::memory_type diagnosis:: driver::stream error ipc::
    lock:: pool:: retire:: vulkan::)

instrument() { # SANITIZER: the environment of its builds, the simulated driver among them
    command -v cargo-nextest >/dev/null ||
        cargo install --quiet --locked cargo-nextest@0.9.114 --no-default-features --features default-no-update
    host=$(rustc -vV | sed -n 's/^host: //p') folder=$target/sanitize-$1
    # The sanitizers' documentation advises the level of optimisation for speed: the sequences are three times faster. Naming the
    # target keeps build scripts and macros uninstrumented; -rdynamic exports the runtime's functions to libraries.
    export RUSTUP_TOOLCHAIN=nightly CARGO_TARGET_DIR=$folder VKGDR_SIM_DIR=$folder/sim CARGO_BUILD_TARGET=$host CARGO_PROFILE_DEV_OPT_LEVEL=1 \
        RUSTFLAGS="-Zsanitizer=$1 -Clink-arg=-rdynamic" VKGDR_CUDA_DRIVER=sim VKGDR_TEST_LAYERS=faults \
        LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
    sim/build.sh dev
}
tests() { # ARGUMENT...: each test in a process of its own
    cargo nextest run --locked --config-file .config/nextest.toml --profile sanitized --no-fail-fast "$@"
}
case $kind in
    miri)
        rustup --quiet component add --toolchain nightly miri rust-src
        # Outside of the sources, so that cargo does not find the runner of .cargo/config.toml. Tests read the clock.
        root=$PWD && cd /
        [ $# -gt 0 ] || set -- "${driverless[@]}"
        env -u CARGO_BUILD_TARGET RUSTUP_TOOLCHAIN=nightly CARGO_TARGET_DIR="$target/miri" PROPTEST_CASES=4 \
            MIRIFLAGS=-Zmiri-disable-isolation cargo miri test --locked --package vkgdr --lib --manifest-path "$root/Cargo.toml" -- "$@"
        ;;
    address) # which includes LeakSanitizer
        instrument address
        tests --package vkgdr --lib --tests "$@"
        ;;
    thread) # what threads share, in the crate and in the simulator
        rustup --quiet component add --toolchain nightly rust-src
        # Built anew as well: else the locks of the standard library are not seen.
        export CARGO_UNSTABLE_BUILD_STD=std
        export TSAN_OPTIONS="halt_on_error=1 history_size=7 suppressions=$PWD/tests/tsan.supp ${TSAN_OPTIONS-}"
        instrument thread
        [ $# -eq 0 ] || { tests "$@" && exit; }
        tests --manifest-path sim/Cargo.toml --package simcuda
        # Without the exhaustive tests of copy plans, which start no threads and take minutes each.
        tests --package vkgdr --lib --test memory --test pool --test ring --test stream --test vulkan \
            -- --skip copy::tests
        VKGDR_STEPS=${VKGDR_STEPS:-10000} tests --package vkgdr --test sequences
        ;;
    python) # The extension module and the simulator. The interpreter is not instrumented: LD_PRELOAD loads the runtime, which Rust
        # ships as an archive only. Leaks are not looked for, since an interpreter frees little at exit; the tests count allocations.
        sim/build.sh # pycuda is linked against its libcuda
        "$target/python/tools/bin/nox" --session python
        # Tests start programs by it under the preloaded runtime, beside which the executable's own crashes.
        program=$(realpath "$sim/vkgdr-sim")
        instrument address
        cp "$program" "$folder/sim/vkgdr-sim"
        # Without the object file for executables, and with the C++ library, whose exception functions the runtime looks up.
        cp "$(rustc --print sysroot)/lib/rustlib/$host/lib/librustc-nightly_rt.asan.a" "$folder/asan.a"
        ar d "$folder/asan.a" asan_preinit.cpp.o
        cc -shared -o "$folder/libasan-of-rust.so" -Wl,--whole-archive "$folder/asan.a" -Wl,--no-whole-archive \
            -lpthread -ldl -lm -lrt -Wl,--no-as-needed -lstdc++
        cargo build --locked --package vkgdr-python
        # The installed package's Python files beside the instrumented module; PYTHONPATH precedes the installed ones.
        environment=$target/python/nox/python package=$folder/python-package reports=$folder/asan-reports
        rm -rf "$package" "$reports" && mkdir "$package" "$reports"
        cp -r "$environment"/lib/python3.*/site-packages/vkgdr "$package"
        cp "$folder/$host/debug/lib_vkgdr.so" "$package/vkgdr/_vkgdr.abi3.so"
        # Reports go to files, since pytest captures the output.
        options=detect_leaks=0:verify_asan_link_order=0:log_path=$reports/report
        without='not no_driver_at_all_is_an_error_with_a_remedy and not the_version_is_that_of_the_distribution'
        without+=' and not a_copy_to_memory_from_itself_without_room_is_a_memory_error and not limit_of_locked_memory'
        without+=' and not frees_without_the_interpreter_leave_nothing_behind'
        # They start an interpreter without the runtime, ask for the installed distribution, limit the address space, lock memory,
        # which the runtime prevents, or need freed bytes back. Python's own allocator would hide uses after free.
        PYTHONPATH=$package PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=$folder/cache ASAN_OPTIONS=$options \
            sim/run env LD_PRELOAD="$folder/libasan-of-rust.so" "$environment/bin/python" -m pytest -p no:cacheprovider \
            ffi/python/tests -k "$without" "$@"
        ;;
    *) echo "there is no part '$kind': miri, address, thread, python" >&2 && exit 2 ;;
esac
