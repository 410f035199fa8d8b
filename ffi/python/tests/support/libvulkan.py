"""Vulkan's functions by ctypes, on the handles that the package lends, as another library would call them."""

import ctypes
from ctypes import byref, c_int, c_uint64, c_void_p
from typing import Any

from vkgdr.vulkan import Handles


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

    def finish(self, queue: int) -> None:
        """Wait for the queue."""
        self.call("vkQueueWaitIdle", c_void_p(queue))
