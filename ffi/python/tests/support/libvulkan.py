"""Vulkan's functions by ctypes, on the handles that the package lends, as another library would call them."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, Structure, byref, c_int, c_uint32, c_uint64, c_void_p, cast, pointer
from typing import Any

from vkgdr.vulkan import Handles

OPAQUE_FD = 1
# VkStructureType
SUBMIT_INFO = 4
BUFFER_CREATE_INFO = 12
EXTERNAL_MEMORY_BUFFER_CREATE_INFO = 1000072000
TIMELINE_SEMAPHORE_SUBMIT_INFO = 1000207003
STORAGE_BUFFER = 0x20
ALL_COMMANDS = 0x10000


class Buffer(Structure):
    """``VkBufferCreateInfo``."""

    _fields_ = (
        ("type", c_int),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("size", c_uint64),
        ("usage", c_uint32),
        ("sharing", c_int),
        ("families", c_uint32),
        ("family", c_void_p),
    )


class External(Structure):
    """``VkExternalMemoryBufferCreateInfo``."""

    _fields_ = (("type", c_int), ("next", c_void_p), ("handles", c_uint32))


class Values(Structure):
    """``VkTimelineSemaphoreSubmitInfo``."""

    _fields_ = (
        ("type", c_int),
        ("next", c_void_p),
        ("wait_count", c_uint32),
        ("waits", POINTER(c_uint64)),
        ("signal_count", c_uint32),
        ("signals", POINTER(c_uint64)),
    )


class Batch(Structure):
    """``VkSubmitInfo``."""

    _fields_ = (
        ("type", c_int),
        ("next", c_void_p),
        ("wait_count", c_uint32),
        ("waits", POINTER(c_uint64)),
        ("stages", POINTER(c_uint32)),
        ("command_count", c_uint32),
        ("commands", c_void_p),
        ("signal_count", c_uint32),
        ("signals", POINTER(c_uint64)),
    )


class Device:
    """The functions of a lent device."""

    def __init__(self, handles: Handles) -> None:
        self.handle = c_void_p(handles.device)
        self._find = ctypes.CDLL("libvulkan.so.1").vkGetDeviceProcAddr
        self._find.restype = c_void_p

    def call(self, name: str, first: c_void_p, *arguments: Any) -> None:
        """Call a function that returns a ``VkResult``, which must be ``VK_SUCCESS``."""
        address = self._find(self.handle, name.encode())
        assert address, name
        result = ctypes.CFUNCTYPE(c_int)(address)
        assert result(first, *arguments) == 0, name

    def value_of(self, semaphore: int) -> int:
        """Return the value of a timeline semaphore."""
        value = c_uint64()
        self.call("vkGetSemaphoreCounterValueKHR", self.handle, c_uint64(semaphore), byref(value))
        return value.value

    @contextmanager
    def bound_buffer(self, size: int, memory: int, offset: int) -> Iterator[int]:
        """Create a buffer that is bound to memory."""
        external = External(EXTERNAL_MEMORY_BUFFER_CREATE_INFO, None, OPAQUE_FD)
        info = Buffer(BUFFER_CREATE_INFO, cast(pointer(external), c_void_p), 0, size, STORAGE_BUFFER, 0, 0, None)
        buffer = c_uint64()
        self.call("vkCreateBuffer", self.handle, byref(info), None, byref(buffer))
        try:
            self.call("vkBindBufferMemory", self.handle, buffer, c_uint64(memory), c_uint64(offset))
            yield buffer.value
        finally:
            destroy = ctypes.CFUNCTYPE(None)(self._find(self.handle, b"vkDestroyBuffer"))
            destroy(self.handle, buffer, None)

    def submit(self, queue: int, semaphore: int, wait: int, signal: int) -> None:
        """Submit to the queue a wait for one value of a semaphore and a signal of another."""
        semaphores, stage = pointer(c_uint64(semaphore)), pointer(c_uint32(ALL_COMMANDS))
        waits, signals = pointer(c_uint64(wait)), pointer(c_uint64(signal))
        values = Values(TIMELINE_SEMAPHORE_SUBMIT_INFO, None, 1, waits, 1, signals)
        batch = Batch(SUBMIT_INFO, cast(pointer(values), c_void_p), 1, semaphores, stage, 0, None, 1, semaphores)
        self.call("vkQueueSubmit", c_void_p(queue), c_uint32(1), byref(batch), c_uint64(0))

    def finish(self, queue: int) -> None:
        """Wait for the queue."""
        self.call("vkQueueWaitIdle", c_void_p(queue))
