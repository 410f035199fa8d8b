"""The shapes of other libraries: `dpctl`, `rmm` and `pyopencl`.

The names from before this package work, too: `vkgdr.memory` has what `dpctl` has, `vkgdr.Buffer` is in `rmm`, and
`vkgdr.ops` has what `pyopencl` has.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vkgdr.compat import dpctl as dpctl
    from vkgdr.compat import pyopencl as pyopencl
    from vkgdr.compat import rmm as rmm

__all__ = ["dpctl", "pyopencl", "rmm"]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in __all__:
        return import_module(f"vkgdr.compat.{name}")
    raise AttributeError(f"module 'vkgdr.compat' has no attribute {name!r}")
