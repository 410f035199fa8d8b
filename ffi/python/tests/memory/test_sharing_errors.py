"""What `vkgdr.ipc` refuses, and waits that end: sockets, timeouts, signals, errors of the drivers."""

import contextlib
import os
import signal
import socket
import threading
import time

import numpy as np
import pytest
import vkgdr
import vkgdr.ipc
from neighbours import descriptors


@pytest.mark.parametrize(
    "share",
    [lambda memory, socket: vkgdr.ipc.send(socket, memory), lambda memory, _: memory.export_fd()],
    ids=["send", "export_fd"],
)
def test_a_part_of_memory_is_not_shared(gpu, pair, share):
    memory = vkgdr.Memory(gpu, 4096)
    before = descriptors()
    for part, offset in ((memory[64:128], 64), (memory[:100], 0)):
        for taken in (part, vkgdr.Memory.from_capsule(part.__dlpack__())):
            with pytest.raises(vkgdr.InvalidArgumentError, match=rf"part of memory .* offset {offset}$"):
                share(taken, pair[0])
    assert descriptors() == before
    pair[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        pair[1].recv(1)


def test_whole_memory_that_a_capsule_showed_is_shared(gpu, pair):
    memory = vkgdr.Memory(gpu, 4096)
    whole = vkgdr.Memory.from_capsule(memory.__dlpack__())
    vkgdr.ipc.send(pair[0], whole)
    assert len(vkgdr.ipc.recv(pair[1], gpu)) == 4096
    descriptor = whole.export_fd()
    assert len(vkgdr.Memory.import_fd(gpu, descriptor, len(whole))) == 4096
    os.close(descriptor)


@pytest.mark.parametrize("what", [None, b"abc", 5, np.zeros(3)])
def test_what_is_no_memory_is_not_sent(gpu, pair, what):
    with pytest.raises(TypeError, match=f"{type(what).__name__} cannot be sent"):
        vkgdr.ipc.send(pair[0], what)


def test_nothing_is_sent_over_a_closed_socket(gpu, pair):
    memory = vkgdr.Memory(gpu, 5)
    before = descriptors()
    pair[1].close()
    with pytest.raises(BrokenPipeError):
        vkgdr.ipc.send(pair[0], memory)
    pair[0].close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        vkgdr.ipc.send(pair[0], memory)
    with pytest.raises(OSError, match="Bad file descriptor"):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before - 2


def test_a_socket_that_another_thread_closes_after_it_was_checked_is_a_closed_one(gpu, pair, monkeypatch):
    memory = vkgdr.Memory(gpu, 5)
    monkeypatch.setattr(vkgdr.ipc, "_check", lambda connection: connection.close())
    with pytest.raises(OSError, match="Bad file descriptor"):
        vkgdr.ipc.send(pair[0], memory)
    with pytest.raises(OSError, match="Bad file descriptor"):
        vkgdr.ipc.recv(pair[1], gpu)


def test_memory_is_not_sent_to_the_peer_of_a_socket_that_gets_the_number_of_one_that_is_closed(gpu, context):
    memory = vkgdr.Memory(gpu, 4096)
    strangers = 0
    for _ in range(300):
        start = threading.Barrier(2)
        ours, theirs = socket.socketpair()

        def send(ours=ours, start=start):
            start.wait()
            # The socket may be closed before the call.
            with context.pushed(), contextlib.suppress(OSError):
                vkgdr.ipc.send(ours, memory)

        thread = threading.Thread(target=send)
        thread.start()
        start.wait()
        # The other thread lets the interpreter go in the call: from then on its socket's number is used again.
        time.sleep(1e-5)
        ours.close()
        one, two = socket.socketpair()
        thread.join()
        two.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            strangers += len(two.recv(1))
        for end in (theirs, one, two):
            end.close()
    assert strangers == 0


def test_a_socket_that_carries_no_descriptors_is_refused(gpu):
    memory = vkgdr.Memory(gpu, 5)
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as two,
    ):
        two.bind(("127.0.0.1", 0))
        one.connect(two.getsockname())
        before = descriptors()
        with pytest.raises(OSError, match="AF_INET"):
            vkgdr.ipc.send(one, memory)
        with pytest.raises(OSError, match="AF_INET"):
            vkgdr.ipc.recv(one, gpu)
        assert descriptors() == before


