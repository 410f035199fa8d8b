"""Kernels of which one never ends, by the driver alone; what the tests' programs import."""

import ctypes

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin() { LOOP: bra LOOP; }
.visible .entry nothing() { ret; }
"""

cuda = ctypes.CDLL("libcuda.so.1")


def ok(code: int) -> None:
    """Check a result of the driver."""
    assert code == 0, f"CUDA error {code}"


def start() -> None:
    """Load the kernels into the primary context, and make that current."""
    ok(cuda.cuInit(0))
    module = ctypes.c_void_p()
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    enter()
    ok(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    for name in ("spin", "nothing"):
        function = ctypes.c_void_p()
        ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
        functions[name] = function


functions: dict[str, ctypes.c_void_p] = {}
context = ctypes.c_void_p()


def enter() -> None:
    """Make the context current on this thread."""
    ok(cuda.cuCtxSetCurrent(context))


def launch(name: str) -> None:
    """Launch a kernel of one thread."""
    if not functions:
        start()
    ok(cuda.cuLaunchKernel(functions[name], 1, 1, 1, 1, 1, 1, 0, None, None, None))


def synchronize() -> None:
    """Wait for all kernels."""
    ok(cuda.cuCtxSynchronize())
