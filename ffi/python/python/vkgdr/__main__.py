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
    """Carry out a command line, by default that of the process, which an interrupt then ends; return the exit code."""
    if arguments is None:
        # Python's own handler would run only once the command has ended.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        arguments = sys.argv[1:]
    if sys.stdout is not None:
        sys.stdout.flush()
    return _vkgdr.command(["vkgdr", *arguments])


if __name__ == "__main__":
    sys.exit(main())
