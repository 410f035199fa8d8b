"""Commands with a time limit, and the programs that they start."""

import contextlib
import os
import signal
import subprocess
from typing import Any

# The processes that run now. Each leads a group of its own, which no interrupt of the terminal reaches.
running: set[int] = set()


def timed(command: list[str], limit: float, **options: Any) -> tuple[str, int | None]:
    """Run a command; return what it printed, and its exit code, or None if it took more than this number of seconds.

    Then all programs of its group are killed: those that it started may hold the pipe, for whose end this waits.
    """
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True, **options
    ) as process:
        running.add(process.pid)
        try:
            return process.communicate(timeout=limit)[0], process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.communicate()[0], None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            running.discard(process.pid)


def kill_all() -> None:
    """Kill the groups of all processes that run now, in any thread."""
    for group in list(running):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
