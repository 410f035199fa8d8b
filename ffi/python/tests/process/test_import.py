"""The effects of importing the package, and what it defers to first use."""

import ast
import importlib.metadata
import pkgutil
import sys
from pathlib import Path

import pytest
import vkgdr

PUBLIC = {"arrays", "compat", "ipc", "pool", "pycuda", "ring", "stream", "typing", "vulkan"}
# The adaptors, the modules that each needs, and the packages that have these.
NEEDS = [
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
ADAPTORS = {name for name, *_ in NEEDS} - PUBLIC
COMPAT = {"compat.dpctl", "compat.pyopencl", "compat.rmm"}


def test_importing_vkgdr_imports_no_other_library_no_slow_module_and_no_driver(run_python):
    code = """
        import sys
        before = set(sys.modules)
        import vkgdr
        new = set(sys.modules) - before
        print(sorted({name.split(".")[0] for name in new} - sys.stdlib_module_names))
        print(sorted({"ctypes", "dataclasses", "inspect", "re", "typing"} & new))
        with open("/proc/self/maps") as maps:
            print([line for line in maps if "libcuda" in line or "libvulkan" in line])
        for name in ("OpenFlags", "Vkgdr", "VkgdrError", "RawMemory", "__version__"):
            assert name in vars(vkgdr), name
    """
    assert run_python(code).stdout == "['vkgdr']\n[]\n[]\n"


def test_memory_works_without_numpy(run_python):
    run_python("""
        import sys
        sys.modules["numpy"] = None
        import vkgdr, vkgdr.ipc, vkgdr.pool, vkgdr.stream, vkgdr.vulkan
        from vkgdr.compat import dpctl, pyopencl, rmm
        memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 100)
        memory.copy_from_host(b"a" * 100)
        memory.memset(5, offset=10)
        assert memory.tobytes() == b"a" * 10 + b"\\5" * 90
        assert bytes(memoryview(memory)[9:11]) == b"a\\5"
        memory[3:9].flush()
        assert vkgdr.memory_of(memory.buf[3:9]).offset == vkgdr.device_view(memory.buf[3:9]).offset == 3
        assert "100 bytes" in repr(memory)
        memory.__cuda_array_interface__, memory.__array_interface__, memory.__dlpack__()
        pyopencl.copy(memory, b"123456", byte_count=3, src_offset=1)
        assert memory.tobytes()[:4] == b"234a"
        buffer = rmm.Buffer(memory.owner, size=100)
        buffer.copy_from_device(memory)
        assert buffer.copy().tobytes() == memory.tobytes()
        memory.free()
    """)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="has another module for subinterpreters")
def test_a_subinterpreter_is_refused(run_python):
    code = """
        import _xxsubinterpreters as interpreters
        one = interpreters.create()
        try:
            interpreters.run_string(one, "import vkgdr; vkgdr.Vkgdr")
        except interpreters.RunFailedError as error:
            print("subinterpreters" in str(error))
        interpreters.destroy(one)
        import vkgdr
        vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(), 64).bind_to_stream(0)
    """
    assert run_python(code).stdout == "True\n"


@pytest.mark.parametrize("name", sorted(PUBLIC | COMPAT))
def test_a_module_is_found_lazily_and_lists_its_names_and_no_others(run_python, name):
    if name == "pycuda":
        pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    run_python(f"""
        import sys, vkgdr
        assert {name.partition(".")[0]!r} in dir(vkgdr)
        assert "vkgdr.{name}" not in sys.modules
        module = vkgdr.{name}
        assert module is sys.modules["vkgdr.{name}"]
        assert dir(module) == sorted(module.__all__) == module.__all__
        for public in module.__all__:
            assert hasattr(module, public), public
        from vkgdr import *
        assert sorted(vkgdr.__all__) == vkgdr.__all__
        for public in vkgdr.__all__:
            assert public in globals() and public in dir(vkgdr), public
    """)


@pytest.mark.parametrize("module", [vkgdr, vkgdr.compat, vkgdr.stream])
def test_a_name_that_is_not_there_is_an_attribute_error(module):
    for name in ("nothing", "_nothing", "__nothing__", "Pycuda", "ops", "memory", "Buffer", "Region", ""):
        with pytest.raises(AttributeError, match=f"'{module.__name__}' has no attribute '{name}'"):
            getattr(module, name)


def test_the_version_is_that_of_the_distribution_which_is_typed():
    assert vkgdr.__version__ == importlib.metadata.version("vkgdr")
    folder = Path(vkgdr.__file__).parent
    assert (folder / "py.typed").exists()
    assert (folder / "_vkgdr.pyi").exists()


def test_type_checkers_see_every_submodule_and_no_other_name():
    tree = ast.parse(Path(vkgdr.__file__).read_text())
    branches = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {ast.unparse(branch.test): branch.body for branch in branches}
    imports = [node for node in checked["TYPE_CHECKING"] if isinstance(node, ast.ImportFrom)]
    imported = {name.asname for node in imports if node.module == "vkgdr" for name in node.names}
    assert imported == PUBLIC | ADAPTORS
    found = {module.name for module in pkgutil.iter_modules(vkgdr.__path__) if not module.name.startswith("_")}
    assert found == PUBLIC | ADAPTORS
    assert {f"compat.{module.name}" for module in pkgutil.iter_modules(vkgdr.compat.__path__)} == COMPAT
    # With it, every name would exist.
    assert not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in tree.body)


def test_no_driver_at_all_is_an_error_with_a_remedy(run_python, tmp_path):
    (tmp_path / "libcuda.so.1").write_text("not a library")
    code = """
        import pytest, vkgdr, vkgdr.stream, vkgdr.compat.pyopencl, vkgdr.ipc
        assert vkgdr.OpenFlags(1) == 1
        openers = (lambda: vkgdr.Vkgdr(0), vkgdr.Vkgdr.open_current_context, vkgdr.Vkgdr.open_primary_context)
        for open in (*openers, vkgdr.stream.stream):
            with pytest.raises(vkgdr.VkgdrError, match="driver.*libcuda.so.1|libcuda.so.1.*(driver|install)"):
                open()
    """
    run_python(code, LD_LIBRARY_PATH=str(tmp_path), LD_PRELOAD="")


@pytest.mark.parametrize(
    ("name", "library", "package"), NEEDS, ids=[library.replace(".", "_") for _, library, _ in NEEDS]
)
def test_an_adaptor_without_its_library_names_the_missing_package(run_python, name, library, package):
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
        sys.modules.update(dict.fromkeys({["numpy", *(library for _, library, _ in NEEDS)]!r}))
        import vkgdr
        assert "vkgdr" in pydoc.render_doc(vkgdr)
        assert dict(inspect.getmembers(vkgdr)).keys() == set(dir(vkgdr))
    """)
