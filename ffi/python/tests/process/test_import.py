"""The effects of importing the package, and what it defers to first use."""

import ast
import importlib
import importlib.metadata
import os
import pkgutil
from pathlib import Path

import pytest
import vkgdr

PUBLIC = {"arrays", "compat", "ipc", "memory", "ops", "pool", "pycuda", "ring", "stream", "typing", "vulkan"}
# They need the library of their name: see `adaptors`.
ADAPTORS = {"cuda_core", "cupy", "numba", "rmm", "torch", "warp"}


def test_importing_vkgdr_imports_no_other_library(run_python):
    code = """
        import sys
        before = set(sys.modules)
        import vkgdr
        new = {name.split(".")[0] for name in set(sys.modules) - before}
        print(sorted(name for name in new if name not in sys.stdlib_module_names))
    """
    assert run_python(code).stdout == "['vkgdr']\n"


def test_importing_vkgdr_imports_no_slow_module(run_python):
    code = """
        import sys
        before = set(sys.modules)
        import vkgdr
        print(sorted({"dataclasses", "inspect", "re", "typing"} & (set(sys.modules) - before)))
    """
    assert run_python(code).stdout == "[]\n"


def test_importing_vkgdr_loads_no_driver(run_python):
    code = """
        import vkgdr
        with open("/proc/self/maps") as maps:
            print([line for line in maps if "libcuda" in line or "libvulkan" in line])
    """
    assert run_python(code).stdout == "[]\n"


def test_the_class_is_there_after_a_bare_import(run_python):
    code = """
        import vkgdr
        assert "Vkgdr" in vars(vkgdr)
        assert isinstance(vkgdr.Vkgdr, type)
        for name in ("OpenFlags", "VkgdrError", "RawMemory", "__version__"):
            assert name in vars(vkgdr), name
    """
    run_python(code)


def test_vkgdr_pycuda_is_found_lazily_and_is_the_real_module(run_python):
    pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    code = """
        import sys, vkgdr
        assert "pycuda" not in sys.modules
        module = vkgdr.pycuda
        assert module is sys.modules["vkgdr.pycuda"]
        assert vars(vkgdr)["pycuda"] is module
        import vkgdr.pycuda
        assert vkgdr.pycuda is module
        from vkgdr.pycuda import Memory
        assert Memory is module.Memory
    """
    run_python(code)


def test_vkgdr_pycuda_without_pycuda_says_that_it_is_missing(run_python):
    code = """
        import sys
        sys.modules["pycuda"] = None
        import vkgdr
        for attempt in (lambda: vkgdr.pycuda, lambda: __import__("vkgdr.pycuda")):
            try:
                attempt()
            except ImportError as error:
                assert "pycuda" in str(error)
            else:
                raise AssertionError
        vkgdr.Vkgdr
    """
    run_python(code)


def test_memory_works_without_numpy(run_python):
    code = """
        import sys
        sys.modules["numpy"] = None
        import vkgdr
        memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 100)
        memory.copy_from_host(b"a" * 100)
        memory.memset(5, offset=10)
        assert memory.tobytes() == b"a" * 10 + b"\\5" * 90
        assert bytes(memoryview(memory)[9:11]) == b"a\\5"
        memory[3:9].flush()
        assert "100 bytes" in repr(memory)
        memory.__cuda_array_interface__, memory.__array_interface__, memory.__dlpack__()
        memory.free()
    """
    run_python(code)


def test_importing_pycudas_module_needs_no_context_and_makes_none(run_python):
    pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    code = """
        import vkgdr.pycuda
        import pycuda.driver
        try:
            print(pycuda.driver.Context.get_current())
        except pycuda.driver.LogicError as error:
            print("None" if "initialized" in str(error) else error)
    """
    assert run_python(code).stdout == "None\n"


def test_every_name_in_all_is_there_and_listed():
    assert sorted(vkgdr.__all__) == vkgdr.__all__
    for name in vkgdr.__all__:
        assert getattr(vkgdr, name) is not None
        assert name in dir(vkgdr)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_submodule_is_found_lazily(run_python, name):
    if name == "pycuda":
        pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    code = f"""
        import sys, vkgdr
        assert {name!r} in dir(vkgdr)
        module = vkgdr.{name}
        assert module is sys.modules["vkgdr.{name}"]
        for public in module.__all__:
            assert hasattr(module, public), public
        from vkgdr import {name}
        assert {name} is module
    """
    run_python(code)


def test_every_public_module_of_the_package_is_known():
    found = {module.name for module in pkgutil.iter_modules(vkgdr.__path__) if not module.name.startswith("_")}
    assert found == PUBLIC | ADAPTORS


def test_a_star_import_brings_what_all_says(run_python):
    code = """
        from vkgdr import *
        import vkgdr
        for name in vkgdr.__all__:
            assert name in globals(), name
    """
    run_python(code)


@pytest.mark.parametrize("name", ["nothing", "_nothing", "__nothing__", "Pycuda", ""])
def test_a_name_that_is_not_there_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"'vkgdr' has no attribute '{name}'"):
        getattr(vkgdr, name)
    assert not hasattr(vkgdr, name)


