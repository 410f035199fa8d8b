"""Vulkan beside CUDA: the handles of the Vulkan device as numbers, and timeline semaphores that both share.

`vkgdr.Vkgdr.vulkan_handles` lends the Vulkan device of a GPU to the package ``vulkan``, to wgpu and to code in C.
`vkgdr.Memory.vulkan_memory` tells where memory lies on it. Neither driver orders the work of the other: wait on the CPU
between them, or share a `Semaphore`.
"""

from __future__ import annotations

from typing import Self

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._vkgdr import Vkgdr
from vkgdr.stream import current_context
from vkgdr.typing import Handles, StreamLike, VulkanMemory

__all__ = ["Handles", "Semaphore", "VulkanMemory"]
__dir__ = __all__.copy


class Semaphore(_vkgdr.Semaphore):
    """A timeline semaphore: a number that only grows, which Vulkan's queues, CUDA's streams and the CPU share.

    It belongs to the primary context of a handle that retains one, otherwise to the context that is current when it is
    made. The streams that it orders are of that context: it must be current in `wait_on` and `signal_on`, or, for a
    primary context, no context. ``with`` closes it at the end; so does dropping it.

    `owner` is the GPU, whose Vulkan device must share semaphores (`vkgdr.Vkgdr.supports_semaphores`), and `value` the
    first value. `vkgdr.VkgdrError` if it does not share them, no context is current, or a driver fails.

    Examples
    --------
    >>> import vkgdr
    >>> from vkgdr.vulkan import Semaphore
    >>> gpu = vkgdr.Vkgdr.open_primary_context()
    >>> with Semaphore(gpu) as semaphore:
    ...     semaphore.signal(1)
    ...     semaphore.wait(1)
    True
    """

    _owner: Vkgdr

    def __new__(cls, owner: Vkgdr, value: int = 0) -> Self:
        """Create the semaphore."""
        self = super().__new__(cls, owner, value)
        self._owner = owner
        return self

    def signal(self, value: int) -> None:
        """Raise the value by the CPU, to more than the present one and less than what a queue or stream will signal.

        `InvalidArgumentError` for a value that is not more. Not checked: values that others raise meanwhile.
        """
        if 0 <= value <= (present := self.value):
            raise InvalidArgumentError(f"the value {value} is not more than the present one, {present}")
        super().signal(value)

    def signal_on(self, stream: StreamLike, value: int) -> None:
        """Raise the value after the earlier work of a stream, to more than any value that it has by then."""
        with current_context(self._owner):
            super().signal_on(stream, value)

    def wait_on(self, stream: StreamLike, value: int) -> None:
        """Let the later work of a stream wait for a value or more. Every value that is waited for must be signalled."""
        with current_context(self._owner):
            super().wait_on(stream, value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
