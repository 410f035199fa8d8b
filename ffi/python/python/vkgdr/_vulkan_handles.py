"""Vulkan's handles as numbers: those of a GPU's Vulkan device, and of the memory object of memory."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Handles", "VulkanMemory"]


class Handles(NamedTuple):
    """A Vulkan device as numbers, from `vkgdr.Vkgdr.vulkan_handles`.

    It has Vulkan 1.1, ``VK_KHR_external_memory_fd`` and one queue, see `vkgdr.Vkgdr.with_vulkan_queue`; where the
    driver has them, also ``VK_EXT_memory_budget``, ``VK_KHR_timeline_semaphore`` with its feature, and
    ``VK_KHR_external_semaphore_fd``. Destroy what is made of it, but not the device and the instance: they live until
    the process ends.
    """

    instance: int
    physical_device: int
    device: int
    queue_family: int


class VulkanMemory(NamedTuple):
    """The ``VkDeviceMemory`` of a memory object and its first byte there, from `vkgdr.MemoryObject.vulkan_memory`."""

    memory: int
    offset: int


# Messages show the public name, not that of the private module.
Handles.__module__ = VulkanMemory.__module__ = "vkgdr.vulkan"
