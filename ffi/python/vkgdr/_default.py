"""The default handle, for callers that pass none."""

from __future__ import annotations

from vkgdr._errors import VkgdrError
from vkgdr._handle import Vkgdr

__all__ = ["default_owner"]

_CUDA_ERROR_INVALID_CONTEXT = 201

_primary: dict[int, Vkgdr] = {}


def default_owner() -> Vkgdr:
    """Return a handle of the current context or, if there is none, of device 0's primary context.

    Raises
    ------
    VkgdrError
        As for `Vkgdr`.
    """
    try:
        return Vkgdr.open_current_context()
    except VkgdrError as error:
        if error.cu_result != _CUDA_ERROR_INVALID_CONTEXT:
            raise
    # Cached: releasing the last handle of a primary context destroys the context.
    if 0 not in _primary:
        _primary[0] = Vkgdr.open_primary_context(0)
    return _primary[0]
