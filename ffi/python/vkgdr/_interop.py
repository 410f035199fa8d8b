"""Device memory of other libraries, through the CUDA Array Interface or DLPack."""

from __future__ import annotations

import operator

from vkgdr import _vkgdr
from vkgdr._errors import InvalidArgumentError
from vkgdr._facts import Facts
from vkgdr._words import in_bytes
from vkgdr.stream import LEGACY_STREAM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from vkgdr._vkgdr import Block

__all__ = ["device_block"]

_DLPACK_CUDA = 2
# Addresses, sizes and handles are 64-bit integers.
_ADDRESSES = 1 << 64


def device_block(obj: Any, within: Block | None = None) -> tuple[Block, int | None]:
    """Return the device bytes of an object, and the stream whose work must finish before they are used.

    Bytes in memory of this package give a block of that memory, with its host view. Other addresses are looked up in
    the context of `within`, or in the current context.

    Raises
    ------
    InvalidArgumentError
        The object has no device memory, or is not in C order.
    TypeError
        Its array interface is malformed.
    """
    if isinstance(obj, Facts):
        return obj._block, obj._block.bound_stream
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_interface(interface, obj, within)
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _from_dlpack(obj)
    raise InvalidArgumentError(f"{type(obj).__name__} has no device memory: no __cuda_array_interface__, no DLPack")


def _from_interface(interface: Any, obj: object, within: Block | None) -> tuple[Block, int | None]:
    if not isinstance(interface, dict):
        raise TypeError(f"__cuda_array_interface__ must be a dict, not {type(interface).__name__}")
    if interface.get("mask") is not None:
        raise NotImplementedError("masked arrays are not supported")
    try:
        address, readonly = interface["data"]
        size = _bytes_in_c_order(interface["shape"], interface["typestr"], interface.get("strides"))
        stream = None if interface.get("stream") is None else operator.index(interface["stream"])
        address = operator.index(address)
    except KeyError as error:
        raise InvalidArgumentError(f"__cuda_array_interface__ has no {error}") from None
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(f"__cuda_array_interface__ is malformed ({error}): {interface}") from None
    if not 0 <= address < _ADDRESSES or not 0 <= size < _ADDRESSES:
        raise InvalidArgumentError(f"__cuda_array_interface__ is malformed: {in_bytes(size)} at address {address}")
    if stream is not None and not 0 < stream < _ADDRESSES:
        raise InvalidArgumentError(f"__cuda_array_interface__['stream'] must not be {stream}")
    found = _vkgdr.find_device(address, size) if size else None
    if found is None:
        found = _vkgdr.foreign(address, size, bool(readonly), obj, within)
    elif readonly:
        found = found.part(0, None, True, False)
    return found, stream


def _bytes_in_c_order(shape: Any, typestr: str, strides: Any) -> int:
    """Return the size in bytes of an array, which must be in C order."""
    itemsize = int(typestr[2:])
    extents = tuple(map(operator.index, shape))
    if itemsize <= 0 or any(extent < 0 for extent in extents):
        raise InvalidArgumentError(f"__cuda_array_interface__ is malformed: shape {shape} of {typestr}")
    if strides is not None and len(strides) != len(extents):
        raise InvalidArgumentError(f"__cuda_array_interface__ has {len(strides)} strides for {len(extents)} dimensions")
    size = itemsize
    for extent, stride in zip(reversed(extents), reversed(strides or extents), strict=True):
        if strides is not None and extent > 1 and stride != size:
            raise InvalidArgumentError(f"only arrays in C order are supported, got shape {shape}, strides {strides}")
        size *= extent
    return size


def _from_dlpack(obj: Any) -> tuple[Block, int | None]:
    kind, device = obj.__dlpack_device__()
    if kind != _DLPACK_CUDA:
        raise InvalidArgumentError(
            f"{type(obj).__name__} is on DLPack device ({int(kind)}, {device}), not on a CUDA device"
        )
    try:
        capsule = obj.__dlpack__(stream=LEGACY_STREAM, max_version=(1, 1))
    except TypeError:
        # An exporter from before DLPack 1.0 has no max_version.
        capsule = obj.__dlpack__(stream=LEGACY_STREAM)
    return _vkgdr.dlpack_import(capsule), LEGACY_STREAM
