"""Messages that `vkgdr.ipc.recv` refuses before a driver sees them, and their senders."""

import os
import socket
import struct
import subprocess
import sys
import textwrap

import pytest
import vkgdr
import vkgdr.ipc
from neighbours import descriptors

LENGTH = 88


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


@pytest.mark.parametrize(
    ("change", "text"), [((8, "16s", b"Z" * 16), "memory of the GPU 5a5a5a5a-"), ((40, "<Q", 0), "0 bytes of mapped")]
)
def test_a_message_that_does_not_fit_is_refused_and_names_the_field(gpu, pair, genuine, live, change, text):
    socket.send_fds(pair[1], [changed(genuine[1], *change)], [genuine[2]])
    before = descriptors()
    with pytest.raises(vkgdr.VkgdrError, match=text):
        vkgdr.ipc.recv(pair[0], gpu)
    assert descriptors() == before
    assert live() == 0


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
        subprocess.run(command, pass_fds=[descriptor], check=True, timeout=300)
        stranger, _ = listener.accept()
    with stranger:
        with pytest.raises(vkgdr.VkgdrError, match="belongs to user 65534, not to user 0"):
            vkgdr.ipc.recv(stranger, gpu)
        # It is still in the socket.
        assert vkgdr.ipc.recv(stranger, gpu, any_user=True).tobytes() == b"hello"
