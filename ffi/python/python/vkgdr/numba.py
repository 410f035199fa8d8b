"""numba's arrays in memory of this package: an External Memory Management plug-in of numba-cuda.

``NUMBA_CUDA_MEMORY_MANAGER=vkgdr.numba`` in the environment, or
``numba.cuda.set_memory_manager(vkgdr.numba.manager())`` before numba uses the GPU, switches it on. `vkgdr.host_view` is
then the CPU's view of a device array.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from vkgdr import _vkgdr, ipc
from vkgdr._errors import AllocationError, InvalidArgumentError, VkgdrError, missing
from vkgdr._interfaces import shaped
from vkgdr._memory import Memory, memory_of
from vkgdr._vkgdr import Resource, Vkgdr
from vkgdr.typing import Kinds

try:
    # Without it `numba.cuda` is numba's own, which lacks what is used here.
    import numba_cuda  # noqa: F401
    from numba import cuda
    from numba.cuda.cudadrv import driver
except ImportError as error:
    raise missing("vkgdr.numba", "numba-cuda", error) from error

__all__ = ["IpcHandle", "VkgdrNumbaManager", "manager", "open_ipc_array"]
__dir__ = __all__.copy


_RESULTS = driver.binding.CUresult
# Memory opened from other processes, by its device address.
_opened: dict[int, Memory] = {}


class VkgdrNumbaManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Allocates numba's device arrays, and its mapped host arrays, in memory of this package.

    `kind` is the memory of device arrays, as for `vkgdr.Memory`. With `pool`, small arrays are lent by a pool, and
    cannot be shared with other processes.
    """

    # Of numba's interface.
    interface_version = 1
    kind: Kinds = "mapped"
    pool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Once with `context=None`, to read the version: nothing here uses the GPU.
        self._resource = Resource(self.kind, pool=self.pool)
        self._host_resources = {False: Resource("host"), True: Resource("mapped")}

    def initialize(self) -> None:
        """Prepare the manager. Called before each use of the context by a thread."""
        if not self.deallocations.memory_capacity:
            self.deallocations.memory_capacity = self.get_memory_info().total
            _hook()

    def memalloc(self, size: int) -> Any:
        """Allocate device memory; raises numba's ``CudaAPIError`` if memory is exhausted."""
        return self._lend(driver.AutoFreePointer, self._resource, size)

    def memhostalloc(self, size: int, mapped: bool = False, portable: bool = False, wc: bool = False) -> Any:
        """Allocate host memory: mapped memory of this package, of kind "mapped" with `wc` and "host" without.

        CUDA's fills of it do not wait, unlike those of page-locked memory: synchronise before the CPU reads.
        """
        if not mapped or portable:
            return super().memhostalloc(size, mapped, portable, wc)
        return self._lend(_MappedMemory, self._host_resources[bool(wc)], size)

    def _lend(self, kind: Any, resource: Resource, size: int) -> Any:
        """Allocate memory, and return it as numba's class `kind`."""
        allocations, deallocations = self.allocations, self.deallocations

        def allocate() -> int:
            try:
                # On the current context's device: this one's.
                return resource.allocate(size)
            except AllocationError as error:
                # The only error after which numba releases pending memory, and tries again.
                raise driver.CudaAPIError(_RESULTS.CUDA_ERROR_OUT_OF_MEMORY, str(error)) from error

        if size <= 0:
            raise driver.CudaAPIError(_RESULTS.CUDA_ERROR_INVALID_VALUE, f"an allocation of {size} bytes")
        try:
            address = self._attempt_allocation(allocate)
        except VkgdrError:
            # Such as a shortage of descriptors, which pending memory holds, too.
            deallocations.clear()
            address = allocate()

        def finalize() -> None:
            allocations.pop(("vkgdr", address), None)
            # The garbage collector runs while streams are captured, too, which a wait for the context would end.
            deallocations.add_item(resource.retire, address, size)

        pointer = driver.binding.CUdeviceptr(address)
        memory = kind(weakref.proxy(self.context), pointer, size, finalizer=finalize)
        # `own` returns a weak proxy.
        allocations["vkgdr", address] = memory
        return memory.own()

    def get_memory_info(self) -> Any:
        """Return the free and the total memory of the kind of device arrays."""
        free, total = self._resource.memory_info()
        return cuda.MemoryInfo(free=free, total=total)

    def get_ipc_handle(self, memory: Any) -> Any:
        """Return a handle of device memory for other processes; it can be opened several times.

        They must be of the same user and in the same network namespace.
        """
        found = _vkgdr.find(int(memory.device_pointer))
        if found is None:
            return driver.GetIpcHandleMixin.get_ipc_handle(self, memory)
        identity = self.context.device.get_device_identity()
        handle = SimpleNamespace(reserved=ipc.offer(found.key[0]))
        return IpcHandle(memory, handle, memory.size, identity, found.key[1])

    def reset(self) -> None:
        """Free all memory of the context."""
        super().reset()
        for resource in (self._resource, *self._host_resources.values()):
            resource.close()


