"""Memory shared between two processes: ``vkgdr.ipc``, and dpctl's ``MemoryIPCDevice``."""

import os
import socket
import subprocess
import sys
import textwrap

import pytest
import vkgdr
import vkgdr.ipc
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
