"""The driver's functions for streams, events with times and page-locking, which the extension module lacks."""

from __future__ import annotations

import contextlib
import ctypes
import functools

from vkgdr import _vkgdr
from vkgdr._device import default_owner
from vkgdr._errors import VkgdrError
from vkgdr._stream_handle import PER_THREAD_STREAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from vkgdr._device import Vkgdr

__all__ = ["NOT_READY", "VkgdrError", "call", "current_context", "query", "stream_context"]

NOT_READY = 600
_REMEDIES = {
    3: "CUDA is not initialised",
    201: "no CUDA context is current",
    712: "the pages are page-locked already",
}


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise VkgdrError(f"the CUDA driver cannot be loaded: {error}") from None
    call_of(library, "cuInit", ctypes.c_uint(0))
    # Loads the driver in the extension module too, which notices forks from then on.
    _vkgdr.driver_version()
    return library


def call_of(library: ctypes.CDLL, function: str, *arguments: object) -> None:
    """Call a function; raise `VkgdrError` with its code if it fails."""
    code = getattr(library, function)(*arguments)
    if code == 0:
        return
    name = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    operation = function.removesuffix("_v2")
    remedy = f": {_REMEDIES[code]}" if code in _REMEDIES else ""
    error = VkgdrError(f"{operation}: {(name.value or b'error').decode()} ({code}){remedy}")
    error.operation, error.cu_result = operation, code
    raise error


def call(function: str, *arguments: object) -> None:
    """Call a function of the driver; raise `VkgdrError` with its code if it fails, and in a forked child."""
    _vkgdr.check_process()
    call_of(_library(), function, *arguments)


def query(function: str, handle: int) -> bool:
    """Ask for the state of a stream or an event: whether its work is done."""
    _vkgdr.check_process()
    code: int = getattr(_library(), function)(ctypes.c_void_p(handle))
    if code == NOT_READY:
        return False
    if code:
        call(function, ctypes.c_void_p(handle))
    return True


@contextlib.contextmanager
def current_context(device: int | None = None) -> Iterator[Vkgdr | None]:
    """Make the primary context of a device, or of `default_owner`, current within the block, unless a context is.

    Gives the default owner where it is used: it keeps the context alive for what is made in the block.
    """
    context = ctypes.c_void_p()
    call("cuCtxGetCurrent", ctypes.byref(context))
    if context.value:
        yield None
        return
    owner = None
    if device is None:
        owner = default_owner()
        device = owner.device
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxPushCurrent_v2", context)
        try:
            yield owner
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(context))
    finally:
        call("cuDevicePrimaryCtxRelease_v2", device)


@contextlib.contextmanager
def stream_context(stream: int) -> Iterator[None]:
    """Make the context of a stream current within the block; for the default streams as `current_context`."""
    if stream <= PER_THREAD_STREAM:
        with current_context():
            yield
        return
    context = ctypes.c_void_p()
    call("cuStreamGetCtx", ctypes.c_void_p(stream), ctypes.byref(context))
    call("cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        call("cuCtxPopCurrent_v2", ctypes.byref(context))
