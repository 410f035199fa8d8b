"""Memory shared between two processes: ``vkgdr.ipc``, and dpctl's ``MemoryIPCDevice``."""

import os
import socket
import subprocess
import sys
import textwrap
from functools import partial

import pytest
import simulator
import vkgdr
import vkgdr.ipc
from everything import refused
from neighbours import descriptors, every_kind

# In the other process `peer` is the socket and `gpu` the handle.
PRELUDE = """
import os, socket, sys
import numpy as np
import vkgdr, vkgdr.ipc
peer = socket.socket(fileno=int(sys.argv[1]))
gpu = vkgdr.Vkgdr.open_primary_context(0)
"""


@pytest.fixture
def other(pair):
    """Return a function that runs code in another process, with the other end of the socket pair."""
    started = []

    def start(code):
        ours, theirs = pair
        command = [sys.executable, "-X", "dev", "-W", "error", "-c", PRELUDE + textwrap.dedent(code) + "\npeer.close()"]
        command.append(str(theirs.fileno()))
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command, env=environment, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        theirs.close()
        return ours

    yield start
    for process in started:
        try:
            _, errors = process.communicate(timeout=300)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, errors
        assert "Exception ignored" not in errors


@every_kind
def test_another_process_sees_what_this_one_writes_and_this_one_what_it_writes(gpu, other, kind):
    memory = vkgdr.Memory(gpu, 5000, kind=kind)
    memory.copy_from_host(b"from here" + bytes(4991))
    ours = other("""
        memory = vkgdr.ipc.recv(peer, gpu)
        assert type(memory) is vkgdr.Memory
        assert len(memory) == 5000
        assert memory.owner is gpu
        peer.sendall(memory.kind.encode().ljust(8) + memory.tobytes()[:9])
        memory.copy_from_host(b"from there", offset=100)
        peer.sendall(b"!")
        # The one that sent may write at any later time too.
        assert peer.recv(1) == b"?"
        peer.sendall(memory.tobytes()[200:205])
    """)
    vkgdr.ipc.send(ours, memory)
    assert ours.recv(17, socket.MSG_WAITALL) == kind.encode().ljust(8) + b"from here"
    assert ours.recv(1) == b"!"
    memory.invalidate()
    assert memory.tobytes()[100:110] == b"from there"
    memory.copy_from_host(b"later", offset=200)
    ours.sendall(b"?")
    assert ours.recv(5, socket.MSG_WAITALL) == b"later"


@every_kind
def test_memory_of_another_process_comes_here(gpu, other, kind, live):
    ours = other(f"""
        memory = vkgdr.Memory(gpu, 11, kind={kind!r})
        memory.copy_from_host(b"hello world")
        vkgdr.ipc.send(peer, memory)
        memory.free()
        peer.close()
    """)
    memory = vkgdr.ipc.recv(ours, gpu)
    assert (memory.kind, memory.nbytes) == (kind, 11)
    # The other process has freed its memory and ends: the pages must stay.
    assert ours.recv(1) == b""
    assert memory.tobytes() == b"hello world"
    memory.memset(0)
    assert live() == 1


def test_no_descriptor_is_left_open(gpu, pair):
    for _ in range(2):  # the drivers may open devices at the first one
        vkgdr.ipc.send(pair[0], vkgdr.Memory(gpu, 5))
        vkgdr.ipc.recv(pair[1], gpu).free()
    before = descriptors()
    memory = vkgdr.Memory(gpu, 5)
    allocated = descriptors()
    vkgdr.ipc.send(pair[0], memory)
    received = vkgdr.ipc.recv(pair[1], gpu)
    received.free()
    assert descriptors() == allocated
    memory.free()
    assert descriptors() == before


# ---- ``Memory.export_fd`` and ``Memory.import_fd``: the descriptors by which ``vkgdr.ipc`` shares memory -------------


@every_kind
def test_a_descriptor_is_the_same_memory(cuda, gpu, kind):
    memory = vkgdr.Memory(gpu, 5000, kind=kind)
    memory.copy_from_host(b"hello")
    descriptor = memory.export_fd()
    assert not os.get_inheritable(descriptor)
    again = vkgdr.Memory.import_fd(gpu, descriptor, 5000, kind=kind)
    os.close(descriptor)
    assert type(again) is vkgdr.Memory
    assert (again.kind, again.nbytes, again.owner) == (kind, 5000, gpu)
    assert again != memory
    assert again.device_ptr != memory.device_ptr
    assert again.tobytes()[:5] == b"hello"
    assert cuda.read(again.device_ptr, 5) == b"hello"
    again.copy_from_host(b"world", offset=4995)
    memory.invalidate()
    assert memory.tobytes()[-5:] == b"world"
    memory.free()
    assert again.tobytes()[-5:] == b"world"


def test_what_cannot_be_is_not_imported(gpu, simulated):
    memory = vkgdr.Memory(gpu, 5)
    descriptor, before = memory.export_fd(), simulator.ledger()
    for arguments, error, text in (
        ((descriptor, 0), ValueError, "0 bytes"),
        ((descriptor, -1), OverflowError, "-1"),
        ((descriptor, 5, "gpu"), ValueError, "gpu"),
        *(((number, 5), ValueError, "Bad file descriptor") for number in (-1, -100, 10**6, 2**31 - 1)),
        *(((number, 5), TypeError, "") for number in ("x", None, 1.5)),
        ((2**31, 5), OverflowError, ""),
    ):
        kind = {"kind": arguments[2]} if len(arguments) > 2 else {}
        refused(partial(vkgdr.Memory.import_fd, gpu, *arguments[:2], **kind), error, text, arguments)
    assert simulator.ledger() == before
    os.close(descriptor)


@pytest.mark.parametrize("allocate", ["vkgdr.Memory(gpu, 64)", "Held()"])
def test_garbage_is_collected_before_descriptors_count_as_exhausted(run_python, simulated, allocate):
    code = """
import gc, resource
import vkgdr
from vkgdr._vkgdr import Resource

gpu, source = vkgdr.Vkgdr.open_primary_context(), Resource()

class Held:
    def __init__(self):
        self.address = source.allocate(64)

    def __del__(self):
        source.free(getattr(self, "address", 0))

class Cycle:
    def __init__(self, memory):
        self.itself, self.memory = self, memory

Cycle(ALLOCATE)
gc.disable()
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
for _ in range(300):
    Cycle(ALLOCATE)
kept = []
try:
    for _ in range(300):
        kept.append(ALLOCATE)
except vkgdr.VkgdrError as error:
    assert "too many open files" in str(error), error
else:
    raise AssertionError
"""
    run_python(code.replace("ALLOCATE", allocate))
