"""The flags of ``Vkgdr``."""

from __future__ import annotations

import enum

__all__ = ["OpenFlags"]


class OpenFlags(enum.IntFlag):
    """Flags for opening a handle. The values are those of vkgdr 0.1; unknown bits are an error.

    Attributes
    ----------
    CURRENT_CONTEXT_BIT
        Ignore the device number and use the device of the CUDA context that is current on this thread.
    FORCE_NON_COHERENT_BIT
        Treat coherent memory as non-coherent, to test a program's calls of flush and invalidate.
    REQUIRE_COHERENT_BIT
        Use coherent memory types only; opening fails if there is none. With ``FORCE_NON_COHERENT_BIT``, choose a
        coherent type and treat it as non-coherent.
    """

    CURRENT_CONTEXT_BIT = 1
    FORCE_NON_COHERENT_BIT = 2
    REQUIRE_COHERENT_BIT = 4
