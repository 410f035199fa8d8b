"""A consumer of DLPack capsules through ctypes, which does what a C library does."""

import ctypes

READ_ONLY = 1
IS_COPIED = 2
CPU = 1
CUDA = 2
# Values of `max_version`.
VERSIONS = [None, (0, 8), (1, 0), (1, 1), (2, 0)]


class Device(ctypes.Structure):
    """``DLDevice``."""

    _fields_ = (("kind", ctypes.c_int), ("id", ctypes.c_int))


class Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Legacy(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", DELETER))


class Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


_api = ctypes.pythonapi
_api.PyCapsule_GetName.argtypes = [ctypes.py_object]
_api.PyCapsule_GetName.restype = ctypes.c_char_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

# Capsules do not copy their names.
_NAMES = {name: ctypes.create_string_buffer(b"used_" + name) for name in (b"dltensor", b"dltensor_versioned")}


def versioned(capsule: object) -> Versioned:
    """Return the tensor in a versioned capsule, to change it."""
    return Versioned.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))


class Taken:
    """A tensor taken from its capsule; `end` must be called once."""

    def __init__(self, capsule: object) -> None:
        name = _api.PyCapsule_GetName(capsule)
        assert name in _NAMES, f"the capsule is called {name!r}"
        self.versioned = name == b"dltensor_versioned"
        self.address = _api.PyCapsule_GetPointer(capsule, name)
        self.managed = (Versioned if self.versioned else Legacy).from_address(self.address)
        assert _api.PyCapsule_SetName(capsule, _NAMES[name]) == 0

    @property
    def tensor(self) -> Tensor:
        return self.managed.tensor

    @property
    def flags(self) -> int:
        """The flags; 0 for a legacy tensor, which has none."""
        return self.managed.flags if self.versioned else 0

    @property
    def deleter(self) -> int:
        return ctypes.cast(self.managed.deleter, ctypes.c_void_p).value or 0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape[: self.tensor.ndim])

    @property
    def strides(self) -> tuple[int, ...] | None:
        """The strides, in elements."""
        return tuple(self.tensor.strides[: self.tensor.ndim]) if self.tensor.strides else None

    def host_bytes(self) -> bytes:
        """Copy the bytes of a tensor on the CPU."""
        assert self.tensor.device.kind == CPU
        return ctypes.string_at(self.tensor.data + self.tensor.byte_offset, self.shape[0])

    def end(self) -> None:
        self.managed.deleter(self.address)
