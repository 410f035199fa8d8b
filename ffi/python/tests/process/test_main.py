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


def run_module(*arguments, cwd=None, **environment):
    """Run ``python -m vkgdr`` in a new process, in the folder `cwd`."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "vkgdr", *arguments]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | environment
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("parent", [0, 1, 2])
def test_it_starts_in_the_folders_of_the_sources_too(gpu, parent):
    # The package's project, ffi, and the whole project: none of them has a folder `vkgdr` to take for the package.
    folder = next(up for up in Path(__file__).parents if (up / "pyproject.toml").exists())
    folder = [folder, *folder.parents][parent]
    done = run_module(cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"vkgdr {vkgdr.__version__}")


def test_json_names_the_same_gpu(gpu):
    done = run_module("--json")
    assert done.returncode == 0
    facts = json.loads(done.stdout)
    assert facts["version"] == vkgdr.__version__
    names = {name: facts["devices"][0][name] for name in ("device", "name", "uuid", "pci_bus_id")}
    assert names == {"device": 0, "name": gpu.name, "uuid": str(gpu.uuid), "pci_bus_id": gpu.pci_bus_id}
    assert facts["devices"][0]["bar_size"] == gpu.memory_info("mapped").total


def test_without_a_driver_the_doctor_has_an_exit_code_of_its_own():
    simulator.require()
    done = run_module("doctor", "--json", LD_LIBRARY_PATH="")
    assert done.returncode == 2
    assert json.loads(done.stdout)["status"] == "unusable"


def test_numpy_is_not_needed(run_python):
    code = """
        import sys
        sys.modules["numpy"] = None
        from vkgdr.__main__ import main
        sys.exit(main([]))
    """
    assert "CUDA device 0" in run_python(code).stdout


def test_a_closed_standard_output_is_no_error():
    command = ["sh", "-c", 'exec "$0" -m vkgdr --version >&-', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_console_script_is_the_same_command():
    script = Path(sys.executable).parent / "vkgdr"
    if not script.exists():
        pytest.skip("the package is not installed beside its interpreter: it has no console script")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"vkgdr {vkgdr.__version__}\n", "")


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
