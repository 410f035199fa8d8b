"""A small C library for tests: threads unknown to Python, and what is left after the interpreter's end."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void Py_DecRef(void *);
extern int PyGILState_Ensure(void);
extern void PyGILState_Release(int);

/* One call of a function on a new thread. */
struct call { void (*function)(void *); void *argument; };

static void *run(void *of) {
    struct call *call = of;
    call->function(call->argument);
    return 0;
}

int call_on_thread(void (*function)(void *), void *argument) {
    struct call call = {function, argument};
    pthread_t thread;
    if (pthread_create(&thread, 0, run, &call)) return 1;
    return pthread_join(thread, 0);
}

/* One call when the process ends, after the interpreter has. */
static struct call last;

static void run_last(void) { run(&last); }

int call_at_exit(void (*function)(void *), void *argument) {
    last.function = function;
    last.argument = argument;
    return atexit(run_last);
}

/* Gives up one reference, as a receiver's thread does that was handed an array. */
static void give_up(void *object) {
    int state = PyGILState_Ensure();
    Py_DecRef(object);
    PyGILState_Release(state);
}

int drop_on_thread(void *object) { return call_on_thread(give_up, object); }

/* The ledger: counts of live objects, written when the process ends, which Python code cannot do. */
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


@functools.cache
def path() -> str:
    """Build the library and return its path; skip the test without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler (cc)")
    folder = Path(tempfile.mkdtemp(prefix="vkgdr-native-"))
    (folder / "native.c").write_text(SOURCE)
    built = folder / "native.so"
    command = [
        compiler,
        "-std=gnu11",
        "-O1",
        "-shared",
        "-fPIC",
        "-pthread",
        "-o",
        str(built),
        str(folder / "native.c"),
    ]
    subprocess.run(command, check=True)
    return str(built)


def load(file: str) -> ctypes.CDLL:
    """Load the library; its functions release the GIL."""
    library = ctypes.CDLL(file)
    pointer = ctypes.c_void_p
    for name in ("call_on_thread", "call_at_exit"):
        getattr(library, name).argtypes = [pointer, pointer]
    library.drop_on_thread.argtypes = [pointer]
    return library


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library, built and loaded."""
    return load(path())
