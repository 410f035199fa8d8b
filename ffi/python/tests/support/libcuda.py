"""The functions of the CUDA driver API that tests call directly, through ctypes, with integer handles."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p

NON_BLOCKING = 1
# Modes of stream captures: what other calls the driver refuses meanwhile.
GLOBAL, RELAXED = 0, 2
# The seconds after which a gate opens by itself: a test that waits for held work fails instead of hanging.
TIMEOUT = 20


class CudaError(Exception):
    """A failed call: the function, the driver's name of the code, and the code."""

    def __init__(self, function: str, name: str, code: int) -> None:
        super().__init__(f"{function} failed: {name} ({code})")
        self.code = code
        self.name = name


class Context:
    """A context made by `Cuda.create_context`; destroying it twice is harmless."""

    def __init__(self, cuda: "Cuda", handle: int) -> None:
        self._cuda = cuda
        self.handle = handle
        self.destroyed = False

    def destroy(self) -> None:
        """Destroy the context; if it is current on this thread, the one below it on the stack becomes current."""
        if not self.destroyed:
            self.destroyed = True
            self._cuda.call("cuCtxDestroy_v2", self.handle)

    @contextlib.contextmanager
    def pushed(self) -> Iterator[None]:
        """Make it current on this thread within a ``with`` block."""
        self._cuda.push(self.handle)
        try:
            yield
        finally:
            if not self.destroyed:
                self._cuda.pop()


class Gate:
    """A gate that holds a stream; see `Cuda.hold`."""

    def __init__(self, word: int) -> None:
        self._word = c_uint.from_address(word)
        self._word.value = 0
        self._timer = threading.Timer(TIMEOUT, self._give_up)
        self._timer.daemon = True
        self._timer.start()
        self._gave_up = False

    def open(self) -> None:
        """Let the stream continue, without waiting for it."""
        self._timer.cancel()
        self._word.value = 1

    def _give_up(self) -> None:
        self._gave_up = True
        self._word.value = 1

    def _close(self) -> None:
        self._timer.join()
        assert not self._gave_up, f"the stream was let go after {TIMEOUT} s: something waits for what it holds itself"


