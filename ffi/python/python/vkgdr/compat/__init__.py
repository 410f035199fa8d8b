"""The shapes of other libraries: `dpctl`, `rmm` and `pyopencl`."""

from vkgdr.compat import dpctl, pyopencl, rmm

__all__ = ["dpctl", "pyopencl", "rmm"]
__dir__ = __all__.copy
