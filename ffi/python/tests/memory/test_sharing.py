"""Memory shared between two processes, and what `vkgdr.ipc` refuses: sockets, messages and their senders."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial

import numpy as np
import pytest
import vkgdr
import vkgdr.ipc
from everything import refused
from neighbours import descriptors, every_kind, in_threads

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


def test_what_cannot_be_is_not_imported(gpu):
    descriptor = vkgdr.Memory(gpu, 5).export_fd()
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


# ---- what is refused, and waits that end -----------------------------------------------------------------------------


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
            with pytest.raises(vkgdr.InvalidArgumentError, match=rf"part of memory .* 4096 bytes and offset {offset}$"):
                share(taken, pair[0])
    assert descriptors() == before
    pair[1].setblocking(False)
    with pytest.raises(BlockingIOError):
        pair[1].recv(1)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET])
def test_whole_memory_that_a_capsule_showed_is_shared_by_both_kinds_of_sockets(gpu, kind):
    memory = vkgdr.Memory(gpu, 4096)
    memory.memset(7)
    whole = vkgdr.Memory.from_capsule(memory.__dlpack__())
    ours, theirs = socket.socketpair(type=kind)
    with ours, theirs:
        vkgdr.ipc.send(ours, whole)
        assert vkgdr.ipc.recv(theirs, gpu).tobytes() == b"\7" * 4096
    descriptor = whole.export_fd()
    assert len(vkgdr.Memory.import_fd(gpu, descriptor, len(whole))) == 4096
    os.close(descriptor)


def test_an_import_without_a_free_descriptor_is_no_invalid_argument(gpu):
    descriptor = vkgdr.Memory(gpu, 4096).export_fd()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Every number below is in use.
    lowest = os.dup(descriptor)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, most[1]))
    try:
        with pytest.raises(vkgdr.VkgdrError, match="too many open files") as error:
            vkgdr.Memory.import_fd(gpu, descriptor, 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        os.close(descriptor)
    assert not isinstance(error.value, ValueError)


def test_what_is_no_memory_of_ours_is_not_sent(gpu, pair, foreign):
    for what in (None, b"abc", 5, np.zeros(3)):
        with pytest.raises(TypeError, match=f"{type(what).__name__} cannot be sent"):
            vkgdr.ipc.send(pair[0], what)
    with pytest.raises(vkgdr.InvalidArgumentError, match="another library"):
        vkgdr.ipc.send(pair[0], vkgdr.compat.dpctl.as_memory(foreign))


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

        def close(ours=ours, start=start):
            start.wait()
            # The other thread lets the interpreter go in the call: from then on its socket's number is used again.
            time.sleep(1e-5)
            ours.close()
            return socket.socketpair()

        one, two = in_threads(close, send)[0]
        two.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            strangers += len(two.recv(1))
        for end in (theirs, one, two):
            end.close()
    assert strangers == 0


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_a_socket_that_carries_no_descriptors_or_no_stream_is_refused(gpu, family):
    memory, text = vkgdr.Memory(gpu, 5), "AF_INET" if family == socket.AF_INET else "SOCK_DGRAM"
    with socket.socket(family, socket.SOCK_DGRAM) as one, socket.socket(family, socket.SOCK_DGRAM) as two:
        two.bind(("127.0.0.1", 0) if family == socket.AF_INET else "")
        one.connect(two.getsockname())
        before = descriptors()
        with pytest.raises(OSError, match=text):
            vkgdr.ipc.send(one, memory)
        with pytest.raises(OSError, match=text):
            vkgdr.ipc.recv(one, gpu)
        assert descriptors() == before


def test_the_end_of_the_connection_is_an_eof_error(gpu, pair):
    pair[1].close()
    with pytest.raises(EOFError, match="closed"):
        vkgdr.ipc.recv(pair[0], gpu)


@pytest.mark.parametrize(("timeout", "error"), [(0, BlockingIOError), (0.01, TimeoutError)])
def test_a_timeout_of_the_socket_counts_as_for_its_own_methods(gpu, pair, timeout, error):
    def send_without_end(memory):
        while True:
            vkgdr.ipc.send(pair[0], memory)

    pair[0].settimeout(timeout)
    with pytest.raises(error):
        vkgdr.ipc.recv(pair[0], gpu)
    with pytest.raises(error):
        send_without_end(vkgdr.Memory(gpu, 5))


def test_a_signal_is_handled_while_nothing_has_come(gpu, pair):
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
    memory = vkgdr.Memory(gpu, 5)
    vkgdr.ipc.send(pair[1], memory)
    assert len(vkgdr.ipc.recv(pair[0], gpu)) == 5


def test_a_message_that_another_process_took_is_waited_for_by_python(gpu, pair, monkeypatch):
    """A wait in the system would run no handler of a signal, and keep the other receivers and senders waiting."""
    was_ready, seen = vkgdr.ipc._is_ready, []

    def is_ready(*arguments):
        # As if a message had come, and gone before the call.
        seen.append(None)
        return len(seen) <= 2 or was_ready(*arguments)

    monkeypatch.setattr(vkgdr.ipc, "_is_ready", is_ready)
    pair[0].settimeout(None)
    memory = vkgdr.Memory(gpu, 5)
    later = threading.Timer(0.1, lambda: vkgdr.ipc.send(pair[1], memory))
    later.start()
    assert len(vkgdr.ipc.recv(pair[0], gpu)) == 5
    later.join()
    assert len(seen) > 2


def test_one_of_several_receivers_gets_a_message_and_the_others_can_be_interrupted(run_python):
    run_python("""
        import contextlib, signal, socket, threading, vkgdr, vkgdr.ipc
        gpu = vkgdr.Vkgdr.open_primary_context()
        memory = vkgdr.Memory(gpu, 4096)

        def interrupt(number, frame):
            # Not between a `recv` that has the message and the list.
            if got:
                signal.setitimer(signal.ITIMER_REAL, 0)
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, interrupt)
        for _ in range(30):
            ours, theirs = socket.socketpair()
            got = []
            def receive():
                with contextlib.suppress(EOFError, OSError):
                    got.append(vkgdr.ipc.recv(theirs, gpu))
            threads = [threading.Thread(target=receive) for _ in range(3)]
            threads.append(threading.Timer(0.005, vkgdr.ipc.send, (ours, memory)))
            for thread in threads:
                thread.start()
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.01)
            with contextlib.suppress(KeyboardInterrupt):
                got.append(vkgdr.ipc.recv(theirs, gpu))
                signal.pause()
            threads.pop().join()
            ours.close()
            for thread in threads:
                thread.join()
            theirs.close()
            assert len(got) == 1
    """)


@pytest.fixture
def genuine(gpu):
    """Memory, its message as `send` sends it, and its descriptor."""
    memory = vkgdr.Memory(gpu, 5)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        vkgdr.ipc.send(ours, memory)
        message, [descriptor], _, _ = socket.recv_fds(theirs, 1000, 1)
    assert len(message) == 88
    yield memory, message, descriptor
    os.close(descriptor)


@pytest.mark.parametrize("message", [b"x", b"garbage" * 5, b"VKGDR\0\0\2" + bytes(80)])
@pytest.mark.parametrize("count", [0, 1])
def test_a_message_that_is_none_is_refused(gpu, pair, message, count):
    with open(os.devnull) as null:
        socket.send_fds(pair[1], [message], [null.fileno()] * count)
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match=r"received memory was refused: it does not begin as a message"):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before


@pytest.mark.parametrize(
    ("offset", "field", "text"), [(8, b"Z" * 16, "memory of the GPU 5a5a5a5a-"), (40, bytes(8), "0 bytes of mapped")]
)
def test_a_message_that_does_not_fit_is_refused_and_names_the_field(gpu, pair, genuine, live, offset, field, text):
    message = bytearray(genuine[1])
    message[offset : offset + len(field)] = field
    socket.send_fds(pair[1], [message], [genuine[2]])
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match=text):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before
    assert live() == 0


def test_a_listening_socket_has_nothing_to_receive(gpu):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0vkgdr-test-listener-{os.getpid()}")
        listener.listen()
        # Before `accept`: it would never become readable.
        with pytest.raises(OSError, match="Invalid argument"):
            vkgdr.ipc.recv(listener, gpu, any_user=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a process of another user")
def test_a_process_of_another_user_is_refused_unless_it_is_allowed(gpu, genuine):
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
        command = [sys.executable, "-c", textwrap.dedent(code), address.replace("\0", "@"), message.hex()]
        command.append(str(descriptor))
        subprocess.run(command, pass_fds=[descriptor], check=True, timeout=300)
        stranger, _ = listener.accept()
    with stranger:
        with pytest.raises(vkgdr.VkgdrError, match="belongs to user 65534, not to user 0"):
            vkgdr.ipc.recv(stranger, gpu)
        # It is still in the socket.
        assert vkgdr.ipc.recv(stranger, gpu, any_user=True).tobytes() == b"hello"


def test_a_user_that_the_user_namespace_lacks_is_another_one(run_python):
    code = """
        import ctypes, os, pathlib, socket, sys
        from vkgdr import VkgdrError, _vkgdr
        libc = ctypes.CDLL(None)
        # A socket of user 200000, then a namespace of one user, under the number of all that it lacks.
        try:
            os.seteuid(200000)
        except OSError as error:
            sys.exit(f"no user namespace: {error}")
        pair = socket.socketpair()
        os.seteuid(0)
        if libc.unshare(0x10000000) or not pathlib.Path("/proc/self/uid_map").write_text("65534 0 1"):
            sys.exit("no user namespace")
        try:
            _vkgdr.check_user(pair[0])
        except VkgdrError as error:
            print(os.geteuid(), error)
        for one in pair:
            one.close()
    """
    if os.geteuid():
        pytest.skip("becomes another user, as only root may")
    done = run_python(code, expect=None)
    if "no user namespace" in done.stderr:
        pytest.skip("the system makes no user namespace")
    assert done.stdout.startswith("65534 ")
    assert "perhaps belongs to a user outside of this user namespace" in done.stdout


def test_memory_beyond_the_limit_of_locked_memory_does_not_look_like_an_empty_socket(run_python):
    code = """
        import ctypes, os, resource, socket, vkgdr, vkgdr.ipc
        gpu = vkgdr.Vkgdr.open_primary_context()
        memory = vkgdr.Memory(gpu, 16 << 20, kind="host")
        # Without root's right to lock more. MCL_FUTURE
        os.setresuid(1, 1, 1)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (8 << 20, 8 << 20))
        ours, theirs = socket.socketpair()
        vkgdr.ipc.send(ours, memory)
        if ctypes.CDLL(None).mlockall(2):
            print("not locked")
        for call in (lambda: vkgdr.ipc.recv(theirs, gpu), lambda: vkgdr.Memory(gpu, 16 << 20, kind="host")):
            try:
                call()
            except MemoryError as error:
                print(error)
        ours.close(), theirs.close()
    """
    if os.geteuid():
        pytest.skip("becomes another user, as only root may")
    out = run_python(code).stdout
    if "not locked" in out:
        pytest.skip("the system does not lock memory")
    assert out.count("mmap failed (Cannot allocate memory") == 2, out


def test_a_descriptor_that_the_driver_does_not_know_is_no_shortage_of_memory(gpu, simulated):
    with open(os.devnull, "rb") as null, pytest.raises(vkgdr.VkgdrError, match="EXTERNAL_HANDLE") as error:
        vkgdr.Memory.import_fd(gpu, null.fileno(), 4096)
    assert not isinstance(error.value, MemoryError)
