#!/usr/bin/env bash
# Measures the simulated driver's kernels against those of an earlier commit, in one process:
#
#     cuda/benches/compare.sh COMMIT [ROUNDS [PART-OF-A-NAME]]
#
# Both drivers are built with the release profile; the earlier one in a worktree below cargo's target folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
commit=$(git rev-parse --verify "${1:?which commit is the base?}^{commit}")
shift
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
base=$target/base
mkdir -p "$target"
[ -e "$base" ] || git worktree add --quiet --detach "$base" "$commit"
git -C "$base" checkout --quiet --detach "$commit"
CARGO_TARGET_DIR=$target/base-target cargo build --locked --quiet --release --package simcuda --manifest-path "$base/sim/Cargo.toml"
cargo build --locked --quiet --release --package simcuda
exec python3 cuda/benches/compare.py "$target/release/libsimcuda.so" "$target/base-target/release/libsimcuda.so" "$@"
