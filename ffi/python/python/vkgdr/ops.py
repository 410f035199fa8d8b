"""The earlier name of `vkgdr.compat.pyopencl`."""

from vkgdr.compat.pyopencl import copy, fill, map, migrate  # noqa: A004 - pyopencl's name

__all__ = ["copy", "fill", "map", "migrate"]
