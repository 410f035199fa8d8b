"""The flags of ``Vkgdr``."""

from __future__ import annotations

import enum

__all__ = ["OpenFlags"]


class OpenFlags(enum.IntFlag):
    """How a handle is opened. The values are those of vkgdr 0.1; other bits are refused.

    Attributes
    ----------
    CURRENT_CONTEXT_BIT
        Ignore the device number and use the device of the CUDA context that is current on this thread.
    FORCE_NON_COHERENT_BIT
        Treat memory as non-coherent even where it is coherent, to test that a program flushes what it must.
    REQUIRE_COHERENT_BIT
        Use only memory types that are coherent: opening fails where there is none. Together with
        ``FORCE_NON_COHERENT_BIT`` a coherent type is chosen and treated as non-coherent.
    """

    CURRENT_CONTEXT_BIT = 1
    FORCE_NON_COHERENT_BIT = 2
    REQUIRE_COHERENT_BIT = 4
