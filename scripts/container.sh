#!/usr/bin/env bash
# Tests the container image of the guide, examples/container/Dockerfile: builds it with buildah and runs `vkgdr doctor` in it,
# without a GPU and on the simulated one.
#
# Needs root, buildah, the wheel of `make wheel` and a Debian mirror. Where the base image is not there it is made by debootstrap.
# VKGDR_CONTAINER_OPTIONS are further options of `buildah build`, such as the mount of a pip.conf.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.."
die() { printf 'error: %s\n' "$*" >&2 && exit 1; }
target=$(realpath "${CARGO_TARGET_DIR:-target}") sim=$(realpath "${VKGDR_SIM_DIR:-${CARGO_TARGET_DIR:-sim/target}/sim}")
base=docker.io/library/debian:bookworm-slim file=examples/container/Dockerfile
# Neither needs a daemon or privileges beyond root's.
isolated=(--isolation chroot)
for program in buildah debootstrap; do
    command -v $program >/dev/null || die "needs $program (Debian, Ubuntu: apt install buildah debootstrap)"
done
compgen -G "$target/python/wheel/*.whl" >/dev/null || die 'there is no wheel: run make wheel first'
grep -qx "FROM ${base##*/}" $file || die "$file is not from $base, which this script makes"
if ! buildah inspect --type image $base >/dev/null 2>&1; then
    echo "==> making $base by debootstrap (a minute or more, once)"
    rm -rf "$target/container-base"
    debootstrap --variant=minbase bookworm "$target/container-base" >/dev/null
    container=$(buildah from scratch)
    buildah add -q "$container" "$target/container-base" / >/dev/null
    buildah config --cmd bash "$container"
    buildah commit -q --rm "$container" $base >/dev/null
    rm -rf "$target/container-base"
fi
echo '==> building the image'
read -ra options <<<"${VKGDR_CONTAINER_OPTIONS-}"
buildah build --pull-never "${isolated[@]}" "${options[@]}" -t localhost/vkgdr -f $file "$target/python/wheel" >/dev/null
container=$(buildah from --pull-never localhost/vkgdr)
trap 'buildah rm "$container" >/dev/null' EXIT
expect() { # CODE TEXT COMMAND...
    echo "==> ${*:3}"
    local code=0 out
    out=$(buildah run "${isolated[@]}" -v "$sim:/sim:ro" "$container" -- "${@:3}") || code=$?
    [[ $code = "$1" && $out = *"$2"* ]] || die "ended with $code, expected $1 and '$2':"$'\n'"$out"
}
expect 2 'libcuda.so.1 cannot be loaded' vkgdr doctor
expect 1 'host memory     pages registered with CUDA' /sim/vkgdr-sim --profile no-vulkan -- vkgdr doctor
buildah run --user root "${isolated[@]}" "$container" -- \
    sh -c 'apt-get update -qq && apt-get install -qq --no-install-recommends mesa-vulkan-drivers' >/dev/null 2>&1
expect 0 'mapped memory' /sim/vkgdr-sim -- vkgdr doctor
