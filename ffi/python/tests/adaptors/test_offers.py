"""Memory offered to other processes under 64 bytes, as the IPC handles of numba and cuda.core are."""

import contextlib
import logging
import os
import resource
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import vkgdr
from vkgdr import ipc
from vkgdr._vkgdr import Resource

TAKE = """
import sys, vkgdr
from vkgdr import ipc
gpu = vkgdr.Vkgdr.open_primary_context(0)
try:
    memory = ipc.take(bytes.fromhex(sys.argv[1]), gpu)
except vkgdr.VkgdrError as error:
    print(type(error).__name__, error)
else:
    memory.invalidate()
    print(memory.tobytes()[:3].hex(), len(memory), memory.kind)
    memory.memset(9)
"""


def take_elsewhere(data):
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", TAKE, data.hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("kind", ["mapped", "host", "device"])
def test_another_process_takes_the_same_bytes_any_number_of_times(primary, kind):
    memory = vkgdr.Memory(primary, 5000, kind=kind)
    memory.memset(7)
    data = ipc.offer(memory.handle)
    assert len(data) == ipc._SIZE == 64
    assert ipc.is_offer(data)
    assert take_elsewhere(data) == f"070707 5000 {kind}"
    memory.invalidate()
    assert memory.tobytes() == b"\t" * 5000
    assert take_elsewhere(data) == f"090909 5000 {kind}"


def test_what_is_not_sent_ends_also_where_a_child_has_the_connection(primary, monkeypatch):
    inherited, check_user = [], ipc._vkgdr.check_user

    def check(connection):
        # As a child has it that is forked now.
        inherited.append(connection.dup())
        check_user(connection)

    memory = vkgdr.Memory(primary, 64)
    data = ipc.offer(memory.handle)
    memory.free()
    monkeypatch.setattr(ipc._vkgdr, "check_user", check)
    with pytest.raises(vkgdr.InvalidArgumentError, match="freed"):
        ipc.take(data, primary)
    for connection in inherited:
        connection.close()


@pytest.fixture
def memory(primary):
    memory = vkgdr.Memory(primary, 5000)
    memory.memset(7)
    return memory


@pytest.fixture
def data(memory):
    return ipc.offer(memory.handle)


def test_freed_memory_is_not_sent(memory, data):
    memory.free()
    assert take_elsewhere(data).startswith("InvalidArgumentError the offered memory was freed")
    with pytest.raises(vkgdr.InvalidArgumentError, match="no live memory"):
        ipc.offer(12345678)


def test_the_offer_of_a_process_that_ended_is_refused(primary, data):
    other = data[:16] + bytes(16) + data[32:]
    with pytest.raises(vkgdr.InvalidArgumentError, match="memory has ended"):
        ipc.take(other, primary)


@pytest.mark.parametrize("waiting", [0, 1], ids=["silent", "full"])
def test_the_offer_of_a_process_that_does_not_answer_is_refused(primary, data, monkeypatch, waiting):
    monkeypatch.setattr(ipc, "_TIMEOUT", 0.1)
    name = os.urandom(16)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(ipc._address(name))
        # One connection may wait to be accepted.
        silent.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as first:
            if waiting:
                first.connect(ipc._address(name))
            with pytest.raises(vkgdr.InvalidArgumentError, match="does not answer"):
                ipc.take(data[:16] + name + data[32:], primary)


def test_a_full_queue_of_connections_is_waited_for():
    name = f"\0vkgdr-test-queue-{os.getpid()}"
    with contextlib.ExitStack() as sockets:
        listener, *asking = (sockets.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(4))
        listener.bind(name)
        listener.listen(0)
        asking[0].connect(name)
        asking[1].settimeout(0.1)
        with pytest.raises(BlockingIOError):
            asking[1].connect(name)
        accept = threading.Timer(0.2, lambda: sockets.enter_context(listener.accept()[0]))
        accept.start()
        asking[2].settimeout(60)
        ipc._connect(asking[2], name)
        accept.join()


def test_the_default_timeout_of_sockets_does_not_end_the_wait_for_questions(run_python):
    code = """
        import socket, vkgdr
        from vkgdr import ipc
        socket.setdefaulttimeout(0.01)
        memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(), 4096)
        ipc.offer(memory.handle)
        print(ipc._listening[1].gettimeout())
    """
    assert run_python(code).stdout == "None\n"


