"""Several threads receive packets straight into GPU memory, and a CUDA stream takes them from there.

Mapped memory is divided into slots, like a network receiver's ring. Each thread stores packets of a simulated network
into its slots through NumPy arrays. A full slot is flushed and copied by the stream; once the event after that copy is
complete, the slot is written again. Checksums verify every byte copied by the stream.

    $ python examples/python/packets.py
    GPU       Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
    packets   20000 of 8192 bytes, 4 threads
    received  20000 in 0.37 s, 0.44 GB/s (simulated: this says nothing of a GPU)
    checked   all are right
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import sys
import threading
import time
import zlib

import numpy as np
import vkgdr
from vkgdr.compat import pyopencl as ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import numpy.typing as npt
    from vkgdr.stream import Event

SLOTS_PER_THREAD = 2
SLOT_BYTES = 1 << 20
HEADER_BYTES = 8


class Network:
    """The packets sent: each begins with its number and has one of 64 payloads."""

    def __init__(self, size: int) -> None:
        random = np.random.default_rng(0)
        self.payloads = random.integers(0, 256, (64, size - HEADER_BYTES), np.uint8)

    def deliver(self, number: int, packet: npt.NDArray[np.uint8]) -> None:
        """Store a packet, as a network card or its driver would."""
        packet[:HEADER_BYTES] = np.frombuffer(number.to_bytes(HEADER_BYTES, "little"), np.uint8)
        packet[HEADER_BYTES:] = self.payloads[number % 64]

    def checksum(self, number: int) -> int:
        """Return a packet's checksum."""
        return zlib.crc32(self.payloads[number % 64], zlib.crc32(number.to_bytes(HEADER_BYTES, "little")))


class Slot:
    """A buffer for a batch of packets in mapped memory, and its destination in the stream's copy."""

    def __init__(self, ring: vkgdr.Memory, taken: vkgdr.Memory, size: int) -> None:
        self.ring = ring
        self.taken = taken
        self.size = size
        self.packets = np.asarray(ring).reshape(-1, size)
        self.event: Event | None = None
        self.numbers = range(0)

    def send(self, numbers: range) -> None:
        """Pass the packets to the stream, without waiting."""
        used = len(numbers) * self.size
        self.ring.flush(0, used)
        self.event = ops.copy(self.taken, self.ring, byte_count=used, is_blocking=False)
        self.numbers = numbers

    def wait(self, network: Network) -> tuple[int, list[int]]:
        """Wait for the stream; return the number of packets copied, and the numbers of wrong ones."""
        if self.event is None:
            return 0, []
        self.event.synchronize()
        self.event = None
        self.taken.invalidate(0, len(self.numbers) * self.size)
        packets = np.asarray(self.taken).reshape(-1, self.size)
        sums = (zlib.crc32(packet.data) for packet in packets)
        wrong = [number for number, got in zip(self.numbers, sums, strict=False) if got != network.checksum(number)]
        return len(self.numbers), wrong


class Receiver(threading.Thread):
    """A thread that takes batches of packets from a queue, until there are no more."""

    def __init__(self, network: Network, slots: list[Slot], batches: queue.SimpleQueue[range]) -> None:
        super().__init__()
        self.network, self.slots, self.batches = network, slots, batches
        self.received = 0
        self.wrong: list[int] = []
        self.error: Exception | None = None

    def run(self) -> None:
        """Receive."""
        try:
            turn = 0
            while True:
                try:
                    numbers = self.batches.get_nowait()
                except queue.Empty:
                    break
                slot = self.slots[turn]
                self.finish(slot)
                for number, packet in zip(numbers, slot.packets, strict=False):
                    self.network.deliver(number, packet)
                slot.send(numbers)
                turn = (turn + 1) % len(self.slots)
            for slot in self.slots:
                self.finish(slot)
        except Exception as error:  # noqa: BLE001 - the main thread raises it
            self.error = error

    def finish(self, slot: Slot) -> None:
        """Return a slot for reuse."""
        received, wrong = slot.wait(self.network)
        self.received += received
        self.wrong += wrong


def receive(gpu: vkgdr.Vkgdr, threads: int, packets: int, size: int) -> tuple[list[Receiver], float]:
    """Run the threads; return them and their time in seconds."""
    per_slot = max(1, SLOT_BYTES // size)
    slot_bytes = per_slot * size
    network = Network(size)
    ring = vkgdr.Memory(gpu, threads * SLOTS_PER_THREAD * slot_bytes, name="ring")
    batches: queue.SimpleQueue[range] = queue.SimpleQueue()
    for first in range(0, packets, per_slot):
        batches.put(range(first, min(first + per_slot, packets)))
    receivers = []
    for thread in range(threads):
        starts = [(thread * SLOTS_PER_THREAD + number) * slot_bytes for number in range(SLOTS_PER_THREAD)]
        # The CPU checks the copies, which are in memory that it reads fast.
        slots = [Slot(ring[at : at + slot_bytes], vkgdr.Memory(gpu, slot_bytes, kind="host"), size) for at in starts]
        receivers.append(Receiver(network, slots, batches))
    begin = time.perf_counter()
    for receiver in receivers:
        receiver.start()
    try:
        for receiver in receivers:
            while receiver.is_alive():
                receiver.join(0.25)
                if sys.stdout.isatty():
                    print(f"\rreceived  {sum(each.received for each in receivers)}", end="", flush=True)
    except BaseException:
        # The threads end once there are no more batches, as after Ctrl-C.
        with contextlib.suppress(queue.Empty):
            while True:
                batches.get_nowait()
        raise
    if sys.stdout.isatty():
        print("\r", end="")
    return receivers, time.perf_counter() - begin


def number_between(least: int, most: int) -> Any:
    """Return a type for a command-line argument."""

    def number(text: str) -> int:
        value = int(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be from {least} to {most}, not {value}")
        return value

    return number


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=number_between(1, 256), default=4, help="that receive (default: %(default)s)")
    parser.add_argument(
        "--packets", type=number_between(1, 10**9), default=20_000, help="in all (default: %(default)s)"
    )
    parser.add_argument(
        "--size",
        type=number_between(HEADER_BYTES, 1 << 20),
        default=8192,
        help="bytes of a packet (default: %(default)s)",
    )
    arguments = parser.parse_args()
    threads, packets, size = arguments.threads, arguments.packets, arguments.size

    gpu = vkgdr.Vkgdr.open_primary_context()
    print(f"GPU       {gpu.name}")
    print(f"packets   {packets} of {size} bytes, {threads} threads")
    receivers, seconds = receive(gpu, threads, packets, size)
    for receiver in receivers:
        if receiver.error is not None:
            raise receiver.error
    received = sum(receiver.received for receiver in receivers)
    simulated = " (simulated: this says nothing of a GPU)" if "simulated" in gpu.name.lower() else ""
    print(f"received  {received} in {seconds:.2f} s, {received * size / seconds / 1e9:.2f} GB/s{simulated}")
    wrong = sorted(number for receiver in receivers for number in receiver.wrong)
    if wrong or received != packets:
        print(f"checked   {len(wrong)} are wrong, {packets - received} are missing")
        return 1
    print("checked   all are right")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except vkgdr.VkgdrError as error:
        sys.exit(f"packets.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)  # as the shell reports an end by Ctrl-C
