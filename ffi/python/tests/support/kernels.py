"""Kernel calls without a driver that runs kernels."""

import pycuda.driver as drv


def launch(*arguments):
    """Call a kernel through pycuda's own code, up to the driver, and return the bytes of its arguments."""

    class Kernel:
        def _set_block_shape(self, *shape):
            pass

        def _launch_kernel(self, grid, block, packed, *options):
            self.packed = packed

    kernel = Kernel()
    drv.Function.__call__(kernel, *arguments, block=(1, 1, 1))
    return kernel.packed
