"""One array on two sides: NumPy writes it on the CPU, and the GPU uses the same bytes without a copy.

What the GPU sees is checked by a copy that CUDA makes from the device's address. CuPy and PyTorch look at the array
too where they are installed and have a GPU.

    $ python examples/python/share_array.py
    GPU       Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
    host      0x7effbc42c000
    device    0x7effbc05a000
    NumPy     wrote 1000000 numbers, sum 499500000.0
    CUDA      sees the same bytes
    CuPy      not installed
    PyTorch   not installed
"""

from __future__ import annotations

import importlib
import sys

import numpy as np
import vkgdr
from vkgdr.compat import pyopencl as ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

ELEMENTS = 1_000_000


def reason(error: Exception) -> str:
    """Format an error's type and message in one line."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def sum_of_cupy(cupy: Any, memory: vkgdr.Memory) -> str:
    """Let CuPy add the array up."""
    return f"sum {float(cupy.asarray(memory).view(cupy.float32).sum()):.1f}"


def sum_of_torch(torch: Any, memory: vkgdr.Memory) -> str:
    """Let PyTorch add the array up."""
    if not torch.cuda.is_available():
        return "has no CUDA here"
    return f"sum {float(torch.as_tensor(memory, device='cuda').view(torch.float32).sum()):.1f}"


def ask(library: str, question: Callable[[Any, vkgdr.Memory], str], memory: vkgdr.Memory) -> str:
    """Ask a library that may be missing."""
    try:
        module = importlib.import_module(library)
    except ModuleNotFoundError:
        return "not installed"
    except Exception as error:  # noqa: BLE001 - libraries of CUDA may be missing
        return f"cannot be imported ({reason(error)})"
    try:
        return question(module, memory)
    except Exception as error:  # noqa: BLE001 - of the driver, or of the library
        return f"failed ({reason(error)})"


def main() -> int:
    """Run the example."""
    gpu = vkgdr.Vkgdr.open_primary_context()
    print(f"GPU       {gpu.name}")
    memory = vkgdr.Memory(gpu, 4 * ELEMENTS)
    print(f"host      {memory.host_ptr:#x}")
    print(f"device    {memory.device_ptr:#x}")

    # A NumPy view of the memory, without a copy; the array keeps the memory alive.
    array = np.asarray(memory).view(np.float32)
    array[:] = np.arange(ELEMENTS) % 1000
    memory.flush()
    print(f"NumPy     wrote {ELEMENTS} numbers, sum {array.sum(dtype=np.float64):.1f}")

    # On a stream, so that CUDA does the copy.
    seen = np.empty_like(array)
    ops.copy(seen, memory, stream=0)
    if not np.array_equal(seen, np.arange(ELEMENTS) % 1000):
        print("CUDA      sees other numbers")
        return 1
    print("CUDA      sees the same bytes")
    print(f"CuPy      {ask('cupy', sum_of_cupy, memory)}")
    print(f"PyTorch   {ask('torch', sum_of_torch, memory)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except vkgdr.VkgdrError as error:
        sys.exit(f"share_array.py: {error}")
