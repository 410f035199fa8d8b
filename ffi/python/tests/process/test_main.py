"""``python -m vkgdr``, which is the command ``vkgdr``. cli/tests has the tests of the command itself."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import simulator
import vkgdr


def run_module(*arguments, cwd=None, launcher=(), **environment):
    """Run ``python -m vkgdr`` in a new process, in the folder `cwd`."""
    command = [*launcher, sys.executable, "-X", "dev", "-W", "error", "-m", "vkgdr", *arguments]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def no_driver():
    """Return an environment in which no CUDA driver is found."""
    simulator.require()
    return {"LD_LIBRARY_PATH": ""}


@pytest.mark.parametrize("parent", [0, 1, 2])
def test_it_starts_in_the_folders_of_the_sources_too(gpu, parent):
    # The package's project, ffi, and the whole project: none of them has a folder `vkgdr` to take for the package.
    folder = next(up for up in Path(__file__).parents if (up / "pyproject.toml").exists())
    folder = [folder, *folder.parents][parent]
    done = run_module(cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"vkgdr {vkgdr.__version__}")


def memory_type_of(gpu, kind):
    """Return the memory type of a kind, as it is once the driver was asked for such memory."""
    assert gpu.supports(kind)
    return gpu.memory_type_of(kind)


def test_json_has_the_same_facts_as_numbers(gpu):
    done = run_module("--json")
    assert done.returncode == 0
    facts = json.loads(done.stdout)
    assert facts["version"] == vkgdr.__version__
    major, minor = facts["cuda_version"].split(".")
    assert int(major) >= 11
    assert int(minor) >= 0
    device = facts["devices"][0]
    assert device["device"] == 0
    assert (device["name"], device["uuid"]) == (gpu.name, str(gpu.uuid))
    assert device["pci_bus_id"] == gpu.pci_bus_id
    assert device["bar_size"] == gpu.memory_info("mapped").total
    for kind in ("mapped", "host", "device"):
        facts_of_kind, memory_type = device["kinds"][kind], memory_type_of(gpu, kind)
        assert facts_of_kind["memory_type"] == memory_type.index
        assert facts_of_kind["heap"] == memory_type.heap
        assert facts_of_kind["flags"] == list(memory_type.flags)
        assert 0 < facts_of_kind["free"] <= facts_of_kind["total"] == facts_of_kind["heap_size"]
        assert facts_of_kind["source"] in (("budget", "heap size") if memory_type.index is not None else ("system",))
        assert facts_of_kind["coherent"] is (None if kind == "device" else gpu_is_coherent(gpu, kind))


def gpu_is_coherent(gpu, kind):
    return vkgdr.Memory(gpu, 16, kind=kind).is_coherent


def test_without_a_driver_the_report_says_why():
    done = run_module(COLUMNS="400", **no_driver())
    assert (done.returncode, done.stderr) == (1, "")
    words = " ".join(done.stdout.split())
    assert "There is no GPU to use: libcuda.so.1 could not be loaded" in words
    assert "install the NVIDIA driver" in words


def test_numpy_is_not_needed(run_python):
    code = """
        import sys
        sys.modules["numpy"] = None
        from vkgdr.__main__ import main
        sys.exit(main([]))
    """
    assert "CUDA device 0" in run_python(code).stdout


def test_the_console_script_is_the_same_command():
    script = Path(sys.executable).parent / "vkgdr"
    if not script.exists():
        pytest.skip("the package is not installed beside its interpreter: it has no console script")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"vkgdr {vkgdr.__version__}\n", "")


def test_the_doctor_has_exit_codes_of_its_own():
    done = run_module("doctor", "--json", **no_driver())
    assert done.returncode == 2
    assert json.loads(done.stdout)["status"] == "unusable"


def test_an_interrupt_ends_the_command_at_once():
    simulator.require()
    code = "import signal, vkgdr.__main__ as m; print(signal.getsignal(2) is signal.SIG_DFL, m.main(['--version']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    # A program that calls main keeps its own handler.
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr
    command = [sys.executable, "-m", "vkgdr", "bench", "bw"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        # The table has begun.
        assert child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=300) == -signal.SIGINT
