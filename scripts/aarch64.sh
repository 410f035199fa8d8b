#!/usr/bin/env bash
# Runs the crate's unit tests as an AArch64 CPU would, emulated by QEMU: the copy routines above all, which are written in
# that CPU's assembly. An emulator shows that each access is right, not that their order is: this machine's CPU keeps
# accesses in order that an AArch64 CPU does not.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ "$(uname -m)" = x86_64 ] || die 'the cross compiler and the emulator are for x86-64 machines; on AArch64, run make test'
triple=aarch64-unknown-linux-gnu
if has rustup && ! rustup target list --installed | grep -qx "$triple"; then
    say "adding Rust's libraries for $triple"
    rustup --quiet target add "$triple" || die "rustup could not add the target $triple"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu'
say 'unit tests on an emulated AArch64 CPU'
# There are no drivers for the emulated program to load.
cargo test --quiet --locked --release --lib --target "$triple" -- --skip shared_fd_tests
