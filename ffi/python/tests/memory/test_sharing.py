"""Memory shared between two processes: ``vkgdr.ipc``, and dpctl's ``MemoryIPCDevice``."""

import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import simulator
import vkgdr
import vkgdr.ipc
from neighbours import every_kind, every_visible_kind, first_of_path

# In the other process `peer` is the socket and `gpu` the handle.
PRELUDE = """
import os, socket, sys
import numpy as np
import vkgdr, vkgdr.ipc
peer = socket.socket(fileno=int(sys.argv[1]))
gpu = vkgdr.Vkgdr.open_primary_context(0)
"""


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    # Does not wait forever if the other process dies.
    ours.settimeout(40)
    with ours, theirs:
        yield ours, theirs


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
            _, errors = process.communicate(timeout=40)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 0, errors
        assert "Exception ignored" not in errors


def descriptors():
    return len(os.listdir("/proc/self/fd"))


# ---- vkgdr.ipc.send / recv ------------------------------------------------------------------------------------------


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


@every_visible_kind
def test_both_sides_of_both_processes_see_the_same_bytes(cuda, gpu, other, kind):
    memory = vkgdr.Memory(gpu, 8, kind=kind)
    cuda.write(memory.device_ptr, b"device A")
    ours = other(
        """
        sys.path.insert(0, os.path.dirname(os.environ["TEST_LIBCUDA"]))
        import libcuda
        cuda = libcuda.Cuda()
        cuda.push(cuda.retain_primary())
        memory = vkgdr.ipc.recv(peer, gpu)
        memory.invalidate()
        assert bytes(np.asarray(memory)) == b"device A"
        assert cuda.read(memory.device_ptr, 8) == b"device A"
        np.asarray(memory)[:] = np.frombuffer(b"CPU of B", "u1")
        memory.flush()
        peer.sendall(b"!")
        assert peer.recv(1) == b"?"
        cuda.write(memory.device_ptr, b"device B")
        peer.sendall(b"!")
        cuda.pop()
        cuda.release_primary()
    """.replace('os.environ["TEST_LIBCUDA"]', repr(simulator.__file__))
    )
    vkgdr.ipc.send(ours, memory)
    assert ours.recv(1) == b"!"
    memory.invalidate()
    assert bytes(np.asarray(memory)) == b"CPU of B"
    assert cuda.read(memory.device_ptr, 8) == b"CPU of B"
    ours.sendall(b"?")
    assert ours.recv(1) == b"!"
    memory.invalidate()
    assert bytes(np.asarray(memory)) == b"device B"


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


def test_memory_may_be_freed_once_it_is_sent(gpu, other, live):
    memory = vkgdr.Memory(gpu, 5)
    memory.copy_from_host(b"hello")
    ours = other("""
        assert peer.recv(1) == b"!"
        memory = vkgdr.ipc.recv(peer, gpu)
        peer.sendall(memory.tobytes())
    """)
    ours.sendall(b"!")
    vkgdr.ipc.send(ours, memory)
    memory.free()
    assert live() == 0
    assert ours.recv(5, socket.MSG_WAITALL) == b"hello"


def test_several_memories_go_over_one_socket(gpu, other):
    ours = other("""
        memories = [vkgdr.ipc.recv(peer, gpu) for _ in range(5)]
        peer.sendall(b"".join(memory.tobytes() for memory in memories))
    """)
    for number in range(5):
        memory = vkgdr.Memory(gpu, 1 + number)
        memory.memset(ord("a") + number)
        vkgdr.ipc.send(ours, memory)
    assert ours.recv(15, socket.MSG_WAITALL) == b"abbcccddddeeeee"


def test_received_memory_can_be_sent_on(gpu, other, pair):
    memory = vkgdr.Memory(gpu, 5)
    vkgdr.ipc.send(pair[0], memory)
    again = vkgdr.ipc.recv(pair[1], gpu)
    ours = other("""
        memory = vkgdr.ipc.recv(peer, gpu)
        memory.copy_from_host(b"hello")
        peer.sendall(b"!")
    """)
    vkgdr.ipc.send(ours, again)
    assert ours.recv(1) == b"!"
    memory.invalidate()
    assert memory.tobytes() == again.tobytes() == b"hello"


