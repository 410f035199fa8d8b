"""C for tests: threads and ends of processes that Python does not know, and a ledger after the interpreter's end."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
LIBC = ctypes.CDLL(None)

# The ledger: counts of live objects, written when the process ends, which Python code cannot do.
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct { const char *name; size_t (*count)(const char *); const char *noun; } counters[32];
static int added, descriptor;

static void report(void) {
    for (int i = 0; i < added; i++)
        dprintf(descriptor, "%s\"%s\": %zu", i ? ", " : "", counters[i].name, counters[i].count(counters[i].noun));
}

void add_counter(const char *name, size_t (*count)(const char *), const char *noun) {
    counters[added].name = strdup(name);
    counters[added].count = count;
    counters[added++].noun = strdup(noun);
}

void report_at_exit(int to) {
    descriptor = to;
    atexit(report);
}
"""


def call_on_thread(function: Any, argument: int | None = None) -> None:
    """Call a function of C, or at an address, on a thread that Python did not start."""
    thread, function = ctypes.c_ulong(), ctypes.cast(function, ctypes.c_void_p)
    assert LIBC.pthread_create(ctypes.byref(thread), None, function, ctypes.c_void_p(argument)) == 0
    assert LIBC.pthread_join(thread, None) == 0


def call_at_exit(function: int, argument: int) -> None:
    """Call the function of C at an address when the process ends, after the interpreter has."""
    assert LIBC.__cxa_atexit(ctypes.c_void_p(function), ctypes.c_void_p(argument), None) == 0


def torch_allocator() -> ctypes.CDLL:
    """Return the extension module's C functions for PyTorch, with their types."""
    from vkgdr import _vkgdr

    library = ctypes.CDLL(_vkgdr.__file__)
    for kind in ("mapped", "host", "device"):
        allocate = getattr(library, f"vkgdr_torch_alloc_{kind}")
        allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
    library.vkgdr_torch_free.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    return library


@functools.cache
def path() -> str:
    """Build the ledger and return its path; skip the test without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc)")
    folder = Path(tempfile.mkdtemp(prefix="vkgdr-native-"))
    (folder / "native.c").write_text(SOURCE)
    built = folder / "native.so"
    options = ["-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(built), str(folder / "native.c")]
    subprocess.run([compiler, *options], check=True)
    return str(built)
