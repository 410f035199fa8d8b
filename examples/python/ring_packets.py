"""A kernel that keeps running answers packets from a UDP socket: rate, and latency from socket to answer.

The program receives packets and pushes them into a ring in GPU memory, where the kernel of ring_echo.cu reads them. Its
answers come back through the ring's other half and are compared with the packets. With ``--send`` it sends itself
packets over the loopback device, which shows it without another machine.

    $ python examples/python/ring_packets.py --send
    GPU       Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
    socket    127.0.0.1:43344
    received  5000 packets, 5120000 bytes, in 5000 batches; every answer is right
    rate      116 packets/s, 0.12 MB/s (simulated: this says nothing of a GPU)
    latency   53117.3 us at the median, 996149.8 us at 99 of 100 (simulated: this says nothing of a GPU)
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import threading
import time
from collections import deque
from pathlib import Path

import numpy as np
import vkgdr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KERNEL = Path(__file__).resolve().parents[1] / "ring_echo.ptx"
# More than an Ethernet frame's payload.
LONGEST = 2048
# A program that gets no packet, or no answer, for so many seconds ends.
TIMEOUT = 20.0


class Sender(threading.Thread):
    """A thread that sends packets, few of them ahead of the answers: the loopback device drops what does not fit."""

    def __init__(self, address: tuple[str, int], packets: int, size: int) -> None:
        super().__init__(daemon=True)
        self.address, self.packets, self.size = address, packets, size
        self.room = threading.Semaphore(32)

    def run(self) -> None:
        """Send."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for number in range(self.packets):
                self.room.acquire()
                out.sendto(number.to_bytes(8, "little").ljust(self.size, b"."), self.address)


def receive(
    ring: vkgdr.ring.Ring, packets: socket.socket, count: int, sender: Sender | None
) -> tuple[list[float], float, int]:
    """Pass packets on until all were answered; return the latencies and the time in seconds, and the bytes."""
    buffer = bytearray(LONGEST)
    waiting: deque[tuple[bytes, float]] = deque()
    latencies: list[float] = []
    received = total = 0
    begin = last = 0.0
    while len(latencies) < count:
        try:
            # Waits for a packet only while no answer is due.
            packets.settimeout(0 if waiting else TIMEOUT)
            size = packets.recv_into(buffer) if received < count else 0
        except BlockingIOError:
            size = 0
        except TimeoutError as error:
            raise TimeoutError(f"{received} packets came, and none for {TIMEOUT} s") from error
        now = time.perf_counter()
        if size:
            begin = begin or now
            packet = bytes(buffer[:size])
            ring.push(packet, timeout=TIMEOUT)
            waiting.append((packet, now))
            received, total, last = received + 1, total + size, now
        while (answer := ring.try_pop()) is not None:
            packet, then = waiting.popleft()
            if answer != packet:
                raise ValueError(f"the answer to packet {len(latencies)} is wrong")
            last = time.perf_counter()
            latencies.append(last - then)
            if sender is not None:
                sender.room.release()
        if time.perf_counter() - last > TIMEOUT:
            raise TimeoutError(f"{len(latencies)} packets were answered, and none for {TIMEOUT} s")
    return latencies, time.perf_counter() - begin, total


def run(driver: Any, options: argparse.Namespace) -> int:
    """Start the kernel in the current context, and receive."""
    gpu = vkgdr.Vkgdr.open_current_context()
    print(f"GPU       {gpu.name}")
    # The driver needs text with a terminating zero byte.
    kernel = driver.module_from_buffer(KERNEL.read_bytes() + b"\0").get_function("echo")
    stream = driver.Stream()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as packets,
        vkgdr.ring.Ring(gpu, messages=1 << 20, answers=1 << 20) as ring,
    ):
        packets.bind(("127.0.0.1" if options.send else "0.0.0.0", options.port))
        address = packets.getsockname()
        print(f"socket    {address[0]}:{address[1]}", flush=True)
        sender = Sender(address, options.packets, options.size) if options.send else None
        kernel(np.uint64(ring.device_ptr), block=(32, 1, 1), grid=(1, 1), stream=stream)
        if sender is not None:
            sender.start()
        latencies, seconds, total = receive(ring, packets, options.packets, sender)
        ring.close()
        stream.synchronize()
        batches = ring.stats()["publications"]
    simulated = " (simulated: this says nothing of a GPU)" if "simulated" in gpu.name.lower() else ""
    print(f"received  {len(latencies)} packets, {total} bytes, in {batches} batches; every answer is right")
    print(f"rate      {len(latencies) / seconds:.0f} packets/s, {total / seconds / 1e6:.2f} MB/s{simulated}")
    ordered = sorted(latencies)
    middle, late = statistics.median(ordered), ordered[len(ordered) * 99 // 100]
    print(f"latency   {middle * 1e6:.1f} us at the median, {late * 1e6:.1f} us at 99 of 100{simulated}")
    return 0


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="of the socket (default: a free one)")
    parser.add_argument("--packets", type=int, default=5000, help="to receive (default: %(default)s)")
    parser.add_argument("--send", action="store_true", help="send the packets, too")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a sent packet (default: %(default)s)")
    options = parser.parse_args()
    if options.packets < 1 or not 8 <= options.size <= LONGEST:
        parser.error(f"a packet at least, of 8 to {LONGEST} bytes")
    try:
        import pycuda.driver
    except ImportError as error:
        sys.exit(f"ring_packets.py: pycuda cannot be imported ({error}): `make python` installs it; it needs a driver")
    driver: Any = pycuda.driver
    driver.init()
    context = driver.Device(0).make_context()
    try:
        return run(driver, options)
    finally:
        context.pop()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (vkgdr.VkgdrError, OSError, EOFError) as error:
        sys.exit(f"ring_packets.py: {error}")
