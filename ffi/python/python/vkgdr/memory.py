"""The earlier name of `vkgdr.compat.dpctl`."""

from vkgdr.compat.dpctl import AllocationError, MemoryDevice, MemoryHost, MemoryShared, as_memory

__all__ = ["AllocationError", "MemoryDevice", "MemoryHost", "MemoryShared", "as_memory"]
