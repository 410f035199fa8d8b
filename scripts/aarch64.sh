#!/usr/bin/env bash
# Runs the crate's unit tests on an AArch64 CPU emulated by QEMU, mainly for the copy routines in its assembly.
# Emulation checks each access but not their order: the x86-64 host orders accesses that an AArch64 CPU may reorder.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "$(uname -m)" = x86_64 ] || die 'the cross compiler and the emulator are for x86-64 machines; on AArch64, run make test'
triple=aarch64-unknown-linux-gnu
if has rustup && ! rustup target list --installed | grep -qx "$triple"; then
    say "adding Rust's standard library for $triple"
    rustup --quiet target add "$triple" || die "rustup could not add the target $triple"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu'
say 'unit tests on an emulated AArch64 CPU'
# An emulated program has no drivers to load, which shared_fd_tests needs.
cargo test --quiet --locked --release --lib --target "$triple" -- --skip shared_fd_tests