class Cuda:
    """``libcuda.so.1``, initialised. Every call that fails raises `CudaError`.

    Contexts made by `create_context` are `Context`; all other values are integers, as in the driver API. Calls release
    the GIL.
    """

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._signatures = {
            "cuGetErrorName": (c_int, POINTER(c_char_p)),
            "cuInit": (c_uint,),
            "cuCtxCreate_v2": (POINTER(c_void_p), c_uint, c_int),
            "cuCtxDestroy_v2": (c_void_p,),
            "cuCtxGetCurrent": (POINTER(c_void_p),),
            "cuCtxPushCurrent_v2": (c_void_p,),
            "cuCtxPopCurrent_v2": (POINTER(c_void_p),),
            "cuCtxSynchronize": (),
            "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
            "cuDevicePrimaryCtxRelease_v2": (c_int,),
            "cuDevicePrimaryCtxReset_v2": (c_int,),
            "cuStreamCreate": (POINTER(c_void_p), c_uint),
            "cuStreamDestroy_v2": (c_void_p,),
            "cuStreamSynchronize": (c_void_p,),
            "cuStreamQuery": (c_void_p,),
            "cuStreamBeginCapture_v2": (c_void_p, c_uint),
            "cuStreamEndCapture": (c_void_p, POINTER(c_void_p)),
            "cuGraphDestroy": (c_void_p,),
            "cuStreamWaitValue32_v2": (c_void_p, c_uint64, c_uint, c_uint),
            "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
            "cuMemAllocAsync": (POINTER(c_uint64), c_size_t, c_void_p),
            "cuMemFreeAsync": (c_uint64, c_void_p),
            "cuMemFree_v2": (c_uint64,),
            "cuMemHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
            "cuMemHostGetDevicePointer_v2": (POINTER(c_uint64), c_void_p, c_uint),
            "cuMemFreeHost": (c_void_p,),
            "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
            "cuMemcpyHtoD_v2": (c_uint64, c_char_p, c_size_t),
            "cuMemcpyDtoD_v2": (c_uint64, c_uint64, c_size_t),
            "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
            "cuMemsetD8_v2": (c_uint64, c_ubyte, c_size_t),
            "cuMemsetD8Async": (c_uint64, c_ubyte, c_size_t, c_void_p),
        }
        for name, arguments in self._signatures.items():
            function = getattr(self._library, name)
            function.restype = c_int
            function.argtypes = arguments
        self.call("cuInit", 0)

    def code(self, function: str, *arguments: object) -> int:
        """Call a function and return its code."""
        assert function in self._signatures, f"libcuda.py does not know {function}"
        return getattr(self._library, function)(*arguments)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function, and raise `CudaError` unless it succeeds."""
        code = self.code(function, *arguments)
        if code != 0:
            raise CudaError(function, self.error_name(code), code)

    def error_name(self, code: int) -> str:
        """Return the driver's name of a code, such as ``CUDA_ERROR_INVALID_CONTEXT``."""
        name = c_char_p()
        if self.code("cuGetErrorName", code, byref(name)) != 0 or name.value is None:
            return f"CUDA error {code}"
        return name.value.decode()

    # ---- contexts ---------------------------------------------------------------------------------------------------

    def create_context(self) -> Context:
        """Create a context of device 0 and make it current on this thread."""
        handle = c_void_p()
        self.call("cuCtxCreate_v2", byref(handle), 0, 0)
        return Context(self, handle.value or 0)

    def current(self) -> int:
        """Return the context that is current on this thread; 0 for none."""
        handle = c_void_p()
        self.call("cuCtxGetCurrent", byref(handle))
        return handle.value or 0

    def push(self, context: int) -> None:
        self.call("cuCtxPushCurrent_v2", context)

    def pop(self) -> int:
        """Pop the current context from this thread's stack, and return it."""
        handle = c_void_p()
        self.call("cuCtxPopCurrent_v2", byref(handle))
        return handle.value or 0

    def retain_primary(self, device: int = 0) -> int:
        """Retain the primary context of a device, without making it current."""
        handle = c_void_p()
        self.call("cuDevicePrimaryCtxRetain", byref(handle), device)
        return handle.value or 0

    def release_primary(self) -> None:
        self.call("cuDevicePrimaryCtxRelease_v2", 0)

    def reset_primary(self) -> None:
        """Destroy the primary context; it stays retained, and the next retain creates it again."""
        self.call("cuDevicePrimaryCtxReset_v2", 0)

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    # ---- streams ----------------------------------------------------------------------------------------------------

    def create_stream(self, flags: int = NON_BLOCKING) -> int:
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), flags)
        return stream.value or 0

    def destroy_stream(self, stream: int) -> None:
        """Destroy a stream; enqueued work still runs."""
        self.call("cuStreamDestroy_v2", stream)

    def synchronize_stream(self, stream: int) -> None:
        self.call("cuStreamSynchronize", stream)

    def is_done(self, stream: int) -> bool:
        code = self.code("cuStreamQuery", stream)
        not_ready = 600
        if code not in (0, not_ready):
            raise CudaError("cuStreamQuery", self.error_name(code), code)
        return code == 0

    @contextlib.contextmanager
    def stream(self, flags: int = NON_BLOCKING) -> Iterator[int]:
        """Create a stream for a ``with`` block, whose end waits for it and destroys it."""
        stream = self.create_stream(flags)
        try:
            yield stream
        finally:
            self.synchronize_stream(stream)
            self.destroy_stream(stream)

    @contextlib.contextmanager
    def capture(self, stream: int, mode: int = RELAXED) -> Iterator[None]:
        """Capture a stream's work within a ``with`` block into a graph that is destroyed unused."""
        self.call("cuStreamBeginCapture_v2", stream, mode)
        graph = c_void_p()
        try:
            yield
        finally:
            self.call("cuStreamEndCapture", stream, byref(graph))
        self.call("cuGraphDestroy", graph)

    def load_own_kernels(self) -> None:
        """Let the driver load what it fills and copies with in the current context: later it may wait for held work."""
        pointer = self.allocate(8)
        self.fill(pointer, 0, 4)
        self.copy(pointer + 4, pointer, 4)
        self.synchronize()
        self.free(pointer)

    @contextlib.contextmanager
    def hold(self, stream: int) -> Iterator[Gate]:
        """Hold a stream within a ``with`` block: enqueued work runs once the gate is opened, at the latest at the end.

        The end waits for the stream. Only the GPU waits at the gate; it runs no Python code.
        """
        word = c_void_p()
        portable_and_mapped = 3
        self.call("cuMemHostAlloc", byref(word), 4, portable_and_mapped)
        assert word.value is not None
        gate = Gate(word.value)
        try:
            address = c_uint64()
            self.call("cuMemHostGetDevicePointer_v2", byref(address), word, 0)
            wait_until_equal = 1
            self.call("cuStreamWaitValue32_v2", stream, address, 1, wait_until_equal)
            try:
                yield gate
            finally:
                gate.open()
                self.synchronize_stream(stream)
        finally:
            gate.open()
            self.call("cuMemFreeHost", word)
        gate._close()

    # ---- memory -----------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        pointer = c_uint64()
        self.call("cuMemAlloc_v2", byref(pointer), size)
        return pointer.value

    def free(self, pointer: int) -> None:
        self.call("cuMemFree_v2", pointer)

    def read(self, pointer: int, size: int) -> bytes:
        """Copy from the device (``cuMemcpyDtoH``)."""
        buffer = ctypes.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", buffer, pointer, size)
        return buffer.raw

    def write(self, pointer: int, data: bytes) -> None:
        """Copy to the device (``cuMemcpyHtoD``) and wait for it."""
        self.call("cuMemcpyHtoD_v2", pointer, bytes(data), len(data))
        self.call("cuStreamSynchronize", 0)

    def copy(self, to: int, source: int, size: int, stream: int | None = None) -> None:
        """Copy on the device; with a stream, asynchronously."""
        if stream is None:
            self.call("cuMemcpyDtoD_v2", to, source, size)
        else:
            self.call("cuMemcpyDtoDAsync_v2", to, source, size, stream)

    def fill(self, pointer: int, value: int, size: int, stream: int | None = None) -> None:
        """Fill bytes on the device (``cuMemsetD8``) and wait for it; with a stream, asynchronously."""
        if stream is None:
            self.call("cuMemsetD8_v2", pointer, value, size)
            # Fills, and copies from pageable memory, may return before they are done ("API synchronization behavior" of
            # the driver API).
            self.call("cuStreamSynchronize", 0)
        else:
            self.call("cuMemsetD8Async", pointer, value, size, stream)
