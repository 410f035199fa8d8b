#!/usr/bin/env bash
# Installs vkgdr-sim, the simulated CUDA driver and the Vulkan layers, or uninstalls them:
#
#     scripts/install-sim.sh [--uninstall]
#
# PREFIX, LIBDIR and DESTDIR select the folders (scripts/prefix.sh). Everything is in one folder, in which no program
# looks for a driver; only vkgdr-sim is linked into $PREFIX/bin.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=prefix.sh
source scripts/prefix.sh

bindir=$(realpath -ms "$prefix/bin")
simdir=$libdir/vkgdr-sim

files() { # FOLDER: lists its files, except the tests' cache
    find "$1" -name cache -prune -o \( -type f -o -type l \) -printf '%P\n' | sort
}

case ${1-} in
    '') ;;
    --uninstall)
        installed=()
        if [ -d "$destdir$simdir" ]; then
            mapfile -t installed < <(files "$destdir$simdir" | sed "s|^|$simdir/|")
        fi
        remove "$bindir/vkgdr-sim" "${installed[@]}"
        [ ! -d "$destdir$simdir" ] || find "$destdir$simdir" -depth -type d -empty -delete
        exit
        ;;
    *) die "scripts/install-sim.sh: unknown argument '$1'" ;;
esac

if has cargo || [ "$(id -u)" -ne 0 ]; then
    scripts/setup.sh rust
    scripts/sim.sh
fi
[ -e "$VKGDR_SIM_DIR/vkgdr-sim" ] || die 'cargo is missing: first run this as a user who has cargo, then as root'

writable "$bindir" "$simdir"
cd "$VKGDR_SIM_DIR"
mapfile -t built < <(files .)
for file in "${built[@]}"; do
    mkdir -p "$(dirname "$destdir$simdir/$file")"
    if [ -L "$file" ]; then
        put_link "$(readlink "$file")" "$simdir/$file"
    else
        put "$([ -x "$file" ] && echo 755 || echo 644)" "$file" "$simdir/$file"
    fi
    printf '%s\n' "$destdir$simdir/$file"
done
put_link "$(realpath -ms --relative-to="$bindir" "$simdir")/vkgdr-sim" "$bindir/vkgdr-sim"
printf '%s\n' "$destdir$bindir/vkgdr-sim"
