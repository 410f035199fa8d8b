#!/usr/bin/env bash
# Runs the tests under the sanitizers, and under Miri what needs no driver, with the nightly compiler; and loom's models of
# what is lock-free:
#
#     scripts/sanitize.sh [loom | miri | address | thread | c | python]...      all of them by default
#
# Each part has a folder of its own in cargo's target folder and builds everything there, the simulated driver and the
# test layers included, which takes minutes the first time. VKGDR_STEPS is the number of steps of the sequences under
# ThreadSanitizer, 10,000 by default.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
export VKGDR_CUDA_DRIVER=sim VKGDR_TEST_LAYERS=faults
failed=()
whole_target=$target

nightly() { RUSTUP_TOOLCHAIN=nightly "$@"; }

# Naming the target keeps build scripts and macros uninstrumented. -rdynamic exports the sanitizer's functions to
# libraries loaded at run time.
instrument() { # SANITIZER
    target=$whole_target/sanitize-$1
    export CARGO_TARGET_DIR=$target VKGDR_SIM_DIR=$target/sim
    CARGO_BUILD_TARGET=$(rustc -vV | sed -n 's/^host: //p')
    export CARGO_BUILD_TARGET RUSTFLAGS="-Zsanitizer=$1 -Clink-arg=-rdynamic"
    export LSAN_OPTIONS="suppressions=$root/scripts/lsan.supp:print_suppressions=0"
}

# Every Rust test of the crate under AddressSanitizer, which includes LeakSanitizer.
address() (
    instrument address
    nightly scripts/sim.sh dev
    if has cargo-nextest; then
        nightly cargo nextest run --locked --package vkgdr --profile sanitized --no-fail-fast
    else
        nightly cargo test --locked --package vkgdr --lib --tests --no-fail-fast
    fi
)

# What threads share: the pools, memory, streams, copies, and sixteen threads of sequences. The standard library is built
# anew, too: else its locks are not seen.
thread() (
    instrument thread
    rustup component add --toolchain nightly rust-src >/dev/null 2>&1 ||
        die "ThreadSanitizer needs the standard library's sources: rustup component add --toolchain nightly rust-src"
    export CARGO_UNSTABLE_BUILD_STD=std TSAN_OPTIONS="halt_on_error=1 history_size=7 ${TSAN_OPTIONS:-}"
    export VKGDR_STEPS=${VKGDR_STEPS:-10000}
    nightly scripts/sim.sh dev
    # Every test that starts threads.
    nightly cargo test --quiet --locked --package vkgdr --lib -- copy_engine:: device:: pool:: sync::
    nightly cargo test --quiet --locked --package vkgdr --test pool -- threads
    nightly cargo test --quiet --locked --package vkgdr --test memory
    nightly cargo test --quiet --locked --package vkgdr --test sequences -- --nocapture sixteen_threads
)

# C and C++ programs under AddressSanitizer and Valgrind, with the shipped library. It is not instrumented: Valgrind
# checks its memory accesses.
c() (
    scripts/sim.sh
    if has cargo-nextest; then
        cargo nextest run --locked --package vkgdr-c -E 'test(sanitizer) + test(valgrind) + test(bad_input)'
    else
        cargo test --locked --package vkgdr-c --test programs
    fi
)

# The Python tests with an instrumented extension module, see scripts/python-sanitized.sh.
python() (
    scripts/python.sh pycuda
    instrument address
    nightly scripts/sim.sh dev
    scripts/python-sanitized.sh "$python_target/venv"
)

# The unit tests that need no driver, for undefined behaviour and leaks. Isolation is off, since tests read the clock.
miri() (
    nightly cargo miri --version >/dev/null 2>&1 ||
        rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 ||
        die 'Miri cannot be installed: rustup component add --toolchain nightly miri rust-src'
    export CARGO_TARGET_DIR=$whole_target/miri MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=4
    unset CARGO_BUILD_TARGET
    # Outside the sources, so that cargo does not find the runner of .cargo/config.toml.
    cd "${TMPDIR:-/tmp}"
    nightly cargo miri test --manifest-path "$root/Cargo.toml" --locked --package vkgdr --lib -- \
        access::range copy_engine::policy device::deferred_frees device::memory_type error flags memory:: pool:: \
        stream::copy sync::
)

# The models of src/sync.rs, in every interleaving and with every value that a load may give.
loom() (
    RUSTFLAGS='--cfg loom' cargo test --quiet --locked --package vkgdr --release --lib \
        --target-dir "$whole_target/loom" loom_tests
)

[ $# -gt 0 ] || set -- loom miri address thread c python
for part in "$@"; do
    case $part in
        loom | miri | address | thread | c | python) ;;
        *) die "scripts/sanitize.sh: unknown part '$part'" ;;
    esac
    say "sanitizer: $part"
    attempt "$part"
    if [ "$status" -eq 0 ]; then echo "reliability: sanitizer name=$part result=passed"; else failed+=("$part"); fi
done
[ ${#failed[@]} -eq 0 ] || die "not clean: ${failed[*]}"
