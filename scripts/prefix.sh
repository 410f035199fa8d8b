# Sourced by the installing scripts: the destination folders, and functions that install and remove files.
#
#   PREFIX   the installation prefix; default /usr/local
#   LIBDIR   the folder of the libraries; default $PREFIX/lib
#   DESTDIR  a staging folder, prepended to every path for packagers; it does not appear in installed files
# shellcheck shell=bash
umask 022

prefix=${PREFIX:-/usr/local}
libdir=${LIBDIR:-${prefix%/}/lib}
destdir=${DESTDIR:-}
for name in PREFIX:"$prefix" LIBDIR:"$libdir" DESTDIR:"${destdir:-/}"; do
    case ${name#*:} in /*) ;; *) die "${name%%:*} must begin with a slash, unlike '${name#*:}'" ;; esac
    case $name in
        *$'\n'* | *'"'* | *\\* | *'$'*) die "${name%%:*} contains a newline, quote, backslash or dollar sign" ;;
    esac
done
prefix=$(realpath -ms "$prefix")
libdir=$(realpath -ms "$libdir")

writable() { # FOLDER...
    local folder
    for folder in "$@"; do
        mkdir -p "$destdir$folder" 2>/dev/null || true
        [ -d "$destdir$folder" ] && [ -w "$destdir$folder" ] && continue
        die "$destdir$folder is not writable: choose another PREFIX, or run this again as root (sudo make ...)"
    done
}

put() { # MODE FILE DESTINATION
    install -m "$1" "$2" "$destdir$3"
}

put_link() { # TARGET DESTINATION
    ln -sfn "$1" "$destdir$2"
}

remove() { # FILE...
    local file count=0
    for file in "$@"; do
        [ -e "$destdir$file" ] || [ -L "$destdir$file" ] || continue
        rm -f "$destdir$file" 2>/dev/null ||
            die "$destdir$file cannot be removed: run this again as root (sudo make ...)"
        count=$((count + 1))
    done
    say "$count files removed from $destdir$prefix"
}
