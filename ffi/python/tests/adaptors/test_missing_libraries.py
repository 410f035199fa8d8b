"""An adaptor without its library says which package is missing."""

import pytest

ADAPTORS = [
    ("numba", "numba", "numba-cuda"),
    # numba alone has a `numba.cuda`, too.
    ("numba", "numba_cuda", "numba-cuda"),
    ("torch", "torch", "torch"),
    ("cuda_core", "cuda.core", "cuda-core"),
    ("rmm", "rmm", "rmm"),
    ("warp", "warp", "warp-lang"),
    ("cupy", "cupy", "cupy"),
    ("pycuda", "pycuda", "pycuda"),
]


@pytest.mark.parametrize(
    ("name", "library", "package"), ADAPTORS, ids=[library.replace(".", "_") for _, library, _ in ADAPTORS]
)
def test_the_error_names_the_package(run_python, name, library, package):
    code = f"""
        import sys
        sys.modules[{library!r}] = None
        import vkgdr
        assert {name!r} not in dir(vkgdr)
        for attempt in (lambda: vkgdr.{name}, lambda: __import__("vkgdr.{name}")):
            try:
                attempt()
            except ImportError as error:
                print(str(error).split(":")[0])
        assert "vkgdr.{name}" not in sys.modules
    """
    expected = f"vkgdr.{name} needs the package {package}, which cannot be imported\n"
    assert run_python(code).stdout == 2 * expected


def test_help_and_others_that_look_at_all_names_need_no_library(run_python):
    run_python(f"""
        import inspect, pydoc, sys
        sys.modules.update(dict.fromkeys({[library for _, library, _ in ADAPTORS]!r}))
        import vkgdr
        assert "vkgdr" in pydoc.render_doc(vkgdr)
        assert dict(inspect.getmembers(vkgdr)).keys() == set(dir(vkgdr))
    """)
