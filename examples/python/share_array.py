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

import argparse
import sys

import numpy as np
import vkgdr
from vkgdr.compat import pyopencl as ops

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def reason(error: Exception) -> str:
    """Format an error's type and message in one line."""
    return ": ".join([type(error).__name__, *str(error).splitlines()[:1]])


def ask_cupy(memory: vkgdr.Memory) -> str:
    """Let CuPy add the array up."""
    try:
        import cupy  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ModuleNotFoundError:
        return "not installed"
    except Exception as error:  # noqa: BLE001 - libraries of CUDA may be missing
        return f"cannot be imported ({reason(error)})"
    try:
        array: Any = cupy.asarray(memory).view(cupy.float32)
        return f"sum {float(array.sum()):.1f}"
    except Exception as error:  # noqa: BLE001 - of the driver, or of a compiler that CuPy needs
        return f"failed ({reason(error)})"


def ask_torch(memory: vkgdr.Memory) -> str:
    """Let PyTorch add the array up."""
    try:
        import torch  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        return "not installed"
    except Exception as error:  # noqa: BLE001 - libraries of CUDA may be missing
        return f"cannot be imported ({reason(error)})"
    try:
        if not torch.cuda.is_available():
            return "has no CUDA here"
        tensor: Any = torch.as_tensor(memory, device="cuda").view(torch.float32)
        return f"sum {float(tensor.sum()):.1f}"
    except Exception as error:  # noqa: BLE001 - of the driver, or of PyTorch
        return f"failed ({reason(error)})"


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--elements", type=int, default=1_000_000, help="how many float32 there are (default: %(default)s)"
    )
    elements: int = parser.parse_args().elements
    if elements < 1:
        parser.error(f"--elements must be at least 1, not {elements}")

    gpu = vkgdr.Vkgdr.open_primary_context()
    print(f"GPU       {gpu.name}")
    memory = vkgdr.Memory(gpu, 4 * elements)
    print(f"host      {memory.host_ptr:#x}")
    print(f"device    {memory.device_ptr:#x}")

    # A NumPy view of the memory, without a copy; the array keeps the memory alive.
    array = np.asarray(memory).view(np.float32)
    array[:] = np.arange(elements) % 1000
    memory.flush()
    print(f"NumPy     wrote {elements} numbers, sum {array.sum(dtype=np.float64):.1f}")

    # On a stream, so that CUDA does the copy.
    seen = np.empty_like(array)
    ops.copy(seen, memory, stream=0)
    if not np.array_equal(seen, np.arange(elements) % 1000):
        print("CUDA      sees other numbers")
        return 1
    print("CUDA      sees the same bytes")
    print(f"CuPy      {ask_cupy(memory)}")
    print(f"PyTorch   {ask_torch(memory)}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except vkgdr.VkgdrError as error:
        sys.exit(f"share_array.py: {error}")
