"""A kernel adds two vectors that NumPy wrote into GPU memory, and NumPy reads the sum: pycuda launches it.

Each vector is a `vkgdr.pycuda.MappedArray`: an ndarray and a GPUArray over the same bytes, so that nothing is copied.
The kernel is PTX, which every NVIDIA driver compiles, and the simulated one runs: no CUDA toolkit is needed.

    $ python examples/python/pycuda_kernel.py
    GPU       Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
    NumPy     wrote 100000 pairs
    pycuda    sees the same bytes
    kernel    all sums are right, the last is 2542.5
"""

from __future__ import annotations

import argparse
import sys

import numpy as np
import vkgdr

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# For compute capability 5.0 and newer: sum[i] = a[i] + b[i].
KERNEL = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 sum, .param .u32 n)
{
    .reg .pred  %p;
    .reg .f32   %x, %y;
    .reg .b32   %i, %n, %block, %threads, %thread;
    .reg .b64   %offset, %address;

    mov.u32         %block, %ctaid.x;
    mov.u32         %threads, %ntid.x;
    mov.u32         %thread, %tid.x;
    mad.lo.u32      %i, %block, %threads, %thread;
    ld.param.u32    %n, [n];
    setp.ge.u32     %p, %i, %n;
    @%p ret;
    mul.wide.u32    %offset, %i, 4;

    ld.param.u64    %address, [a];
    cvta.to.global.u64 %address, %address;
    add.u64         %address, %address, %offset;
    ld.global.f32   %x, [%address];
    ld.param.u64    %address, [b];
    cvta.to.global.u64 %address, %address;
    add.u64         %address, %address, %offset;
    ld.global.f32   %y, [%address];
    add.f32         %x, %x, %y;
    ld.param.u64    %address, [sum];
    cvta.to.global.u64 %address, %address;
    add.u64         %address, %address, %offset;
    st.global.f32   [%address], %x;
    ret;
}
"""

THREADS_PER_BLOCK = 256


def add(driver: Any, elements: int) -> int:
    """Add two vectors in the current context."""
    from vkgdr.pycuda import MappedArray

    gpu = vkgdr.Vkgdr.open_current_context()
    print(f"GPU       {gpu.name}")
    a = MappedArray.empty(gpu, elements, np.float32)
    b = MappedArray.empty(gpu, elements, np.float32)
    # The CPU reads the sum, which is fastest in cached system memory.
    total = MappedArray.empty(gpu, elements, np.float32, kind="host")
    a.host[:] = np.arange(elements) % 4096
    b.host[:] = a.host / 2
    total.host[:] = 0
    for written in (a, b, total):
        written.memory.flush()
    print(f"NumPy     wrote {elements} pairs")

    # A copy by pycuda of the array written by NumPy.
    if not np.array_equal(b.device.get(), b.host):
        print("pycuda    sees other numbers")
        return 1
    print("pycuda    sees the same bytes")

    # The driver needs text with a terminating zero byte.
    kernel = driver.module_from_buffer(KERNEL + b"\0").get_function("add")
    blocks = -(-elements // THREADS_PER_BLOCK)
    kernel(a.device, b.device, total.device, np.uint32(elements), block=(THREADS_PER_BLOCK, 1, 1), grid=(blocks, 1))
    driver.Context.synchronize()
    total.memory.invalidate()
    wrong = np.flatnonzero(total.host != a.host + b.host)
    if wrong.size:
        print(f"kernel    {wrong.size} sums are wrong, the first is {wrong[0]}: {total.host[wrong[0]]}")
        return 1
    print(f"kernel    all sums are right, the last is {total.host[-1]}")
    return 0


def main() -> int:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=100_000, help="of each vector (default: %(default)s)")
    elements: int = parser.parse_args().elements
    if not 1 <= elements <= 10**9:
        parser.error(f"--elements must be from 1 to {10**9}, not {elements}")
    try:
        import pycuda.driver
    except ImportError as error:
        remedy = "`make python` makes an environment with it"
        if "libcuda" in str(error):
            remedy = "install NVIDIA's driver, or start this with sim/run"
        print(f"pycuda_kernel.py: pycuda cannot be imported ({error}): {remedy}", file=sys.stderr)
        return 1
    driver: Any = pycuda.driver
    driver.init()
    context = driver.Device(0).make_context()
    try:
        return add(driver, elements)
    finally:
        context.pop()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except vkgdr.VkgdrError as error:
        sys.exit(f"pycuda_kernel.py: {error}")
