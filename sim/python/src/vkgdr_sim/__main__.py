"""The command ``vkgdr-sim``, also ``python -m vkgdr_sim``: becomes the program of that name."""

import os
import sys

from vkgdr_sim import program

# The exit code of vkgdr-sim's own failures.
FAILED = 125


def main() -> None:
    """Replace this process by the program; returns only to fail."""
    path = str(program())
    try:
        os.execv(path, ["vkgdr-sim", *sys.argv[1:]])
    except OSError as error:
        print(f"vkgdr-sim: {path}: {error.strerror}", file=sys.stderr)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