def test_a_datagram_socket_is_refused(gpu):
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, two:
        with pytest.raises(OSError, match="SOCK_DGRAM"):
            vkgdr.ipc.send(one, vkgdr.Memory(gpu, 5))
        with pytest.raises(OSError, match="SOCK_DGRAM"):
            vkgdr.ipc.recv(two, gpu)


def test_the_end_of_the_connection_is_an_eof_error(gpu, pair):
    pair[1].close()
    with pytest.raises(EOFError, match="closed"):
        vkgdr.ipc.recv(pair[0], gpu)


def send_without_end(connection, memory):
    while True:
        vkgdr.ipc.send(connection, memory)


def test_a_socket_that_does_not_block_raises_as_its_own_methods_do(gpu, pair):
    pair[0].setblocking(False)
    with pytest.raises(BlockingIOError):
        vkgdr.ipc.recv(pair[0], gpu)
    with pytest.raises(BlockingIOError):
        send_without_end(pair[0], vkgdr.Memory(gpu, 5))


def test_a_timeout_of_the_socket_counts(gpu, pair):
    pair[0].settimeout(0.01)
    with pytest.raises(TimeoutError):
        vkgdr.ipc.recv(pair[0], gpu)
    with pytest.raises(TimeoutError):
        send_without_end(pair[0], vkgdr.Memory(gpu, 5))


def test_a_signal_is_handled_while_nothing_has_come(gpu, pair, memory_5):
    """As in Python's own sockets: the handler may raise, or the wait goes on."""
    handled = []

    def handle(*_):
        handled.append(None)
        if len(handled) == 2:
            raise KeyboardInterrupt

    pair[0].settimeout(None)
    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        with pytest.raises(KeyboardInterrupt):
            vkgdr.ipc.recv(pair[0], gpu)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    vkgdr.ipc.send(pair[1], memory_5)
    assert len(vkgdr.ipc.recv(pair[0], gpu)) == 5


@pytest.fixture
def memory_5(gpu):
    return vkgdr.Memory(gpu, 5)


def test_a_seqpacket_socket_carries_memory_too(gpu):
    memory = vkgdr.Memory(gpu, 5)
    memory.copy_from_host(b"hello")
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with ours, theirs:
        vkgdr.ipc.send(ours, memory)
        received = vkgdr.ipc.recv(theirs, gpu)
    assert received.tobytes() == b"hello"


def test_memory_of_another_library_is_not_exported(cuda, gpu, pair):
    pointer = cuda.allocate(5)
    interface = {"shape": (5,), "typestr": "|u1", "data": (pointer, False), "version": 3}
    foreign = vkgdr.compat.dpctl.as_memory(type("Foreign", (), {"__cuda_array_interface__": interface})())
    with pytest.raises(TypeError, match="MemoryDevice cannot be sent"):
        vkgdr.ipc.send(pair[0], foreign)
    foreign.free()
    cuda.free(pointer)


def test_one_of_several_receivers_gets_a_message_and_the_others_can_be_interrupted(run_python):
    code = """
        import os, signal, socket, threading, vkgdr, vkgdr.ipc
        gpu = vkgdr.Vkgdr.open_primary_context()
        memory = vkgdr.Memory(gpu, 4096)

        class Alarm(Exception):
            pass

        def alarm(*_):
            raise Alarm

        signal.signal(signal.SIGALRM, alarm)
        for _ in range(30):
            ours, theirs = socket.socketpair()
            got = []
            def receive():
                try:
                    got.append(vkgdr.ipc.recv(theirs, gpu))
                except (EOFError, OSError):
                    pass
            threads = [threading.Thread(target=receive) for _ in range(3)]
            for thread in threads:
                thread.start()
            timer = threading.Timer(0.005, vkgdr.ipc.send, (ours, memory))
            timer.start()
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                got.append(vkgdr.ipc.recv(theirs, gpu))
                signal.pause()
            except Alarm:
                pass
            timer.join()
            ours.close()
            for thread in threads:
                thread.join()
            theirs.close()
            assert len(got) == 1
    """
    run_python(code)
