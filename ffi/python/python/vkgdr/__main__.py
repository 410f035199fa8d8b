"""The command ``vkgdr``, also as ``python -m vkgdr``: Rust code, which is part of the extension module."""

from __future__ import annotations

import signal
import sys

from vkgdr import _vkgdr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line, and return the exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Command-line arguments; those of the process by default, which an interrupt then ends at once.

    Returns
    -------
    int
        0, or the code of the failure.
    """
    if arguments is None:
        # Python's own handler would run only once the command has ended.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        arguments = sys.argv[1:]
    sys.stdout.flush()
    return _vkgdr.command(["vkgdr", *arguments])


if __name__ == "__main__":
    sys.exit(main())
