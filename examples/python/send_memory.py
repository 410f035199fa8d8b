"""Send memory over a Unix socket to another process, such as the Rust example receive_memory, which doubles numbers.

Start `cargo run --example receive_memory PATH` first.

    $ python examples/python/send_memory.py PATH
    the other process doubled the numbers
"""

from __future__ import annotations

import socket
import sys

import numpy as np
import vkgdr
import vkgdr.ipc


def main() -> int:
    """Run the example."""
    if len(sys.argv) != 2:
        sys.exit("usage: send_memory.py PATH")
    gpu = vkgdr.Vkgdr.open_primary_context()
    memory = vkgdr.Memory(gpu, 4000)
    numbers = np.asarray(memory).view(np.float32)
    numbers[:] = np.arange(1000)
    memory.flush()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        vkgdr.ipc.send(connection, memory)
        if connection.recv(1) != b"!":
            sys.exit("send_memory.py: the other process ended")
    memory.invalidate()
    right = np.array_equal(numbers, 2 * np.arange(1000))
    print("the other process doubled the numbers" if right else f"the numbers are {numbers}")
    return 0 if right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (vkgdr.VkgdrError, OSError) as error:
        sys.exit(f"send_memory.py: {error}")
