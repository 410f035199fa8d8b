# Sourced by report.sh, which sets $out and $bundle: removes names of the user's from the report.
# shellcheck shell=bash disable=SC2154 # set by report.sh

hidden=() # sed's arguments

placeholder() { # PLACEHOLDER PATH: the path, or its beginning, but not /root2 for /root
    local path
    path=$(printf '%s\n' "$2" | sed 's/[][\.*^$#]/\\&/g')
    hidden+=(-e "s#$path\\([^A-Za-z0-9_.-]\\|\$\\)#$1\\1#g")
}

# Inner folders first.
placeholder SCRATCH "$VKGDR_SCRATCH"
placeholder OUTPUT "$out"
placeholder BUNDLE "$bundle"
case ${HOME-} in
    '' | /) ;;
    *) placeholder '~' "${HOME%/}" ;;
esac
user=$(id -un 2>/dev/null)
case $user in
    '' | root | nvidia) ;; # names of the system's folders, too
    *) placeholder /USER "/$user" ;;
esac

# Standard input with the placeholders.
hide() { sed "${hidden[@]}"; }

# The same, lines cut off after LENGTH: in this order, so that no part of a name is left at the end of a line.
short() { hide | cut -c1-"$1"; } # LENGTH