def manager(kind: Kinds = "mapped", *, pool: bool = False) -> type[VkgdrNumbaManager]:
    """Return a manager class for ``numba.cuda.set_memory_manager``, with the attributes of `VkgdrNumbaManager`."""
    Resource(kind, pool=pool)
    return type("VkgdrNumbaManager", (VkgdrNumbaManager,), {"kind": kind, "pool": pool, "__module__": __name__})


_numba_memory_manager = VkgdrNumbaManager


class _MappedMemory(driver.AutoFreePointer):  # type: ignore[misc]
    """Like numba's ``MappedMemory``, which asks CUDA for a device address that CUDA does not know of this memory."""

    def __init__(self, context: Any, pointer: Any, size: int, finalizer: Callable[[], None]) -> None:
        self.owned = None
        self.host_pointer = self._bufptr_ = memory_of(int(pointer)).host_ptr
        super().__init__(context, pointer, size, finalizer=finalizer)
        self.handle = self.host_pointer
        self._buflen_ = size

    def own(self) -> Any:
        return driver.MappedOwnedPointer(weakref.proxy(self))


class IpcHandle(driver.IpcHandle):  # type: ignore[misc]
    """A handle of memory of this package, which opens with any memory manager of the other process."""

    # Its `handle` is no ``CUipcMemHandle``, whose bytes some versions of cuda-bindings do not show.

    @classmethod
    def _rebuild(cls, handle: bytes, size: int, source_info: Any, offset: int) -> IpcHandle:
        return cls(None, SimpleNamespace(reserved=handle), size, source_info, offset)

    def open_direct(self, context: Any) -> Any:
        """Open the memory in a context of the same GPU."""
        _hook()
        return super().open_direct(context)

    def open_staged(self, context: Any) -> Any:
        """Open a copy of the memory in a context of another GPU."""
        _hook()
        return super().open_staged(context)


@contextlib.contextmanager
def open_ipc_array(handle: bytes, shape: Any, dtype: Any, strides: Any = None, offset: int = 0) -> Iterator[Any]:
    """Open the bytes of an `IpcHandle`, its ``handle.reserved``, as a device array, like ``numba.cuda.open_ipc_array``.

    numba's own function fails with the versions of cuda-bindings whose ``CUipcMemHandle`` does not show its bytes.
    """
    data = bytes(handle)
    if not ipc.is_offer(data):
        raise InvalidArgumentError("these bytes are no handle of memory of vkgdr")
    extents, element, size = shaped(shape, dtype)
    opened = IpcHandle(None, SimpleNamespace(reserved=data), size, offset=offset)
    try:
        yield opened.open_array(cuda.current_context(), shape=extents, strides=strides, dtype=element)
    finally:
        # It was not opened: the error says why.
        with contextlib.suppress(ValueError):
            opened.close()


@functools.cache
def _hook() -> None:
    """Make numba open and close handles of this package, and know the size of memory from a pool."""
    open_other, extents = driver.Context.open_ipc_handle, driver.device_extents
    close_other = driver.driver.cuIpcCloseMemHandle

    def open_ipc_handle(context: Any, handle: Any, size: int) -> Any:
        data = bytes(getattr(handle, "reserved", b""))
        if not ipc.is_offer(data):
            return open_other(context, handle, size)
        memory = ipc.take(data, Vkgdr.open_primary_context(context.device.id))
        _opened[memory.device_ptr] = memory
        return driver.MemoryPointer(weakref.proxy(context), driver.binding.CUdeviceptr(memory.device_ptr), size)

    def close_ipc_handle(pointer: Any) -> Any:
        memory = _opened.pop(int(pointer), None)
        return close_other(pointer) if memory is None else memory.free()

    def device_extents(memory: Any) -> tuple[int, int]:
        address = driver.device_pointer(memory)
        found = _vkgdr.find(address)
        if found is None:
            first, end = extents(memory)
            return first, end
        return address - found.key[1], address + found.nbytes

    driver.Context.open_ipc_handle = open_ipc_handle
    driver.device_extents = device_extents
    driver.driver.cuIpcCloseMemHandle = close_ipc_handle
