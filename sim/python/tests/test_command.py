"""The command of the installed package."""

import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import vkgdr_sim
from programs import Run

COUNT = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print("devices", count.value)
"""


def test_a_program_finds_a_gpu_from_any_folder(run: Run):
    for command in (["vkgdr-sim"], [sys.executable, "-m", "vkgdr_sim"]):
        done = run(*command, "--", sys.executable, "-c", COUNT)
        assert (done.stdout, done.returncode) == ("devices 1\n", 0), done.stderr


def test_vkgdrs_command_finds_it_in_an_environment_that_is_not_activated(run: Run):
    pytest.importorskip("vkgdr", reason="vkgdr is not installed", exc_type=ImportError)
    for command in ([str(Path(sys.executable).with_name("vkgdr"))], [sys.executable, "-m", "vkgdr"]):
        done = run(*command, "sim", "--version", PATH="/usr/bin:/bin")
        assert done.stdout == f"vkgdr-sim {version('vkgdr-sim')}\n", done.stderr


def test_a_profile_is_passed_on(run: Run):
    done = run("vkgdr-sim", "--profile", "two-gpus", "--", sys.executable, "-c", COUNT)
    assert done.stdout == "devices 2\n", done.stderr


def test_the_profile_without_vulkan_needs_no_vulkan_driver(run: Run):
    done = run("vkgdr-sim", "-p", "no-vulkan", "--", sys.executable, "-c", COUNT, VK_DRIVER_FILES="/dev/null/x.json")
    assert done.stdout == "devices 1\n", done.stderr


def test_the_version_is_the_packages(run: Run):
    assert run("vkgdr-sim", "--version").stdout == f"vkgdr-sim {version('vkgdr-sim')}\n"


def test_the_exit_code_is_the_programs_and_125_if_the_simulator_fails(run: Run):
    assert run("vkgdr-sim", "--", "sh", "-c", "exit 3").returncode == 3
    failed = run("vkgdr-sim", "--profile", "gtx", "true")
    assert failed.returncode == 125
    assert "there is no profile 'gtx'" in failed.stderr


def test_files_that_cannot_be_run_are_named(run: Run):
    code = "import vkgdr_sim.__main__ as m; from pathlib import Path; m.program = lambda: Path('/dev/null/x'); m.main()"
    failed = run(sys.executable, "-c", code)
    assert failed.returncode == 125
    assert failed.stderr == "vkgdr-sim: /dev/null/x: Not a directory\n"


def test_the_package_has_all_libraries_and_layers():
    names = {str(path.relative_to(vkgdr_sim.folder())) for path in vkgdr_sim.folder().rglob("*") if path.is_file()}
    libraries = {f"lib{name}.so.{major}" for name in ("cudart", "nvJitLink") for major in (12, 13)}
    compiler = {"bin/nvcc", "lib64/libcudadevrt.a"}
    layers = {f"vklayers/{name}/VkLayer_vkgdr_{name}.json" for name in ("faults", "messenger", "profile", "semaphores")}
    assert names >= {"vkgdr-sim", "libcuda.so.1", "vklayers/libvklayer.so"} | compiler | libraries | layers
    assert not any(name.startswith("cache") for name in names)
    assert Path(vkgdr_sim.__file__).with_name("py.typed").exists()


def test_both_names_of_the_driver_are_one_library(run: Run):
    if not (vkgdr_sim.folder() / "libcuda.so").exists():
        # Wheels have no links. The manylinux wheel has a library in place of the link.
        return
    code = """
import ctypes
address = lambda name: ctypes.cast(ctypes.CDLL(name).cuInit, ctypes.c_void_p).value
first, second = address("libcuda.so.1"), address("libcuda.so")
print(first == second)
"""
    assert run("vkgdr-sim", "--", sys.executable, "-c", code).stdout == "True\n"
    reverse = code.replace('"libcuda.so.1"), address("libcuda.so")', '"libcuda.so"), address("libcuda.so.1")')
    assert run("vkgdr-sim", "--", sys.executable, "-c", reverse).stdout == "True\n"


def test_nvjitlink_may_be_used_before_the_driver_was_loaded(run: Run):
    code = """
import ctypes
library = ctypes.CDLL("libnvJitLink.so.13")
linker, options = ctypes.c_void_p(), (ctypes.c_char_p * 1)(b"-arch=sm_80")
print(library.__nvJitLinkCreate_13_0(ctypes.byref(linker), 1, options))
"""
    done = run("vkgdr-sim", "--", sys.executable, "-c", code)
    # nvJitLinkResult: NVJITLINK_ERROR_INTERNAL, since the driver's linker needs a context.
    assert (done.stdout, done.returncode) == ("6\n", 0), done.stderr


def test_nvjitlink_refuses_options_that_nvidias_does_not_know(run: Run):
    code = """
import ctypes
library = ctypes.CDLL("libnvJitLink.so.13")
for option in b"-nonsense", b"-ptx", b"-O3":
    linker, options = ctypes.c_void_p(), (ctypes.c_char_p * 2)(b"-arch=sm_80", option)
    print(library.__nvJitLinkCreate_13_0(ctypes.byref(linker), 2, options))
"""
    done = run("vkgdr-sim", "--", sys.executable, "-c", code)
    # NVJITLINK_ERROR_UNRECOGNIZED_OPTION, of what the simulator cannot make, too.
    assert (done.stdout, done.returncode) == ("1\n1\n6\n", 0), done.stderr