def test_a_forked_child_does_not_listen_in_the_place_of_its_parent(run_python):
    # The parent ends, and its child lives on.
    code = """
        import os, signal, vkgdr
        from vkgdr import ipc
        offers, offered = os.pipe()
        middle = os.fork()
        if middle == 0:
            memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 5000)
            data = ipc.offer(memory.handle)
            child = os.fork()
            if child == 0:
                signal.pause()
            os.write(offered, data + child.to_bytes(4, "little"))
            os._exit(0)
        answer = os.read(offers, 100)
        os.waitpid(middle, 0)
        try:
            ipc.take(answer[:64], vkgdr.Vkgdr.open_primary_context(0))
        except vkgdr.InvalidArgumentError as error:
            print(error)
        finally:
            os.kill(int.from_bytes(answer[64:], "little"), signal.SIGKILL)
    """
    assert "memory has ended" in run_python(code).stdout


def test_other_bytes_are_no_offer(primary):
    for data in (b"", bytes(64), b"vkgdr"):
        assert not ipc.is_offer(data)
        with pytest.raises(vkgdr.InvalidArgumentError, match="no offer"):
            ipc.take(data, primary)
    # Nor is memory of a pool offered.
    source = Resource(pool=True)
    address = source.allocate(100, 0)
    with pytest.raises(vkgdr.InvalidArgumentError, match="pool"):
        ipc.offer(vkgdr.memory_of(address).handle)
    source.free(address)


def test_a_logger_that_raises_does_not_end_the_offers(data):
    class Raises(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
            raise RuntimeError

    lines, handler, logger = [], Raises(), logging.getLogger("vkgdr")
    logger.addHandler(handler)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            # None is left for the connection that is accepted.
            resource.setrlimit(resource.RLIMIT_NOFILE, (peer.fileno(), most[1]))
            peer.connect(ipc._address(data[16:32]))
            while not lines:
                time.sleep(0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        logger.removeHandler(handler)
    assert "Too many open files" in lines[0]
    assert take_elsewhere(data).startswith("070707")


def test_a_peer_that_asks_for_nothing_does_not_keep_others_waiting(data):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as idle:
        idle.connect(ipc._address(data[16:32]))
        assert take_elsewhere(data).startswith("070707")
        idle.setblocking(False)
        with pytest.raises(BlockingIOError):
            idle.recv(1)


def test_malformed_requests_do_no_harm(memory, data):
    for request in (b"", b"abc", struct.pack("<Q", 1 << 60), struct.pack("<Q", 0)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(ipc._address(data[16:32]))
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""
    assert take_elsewhere(data).startswith("070707")
    assert np.asarray(memory).nbytes == 5000


# Asks for memory as another user, and prints whether it was sent.
ASK = """
import os, socket, struct, sys
user = int(sys.argv[1])
os.setresuid(user, user, user)
name, handle = sys.stdin.readline().split()
with socket.socket(socket.AF_UNIX) as asking:
    asking.settimeout(60)
    asking.connect(chr(0) + name)
    try:
        asking.sendall(struct.pack("<Q", int(handle)))
        print(len(socket.recv_fds(asking, 200, 4)[1]))
    except ConnectionError:
        # Refused, perhaps before the question was sent.
        print(0)
"""


def test_an_offer_is_for_the_effective_user(run_python):
    if os.geteuid():
        pytest.skip("becomes another user, as only root may")
    code = f"""
        import os, subprocess, sys, vkgdr
        from vkgdr import ipc
        users = 65534, 0
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        asking = [subprocess.Popen([sys.executable, "-c", {ASK!r}, str(user)], **pipes) for user in users]
        memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(), 4096)
        # As a setuid program of root that user 65534 started.
        os.setresuid(65534, 0, 0)
        _, name, handle = ipc._LAYOUT.unpack_from(ipc.offer(memory.handle))
        for process in asking:
            print(process.communicate(f"{{ipc._address(name)[1:]}} {{handle}}\\n")[0].strip())
    """
    assert run_python(code).stdout == "0\n1\n"
