"""A bounded queue from the CPU into GPU memory and one back, for a kernel that keeps running.

`Ring` is the CPU's end. The kernel's is ``vkgdr_ring.cuh``, whose text is `CUDA_HEADER`: pass it to NVRTC, or write it
to a file that nvcc includes. The page "The ring" of the guide explains both.

    with vkgdr.ring.Ring(gpu, messages=1 << 20, answers=1 << 16) as ring:
        kernel(numpy.uint64(ring.device_ptr), block=(128, 1, 1), stream=stream)  # a launch by pycuda
        ring.push(packet, timeout=1)
        answer = ring.pop(timeout=1)
        ring.close()

The end of the ``with`` block aborts a kernel that was not told to end. Without one, the kernel's module may be unloaded
before the ring is collected. Unloading waits for the kernel, without end.

Pushes raise `EOFError` once the ring is closed or aborted. Pops raise it once the ring is aborted, or the kernel has
closed its end and no answer is left. Both raise `TimeoutError` when their ``timeout`` is over.

A ring that is collected ends its kernel. Its memory is freed with the last ring of its context, which waits for all
work of the context. If no other ring of it lived beside this one, ``ring.bind_stream(stream)`` has it freed after its
kernel, by that kernel's stream, of any library. The ring keeps the stream's object alive; a stream that is given as a
number must outlive the ring.
"""

from __future__ import annotations

from vkgdr._vkgdr import RING_HEADER as CUDA_HEADER
from vkgdr._vkgdr import Ring

__all__ = ["CUDA_HEADER", "Ring"]
__dir__ = __all__.copy
