#!/usr/bin/env bash
# Installs vkgdr-sim, or removes it with --uninstall: one folder, $LIBDIR/vkgdr-sim, in which no program looks for a driver,
# and a link in $PREFIX/bin. PREFIX is /usr/local by default, LIBDIR $PREFIX/lib; DESTDIR is a staging folder for packagers.
# As root without cargo, and under sudo, it installs an existing build and builds nothing.
set -euo pipefail
CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")"
umask 022
prefix=${PREFIX:-/usr/local} destdir=${DESTDIR:-}
libdir=${LIBDIR:-${prefix%/}/lib}
built=${VKGDR_SIM_DIR:-${CARGO_TARGET_DIR:-target}/sim}
die() { printf 'vkgdr-sim: %s\n' "$1" >&2 && exit 1; }

for folder in "$prefix" "$libdir"; do
    [[ $folder == /* ]] || die "PREFIX and LIBDIR must begin with a slash, unlike '$folder'"
    # The variables of the dynamic linker cannot hold them.
    [[ $folder != *[$':; \n']* ]] || die "PREFIX and LIBDIR must have no colon, semicolon, space or newline, unlike '$folder'"
done
[[ -z $destdir || $destdir == /* ]] || die "DESTDIR must begin with a slash, unlike '$destdir'"
folder=$destdir$libdir/vkgdr-sim link=$destdir$prefix/bin/vkgdr-sim

if [ "${1-}" = --uninstall ]; then
    [ -x "$folder/vkgdr-sim" ] || [ -L "$link" ] || { echo "vkgdr-sim is not installed in $destdir$prefix"; exit; }
    rm -rf "$folder"
    rm -f "$link"
    echo "removed $folder and $link"
    exit
fi
if [ "$(id -u)" -eq 0 ] && { [ "${SUDO_USER-}" ] || ! cargo --version >/dev/null 2>&1; }; then
    [ -x "$built/vkgdr-sim" ] || die 'the simulator is not built: first run this as a user who has cargo, then as root'
    newer=$(find ./*.toml Cargo.lock build.sh cli cuda cudart nvjitlink ptx common vulkan -type f \
        ! -path '*/tests/*' -newer "$built/vkgdr-sim" -print -quit)
    [ -z "$newer" ] || die "$newer has changed since the simulator was built: first run this as a user who has cargo"
else
    ./build.sh
    # build.sh leaves an unchanged file alone: this time says that all are up to date, for the check above.
    touch "$built/vkgdr-sim"
fi
mkdir -p "$folder" "$(dirname "$link")"
(cd "$built" && find . -path ./cache -prune -o ! -type d -print0) | while IFS= read -r -d '' file; do
    mkdir -p "$folder/$(dirname "$file")"
    # Renamed into place: a running program may have the old file mapped.
    cp -P --preserve=mode "$built/$file" "$folder/$file.new"
    mv -f "$folder/$file.new" "$folder/$file"
done
ln -sfn "$(realpath --no-symlinks --relative-to="$(dirname "$link")" "$folder")/vkgdr-sim" "$link"
echo "installed $folder and $link"
case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) [ -n "$destdir" ] || printf "==> shells do not search this folder; set\n    export PATH='%s':\"\$PATH\"\n" "$prefix/bin" ;;
esac