def test_a_name_that_is_not_there_cannot_be_imported(run_python):
    code = """
        try:
            from vkgdr import nothing
        except ImportError as error:
            assert "nothing" in str(error)
        else:
            raise AssertionError
    """
    run_python(code)


def test_the_version_is_that_of_the_distribution():
    assert vkgdr.__version__ == importlib.metadata.version("vkgdr")


def test_the_package_is_marked_as_typed():
    folder = os.path.dirname(vkgdr.__file__)
    assert os.path.exists(os.path.join(folder, "py.typed"))
    assert os.path.exists(os.path.join(folder, "_vkgdr.pyi"))


def test_type_checkers_see_every_submodule_and_no_other_name():
    tree = ast.parse(Path(vkgdr.__file__).read_text())
    branches = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {ast.unparse(branch.test): branch.body for branch in branches}
    imports = [node for node in checked["TYPE_CHECKING"] if isinstance(node, ast.ImportFrom)]
    imported = {name.asname for node in imports if node.module == "vkgdr" for name in node.names}
    assert imported == PUBLIC | ADAPTORS
    # With it, every name would exist.
    assert not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)


def test_importing_twice_after_a_purge_works(run_python):
    code = """
        import sys, vkgdr
        first = vkgdr
        for name in [name for name in sys.modules if name.startswith("vkgdr") and name != "vkgdr._vkgdr"]:
            del sys.modules[name]
        import vkgdr
        assert vkgdr is not first
        memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 10)
        memory.memset(1)
    """
    run_python(code)


def test_a_subinterpreter_either_works_or_is_refused(run_python):
    code = """
        import warnings
        warnings.simplefilter("ignore")
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import vkgdr
        one = interpreters.create()
        try:
            interpreters.run_string(one, "import vkgdr; vkgdr.Memory")
        except Exception as error:
            assert "ImportError" in str(error) or "interpreter" in str(error), error
        interpreters.destroy(one)
    """
    run_python(code)


# ---- no driver


@pytest.fixture
def no_cuda(tmp_path):
    """Return an environment in which ``libcuda.so.1`` cannot be loaded."""
    (tmp_path / "libcuda.so.1").write_text("not a library")
    return {"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": ""}


def test_no_driver_at_all_is_an_error_with_a_remedy(run_python, no_cuda):
    code = """
        import vkgdr
        for open in (lambda: vkgdr.Vkgdr(0), vkgdr.Vkgdr.open_current_context, vkgdr.Vkgdr.open_primary_context):
            try:
                open()
            except vkgdr.VkgdrError as error:
                print(error)
            else:
                raise AssertionError
    """
    lines = run_python(code, **no_cuda).stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert "libcuda.so.1" in line
        assert "install" in line or "driver" in line


def test_the_rest_of_the_package_works_without_a_driver(run_python, no_cuda):
    code = """
        import vkgdr, vkgdr.stream, vkgdr.ops, vkgdr.ipc
        assert vkgdr.OpenFlags(1) == 1
        repr(vkgdr.Memory.__new__(vkgdr.Memory))
        try:
            vkgdr.stream.handle_of("x")
        except TypeError:
            pass
    """
    run_python(code, **no_cuda)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vkgdr.memory", "vkgdr.compat.dpctl"),
        ("vkgdr.ops", "vkgdr.compat.pyopencl"),
    ],
)
def test_a_module_is_found_under_its_old_name_too(old, new):
    before, now = importlib.import_module(old), importlib.import_module(new)
    assert sorted(before.__all__) == sorted(now.__all__)
    for name in now.__all__:
        assert getattr(before, name) is getattr(now, name), name


def test_the_old_names_work_in_every_form_of_import(run_python):
    code = """
        import vkgdr
        import vkgdr.memory
        import vkgdr.ops as ops
        from vkgdr import Buffer, device_view, host_view
        from vkgdr.memory import MemoryDevice, MemoryHost, MemoryShared, as_memory
        from vkgdr.ops import copy, fill, map, migrate
        from vkgdr.compat import dpctl, pyopencl, rmm
        assert vkgdr.memory.MemoryShared is MemoryShared is dpctl.MemoryShared
        assert vkgdr.ops.copy is copy is ops.copy is pyopencl.copy
        assert vkgdr.Buffer is Buffer is rmm.Buffer
        assert vkgdr.arrays.device_view is device_view
        assert vkgdr.compat.dpctl is dpctl
    """
    run_python(code)


def test_the_shapes_of_other_libraries_are_loaded_on_first_use(run_python):
    code = """
        import sys, vkgdr.compat
        assert not any(name.startswith("vkgdr.compat.") for name in sys.modules)
        assert vkgdr.compat.rmm.Buffer is vkgdr.Buffer
        try:
            vkgdr.compat.nothing
        except AttributeError as error:
            assert "'vkgdr.compat' has no attribute 'nothing'" in str(error)
        else:
            raise AssertionError
    """
    run_python(code)
