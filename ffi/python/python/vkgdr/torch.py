"""PyTorch's tensors in memory of this package.

``with vkgdr.torch.mapped():`` switches it on for the tensors that this thread allocates in the block. `vkgdr.host_view`
is the CPU's view of a tensor, or of a slice of one. PyTorch allocates segments of 2 MiB or more, and cuts tensors from
them. The kind of memory, ``"mapped"``, ``"host"`` or ``"device"``, is as for `vkgdr.Memory`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Any

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError, missing
from vkgdr.typing import Kind

try:
    import torch
except ImportError as error:
    raise missing("vkgdr.torch", "torch", error) from error

__all__ = ["allocator", "mapped", "mem_pool"]
__dir__ = __all__.copy


def allocator(kind: Kind = "mapped") -> Any:
    """Return a ``torch.cuda.memory.CUDAPluggableAllocator`` of one kind of memory.

    For ``torch.cuda.MemPool`` (`mem_pool`), or for ``torch.cuda.memory.change_current_allocator`` before PyTorch uses
    the GPU. With the latter every tensor is an allocation of its own. PyTorch then does not notice when memory is
    exhausted: the tensor has address 0.
    """
    if kind not in ("mapped", "host", "device"):
        raise InvalidArgumentError(f"invalid kind {kind!r}: expected 'mapped', 'host' or 'device'")
    return _allocator(kind)


# Kept: in older releases of PyTorch a pool has only a raw pointer to what is within.
@functools.cache
def _allocator(kind: Kind) -> Any:
    found = torch.cuda.memory.CUDAPluggableAllocator(_vkgdr.__file__, f"vkgdr_torch_alloc_{kind}", "vkgdr_torch_free")
    native = found.allocator()
    if hasattr(native, "set_record_stream_fn"):
        function = ctypes.CDLL(_vkgdr.__file__).vkgdr_torch_record_stream
        native.set_record_stream_fn(ctypes.cast(function, ctypes.c_void_p).value)
    return found


def mem_pool(kind: Kind = "mapped", *, device: Any = None) -> Any:
    """Return a ``torch.cuda.MemPool`` of one kind of memory and one device, for ``torch.cuda.use_mem_pool``.

    Allocations raise ``torch.OutOfMemoryError`` when memory is exhausted. The segments are given back when neither the
    pool nor a tensor from it is left; where a tensor goes last, ``torch.cuda.empty_cache()`` does so. The device is the
    current one by default. Tensors of other devices that are allocated with the pool lie in PyTorch's own memory.
    """
    # PyTorch registers the allocator for the device that is current when the pool is made.
    with torch.cuda.device(device):
        return torch.cuda.MemPool(allocator(kind).allocator())


@contextlib.contextmanager
def mapped(kind: Kind = "mapped", *, device: Any = None) -> Iterator[Any]:
    """Allocate this thread's tensors of one device in memory of this package: ``with vkgdr.torch.mapped():``.

    The parameters are those of `mem_pool`. Yields the pool, for ``torch.cuda.use_mem_pool`` on other threads.
    """
    pool = mem_pool(kind, device=device)
    with torch.cuda.use_mem_pool(pool, device):
        yield pool
