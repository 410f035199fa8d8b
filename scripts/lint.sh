#!/usr/bin/env bash
# Format, lints and documentation, with warnings as errors.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

say 'rustfmt'
cargo fmt --all --check
say 'clippy'
cargo clippy --quiet --workspace --all-targets --locked -- -D warnings
say 'rustdoc'
RUSTDOCFLAGS='-D warnings' cargo doc --quiet --workspace --no-deps --locked
if has shellcheck; then
    say 'shellcheck'
    shellcheck -x scripts/*.sh tests/run tests/gpu/*.sh .ci/run
else
    say 'shellcheck is not installed: shell scripts not checked'
fi
