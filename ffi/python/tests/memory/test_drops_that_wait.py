"""Drops that wait for the device let other Python threads run meanwhile: one may be what the device waits for."""

import textwrap

import pytest

MAKE = {
    "memory": "one = vkgdr.Memory(gpu, 64)",
    "a map": "one = vkgdr.Memory(gpu, 64).map()",
    "a capsule": "one = vkgdr.Memory(gpu, 64).__dlpack__()",
    "a mapping": "memory = vkgdr.Memory(gpu, 64); one = vkgdr.Mapping(gpu, memory.device_ptr, 64); del memory",
    "a ring": "one = vkgdr.ring.Ring(gpu, 64, 64)",
    "a pool": "one = vkgdr.pool.Pool(gpu); memory = one.allocate(100); memory.device_ptr; del memory",
    "memory of a pool that is gone": "pool = vkgdr.pool.Pool(gpu); one = pool.allocate(100); one.device_ptr; del pool",
    "a resource with a pool": "one = Resource(pool=True); one.free(one.allocate(100))",
    "memory of a resource that is gone": """
        lends = Resource(pool=True); one = vkgdr.memory_of(lends.allocate(100)); lends.free(one.device_ptr); del lends
    """,
}

PROGRAM = """
import faulthandler, gc, threading, time
import libcuda
import vkgdr
from vkgdr._vkgdr import Resource
cuda = libcuda.Cuda()
cuda.push(cuda.retain_primary())
gpu = vkgdr.Vkgdr.open_primary_context()
stream = cuda.create_stream()
MAKE
# Ends the program by a thread that needs no interpreter.
faulthandler.dump_traceback_later(20, exit=True)
with cuda.hold(stream) as gate:
    opened = threading.Event()
    def let_go():
        # Too short a sleep can only miss a defect.
        time.sleep(0.1)
        opened.set()
        gate.open()
    threading.Thread(target=let_go).start()
    del one
    gc.collect()
    assert opened.is_set(), "the drop did not wait"
faulthandler.cancel_dump_traceback_later()
"""


@pytest.mark.parametrize("make", MAKE)
def test_other_threads_run_while_a_drop_waits(run_python, make):
    run_python(PROGRAM.replace("MAKE", textwrap.dedent(MAKE[make]).strip()))
