"""`vkgdr.ring`: messages to a running kernel, and answers from it."""

import gc
import time
import weakref
from pathlib import Path

import numpy as np
import pytest
import vkgdr
from neighbours import Stream, in_threads
from vkgdr.ring import CUDA_HEADER, Ring

KERNEL = Path(__file__).resolve().parents[4] / "examples" / "ring_echo.ptx"


@pytest.fixture
def gpu(pycuda_context):
    return vkgdr.Vkgdr.open_current_context()


@pytest.fixture
def echo(pycuda_context):
    """Start the example's kernel on a ring."""
    import pycuda.driver as drv

    kernel = drv.module_from_buffer(KERNEL.read_bytes() + b"\0").get_function("echo")

    def start(ring):
        stream = drv.Stream()
        kernel(np.uint64(ring.device_ptr), block=(32, 1, 1), grid=(1, 1), stream=stream)
        return stream

    return start


def test_messages_of_every_kind_of_buffer_come_back(gpu, echo):
    ring = Ring(gpu, messages=1000, answers=1000)
    assert ring.max_message == 1000
    stream = echo(ring)
    array = np.arange(100, dtype=np.float64)
    for message in (b"", b"x", bytearray(range(256)), memoryview(b"1234")[1:3], array):
        ring.push(message, timeout=20)
        assert ring.pop(timeout=20) == memoryview(message).tobytes()
    ring.close()
    with pytest.raises(EOFError, match="the ring is closed"):
        ring.push(b"more")
    with pytest.raises(EOFError, match="the ring is closed"):
        ring.pop()
    stream.synchronize()
    stats = ring.stats()
    assert (stats["pushed"], stats["popped"], stats["unread_bytes"]) == (5, 5, 0)


def test_a_full_ring_takes_nothing_and_an_empty_one_gives_nothing(gpu):
    ring = Ring(gpu, 64, 64)
    assert ring.try_pop() is None
    assert ring.push_all([b"one", b"two", b"three"]) == 2
    assert not ring.try_push(b"three")
    for timeout in (0, 0.001, -1):
        with pytest.raises(TimeoutError, match="push timed out"):
            ring.push(b"three", timeout=timeout)
        with pytest.raises(TimeoutError, match="pop timed out"):
            ring.pop(timeout=timeout)
    # Longer than the time between two looks at signals.
    with pytest.raises(TimeoutError):
        ring.pop(timeout=0.12)
    assert ring.stats()["publications"] == 1
    assert ring.kind in ("mapped", "host")


def test_invalid_arguments_are_refused(gpu):
    for sizes in ((0, 64), (64, 0)):
        with pytest.raises(vkgdr.InvalidArgumentError, match="0 bytes"):
            Ring(gpu, *sizes)
    for size in (2**62, 2**63 - 1, 2**63, 2**64 - 1):
        for sizes in ((size, 64), (64, size)):
            error = (MemoryError, vkgdr.InvalidArgumentError)
            with pytest.raises(error, match=r"there is room for|requested"):
                Ring(gpu, *sizes)
    with pytest.raises(OverflowError):
        Ring(gpu, -1, 64)
    with pytest.raises(TypeError):
        Ring(object(), 64, 64)
    ring = Ring(gpu, 64, 64)
    with pytest.raises(vkgdr.InvalidArgumentError, match="messages of 65 bytes do not fit: there is room for 64"):
        ring.try_push(bytes(65))
    with pytest.raises(TypeError):
        ring.push("text")
    with pytest.raises(ValueError, match="timeout"):
        ring.push(b"", timeout=float("nan"))
    with pytest.raises(vkgdr.InvalidArgumentError, match="contiguous"):
        ring.push(np.zeros(10, np.uint8)[::2])
    with pytest.raises(TypeError):
        ring.push_all([b"x", 3])
    assert ring.stats()["pushed"] == 0


def test_an_abort_ends_the_kernel_and_the_waits_of_other_threads(gpu, echo):
    with Ring(gpu, 64, 64) as ring:
        stream = echo(ring)

        def wait():
            with pytest.raises(EOFError):
                ring.pop()

        def abort():
            time.sleep(0.01)
            ring.abort()

        in_threads(wait, abort)
        stream.synchronize()
    assert "messages of up to 64 bytes" in repr(ring)
    assert "messages of up to 1 byte," in repr(Ring(gpu, 1, 1))
    assert "vkgdr_device_ring_pop" in CUDA_HEADER


def test_a_bound_ring_ends_while_another_kernel_runs(gpu, echo):
    rings = [Ring(gpu, 64, 64), Ring(gpu, 64, 64)]
    streams = [echo(ring) for ring in rings]
    for ring, stream in zip(rings, streams, strict=True):
        ring.bind_stream(stream)
    del ring
    del rings[0]
    streams[0].synchronize()
    rings[0].push(b"still", timeout=20)
    assert rings[0].pop(timeout=20) == b"still"
    rings[0].abort()
    streams[1].synchronize()


def test_a_ring_is_bound_to_streams_of_any_library_and_keeps_them(gpu, cuda):
    ring = Ring(gpu, 64, 64)
    with pytest.raises(vkgdr.InvalidArgumentError, match="-1 is not a CUDA stream"):
        ring.bind_stream(-1)
    with pytest.raises(TypeError, match="not a CUDA stream"):
        ring.bind_stream(object())
    with cuda.stream() as handle:
        ring.bind_stream(handle)
        ring.bind_stream(Stream(handle))
        ours = vkgdr.stream.stream()
        gone = weakref.ref(ours)
        ring.bind_stream(ours)
        del ours
        gc.collect()
        assert gone() is not None
        last = vkgdr.stream.stream()
        ring.bind_stream(last)
        assert gone() is None
        gone = weakref.ref(last)
        del last
        assert gone() is not None
        del ring
        assert gone() is None
