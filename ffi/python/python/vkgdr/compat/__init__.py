"""The shapes of other libraries: `dpctl`, `rmm` and `pyopencl`."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vkgdr.compat import dpctl as dpctl
    from vkgdr.compat import pyopencl as pyopencl
    from vkgdr.compat import rmm as rmm

__all__ = ["dpctl", "pyopencl", "rmm"]
__dir__ = __all__.copy


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in __all__:
        return import_module(f"vkgdr.compat.{name}")
    raise AttributeError(f"module 'vkgdr.compat' has no attribute {name!r}")
