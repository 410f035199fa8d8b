"""A small C library for tests: threads unknown to Python, and calls after the interpreter's end."""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = r"""
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

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

/* Threads that write their number over a part each, until all of it was written `rounds` times. */
struct writers {
    uint8_t *bytes;
    size_t part;
    int count, rounds;
    atomic_int started, finished;
    void *object;
    pthread_t threads[16];
};

static void *write_part(void *of) {
    struct writers *writers = of;
    int number = atomic_fetch_add(&writers->started, 1);
    volatile uint8_t *part = writers->bytes + writers->part * number;
    for (int round = 0; round < writers->rounds; round++)
        for (size_t i = 0; i < writers->part; i++) part[i] = (uint8_t)(number + round);
    if (atomic_fetch_add(&writers->finished, 1) == writers->count - 1 && writers->object) give_up(writers->object);
    return 0;
}

/* The last thread to finish gives up `object`, unless that is null. */
void *start_writers(uint8_t *bytes, size_t part, int count, int rounds, void *object) {
    struct writers *writers = calloc(1, sizeof *writers);
    if (!writers || count > 16) abort();
    writers->bytes = bytes;
    writers->part = part;
    writers->count = count;
    writers->rounds = rounds;
    writers->object = object;
    for (int i = 0; i < count; i++)
        if (pthread_create(&writers->threads[i], 0, write_part, writers)) abort();
    return writers;
}

void join_writers(void *of) {
    struct writers *writers = of;
    for (int i = 0; i < writers->count; i++) pthread_join(writers->threads[i], 0);
    free(writers);
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
    command = [compiler, "-std=c11", "-O1", "-shared", "-fPIC", "-pthread", "-o", str(built), str(folder / "native.c")]
    subprocess.run(command, check=True)
    return str(built)


def load(file: str) -> ctypes.CDLL:
    """Load the library; its functions release the GIL."""
    library = ctypes.CDLL(file)
    pointer = ctypes.c_void_p
    for name in ("call_on_thread", "call_at_exit"):
        getattr(library, name).argtypes = [pointer, pointer]
    library.drop_on_thread.argtypes = [pointer]
    library.start_writers.argtypes = [pointer, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, pointer]
    library.start_writers.restype = pointer
    library.join_writers.argtypes = [pointer]
    return library


@functools.cache
def library() -> ctypes.CDLL:
    """Return the library, built and loaded."""
    return load(path())