def test_memory_in_the_memory_of_a_process_spawned_by_multiprocessing(gpu, tmp_path, run_python):
    code = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import multiprocessing, socket, vkgdr, vkgdr.ipc, child
        if __name__ == "__main__":
            gpu = vkgdr.Vkgdr.open_primary_context(0)
            ours, theirs = socket.socketpair()
            spawn = multiprocessing.get_context("spawn")
            process = spawn.Process(target=child.work, args=(theirs,))
            process.start()
            theirs.close()
            memory = vkgdr.Memory(gpu, 5)
            vkgdr.ipc.send(ours, memory)
            assert ours.recv(1) == b"!"
            memory.invalidate()
            process.join()
            ours.close()
            print(memory.tobytes(), process.exitcode)
    """
    (tmp_path / "child.py").write_text(
        textwrap.dedent("""
        import vkgdr, vkgdr.ipc

        def work(peer):
            with peer:
                memory = vkgdr.ipc.recv(peer, vkgdr.Vkgdr.open_primary_context(0))
                memory.copy_from_host(b"hello")
                peer.sendall(b"!")
    """)
    )
    assert run_python(code, PYTHONPATH=first_of_path(tmp_path)).stdout == "b'hello' 0\n"


def test_no_descriptor_is_left_open(gpu, pair):
    vkgdr.Memory(gpu, 5).free()
    before = descriptors()
    memory = vkgdr.Memory(gpu, 5)
    allocated = descriptors()
    vkgdr.ipc.send(pair[0], memory)
    received = vkgdr.ipc.recv(pair[1], gpu)
    received.free()
    assert descriptors() == allocated
    memory.free()
    assert descriptors() == before


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_a_region_is_not_sent(gpu, pair):
    memory = vkgdr.Memory(gpu, 100)
    with pytest.raises(TypeError, match=r"region cannot be sent: .* offset 10"):
        vkgdr.ipc.send(pair[0], memory[10:20])


@pytest.mark.parametrize("what", [None, b"abc", 5, np.zeros(3)])
def test_what_is_no_memory_is_not_sent(gpu, pair, what):
    with pytest.raises(TypeError, match=f"{type(what).__name__} cannot be sent"):
        vkgdr.ipc.send(pair[0], what)


def test_freed_memory_is_not_sent(gpu, pair):
    memory = vkgdr.Memory(gpu, 5)
    memory.free()
    with pytest.raises(vkgdr.FreedError):
        vkgdr.ipc.send(pair[0], memory)


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


def test_the_end_of_the_connection_is_an_eof_error(gpu, pair):
    pair[1].close()
    with pytest.raises(EOFError, match="closed"):
        vkgdr.ipc.recv(pair[0], gpu)


LENGTH = 88
OLD_MESSAGE = struct.pack("!8sQ8s", b"vkgdr\0\0\1", 5, b"mapped")


@pytest.fixture
def genuine(gpu):
    """Memory, its message as `send` sends it, and its descriptor."""
    memory = vkgdr.Memory(gpu, 5)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        vkgdr.ipc.send(ours, memory)
        message, [descriptor], _, _ = socket.recv_fds(theirs, 1000, 1)
    assert len(message) == LENGTH
    yield memory, message, descriptor
    os.close(descriptor)


def changed(message, offset, *fields):
    content = struct.pack(*fields)
    return message[:offset] + content + message[offset + len(content) :]


@pytest.mark.parametrize("message", [b"x", b"garbage" * 5, b"VKGDR\0\0\2" + bytes(80)])
@pytest.mark.parametrize("count", [0, 1])
def test_a_message_that_is_none_is_refused(gpu, pair, message, count):
    with open(os.devnull) as null:
        socket.send_fds(pair[1], [message], [null.fileno()] * count)
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match=r"received memory was refused: it does not begin as a message"):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before


def test_a_message_of_version_1_is_refused_with_an_error_that_says_so(gpu, pair, genuine):
    socket.send_fds(pair[1], [OLD_MESSAGE], [genuine[2]])
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match="version 1, this library has version 2: use the same vkgdr in both"):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before


@pytest.mark.parametrize("length", [8, LENGTH - 1])
def test_a_message_that_ends_early_is_refused(gpu, pair, genuine, length):
    socket.send_fds(pair[1], [genuine[1][:length]], [genuine[2]])
    pair[1].close()
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match=f"ends after {length} of 88 bytes"):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_message_without_exactly_one_descriptor_is_refused(gpu, pair, genuine, count):
    socket.send_fds(pair[1], [genuine[1]], [genuine[2]] * count)
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match="several descriptors" if count else "no descriptor"):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ((8, "16s", b"Z" * 16), "memory of the GPU 5a5a5a5a-"),
        ((24, "16s", b"Z" * 16), "another Vulkan driver or version: 5a5a5a5a-"),
        ((40, "<Q", 0), "0 bytes of mapped"),
        ((40, "<Q", 1 << 63), "8 EiB of mapped"),
        ((48, "<Q", 1 << 63), "in an allocation of 8 EiB"),
        ((64, "<I", 3), "unknown kind 3"),
        ((72, "<I", 99), "memory type 99"),
    ],
)
def test_a_message_that_does_not_fit_is_refused_and_names_the_field(gpu, pair, genuine, live, change, text):
    socket.send_fds(pair[1], [changed(genuine[1], *change)], [genuine[2]])
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match=text):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before
    assert live() == 0


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a process of another user")
def test_a_process_of_another_user_is_refused_unless_it_is_allowed(gpu, genuine, tmp_path):
    memory, message, descriptor = genuine
    memory.copy_from_host(b"hello")
    address = f"\0vkgdr-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        code = """
            import os, socket, sys
            os.setuid(65534)
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(sys.argv[1].replace("@", chr(0)))
                socket.send_fds(stranger, [bytes.fromhex(sys.argv[2])], [int(sys.argv[3])])
        """
        command = [
            sys.executable,
            "-c",
            textwrap.dedent(code),
            address.replace("\0", "@"),
            message.hex(),
            str(descriptor),
        ]
        subprocess.run(command, pass_fds=[descriptor], check=True, timeout=40)
        stranger, _ = listener.accept()
    with stranger:
        with pytest.raises(vkgdr.VkgdrError, match="belongs to user 65534, not to user 0"):
            vkgdr.ipc.recv(stranger, gpu)
        # It is still in the socket.
        assert vkgdr.ipc.recv(stranger, gpu, any_user=True).tobytes() == b"hello"


def test_memory_of_another_library_is_not_exported(cuda, gpu, pair):
    pointer = cuda.allocate(5)
    interface = {"shape": (5,), "typestr": "|u1", "data": (pointer, False), "version": 3}
    foreign = vkgdr.memory.as_memory(type("Foreign", (), {"__cuda_array_interface__": interface})())
    with pytest.raises(TypeError, match="MemoryDevice cannot be sent"):
        vkgdr.ipc.send(pair[0], foreign)
    foreign.free()
    cuda.free(pointer)


@pytest.mark.parametrize("code", [-2, -9])
def test_a_failing_export_is_an_error_and_leaves_nothing_open(gpu, pair, simulated, code):
    memory = vkgdr.Memory(gpu, 5)
    before = descriptors()
    with simulator.vulkan.fail("vkGetMemoryFdKHR", 1, code), pytest.raises(vkgdr.VkgdrError, match="vkGetMemoryFdKHR"):
        vkgdr.ipc.send(pair[0], memory)
    assert descriptors() == before


@pytest.mark.parametrize("function", ["cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"])
def test_a_failing_import_is_an_error_and_leaves_nothing_open(gpu, pair, simulated, function, live):
    memory = vkgdr.Memory(gpu, 5)
    vkgdr.ipc.send(pair[0], memory)
    before = descriptors()
    with simulator.fail(function, 1, 2), pytest.raises(vkgdr.VkgdrError, match=function):
        vkgdr.ipc.recv(pair[1], gpu)
    # The descriptor in the socket is closed.
    assert descriptors() == before
    assert live() == 1
