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
from vkgdr.__main__ import main


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


def test_the_report_names_every_device_and_kind(cuda, gpu):
    done = run_module(COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"vkgdr {vkgdr.__version__}, the driver has CUDA ")
    assert done.stdout.count("\nCUDA device ") == cuda.device_count()
    words = " ".join(done.stdout.split())
    for fact in (gpu.name, str(gpu.uuid), gpu.pci_bus_id, "BAR", "the heap of mapped memory"):
        assert fact in words
    for kind in ("mapped", "host", "device"):
        memory_type = memory_type_of(gpu, kind)
        assert f"  {kind}" in done.stdout
        index, heap = memory_type.index, memory_type.heap
        assert ("not from Vulkan" if index is None else f"memory type {index}, heap {heap}") in words
        assert all(flag in words for flag in memory_type.flags)


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_the_report_fits_the_terminal(columns):
    done = run_module(COLUMNS=str(columns))
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= min(columns, 100)
    assert "\x1b" not in done.stdout
    assert not any(line != line.rstrip() for line in lines)
    assert (lines.count("  UUID") == 1) == (columns < 60)


def test_names_stay_whole_where_the_terminal_is_too_narrow(gpu):
    words = run_module(COLUMNS="25").stdout.split()
    assert str(gpu.uuid) in words
    assert gpu.pci_bus_id in words


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
        assert facts_of_kind["flags"] == memory_type.flags
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


def test_without_a_driver_json_says_why():
    done = run_module("--json", **no_driver())
    assert done.returncode == 1
    facts = json.loads(done.stdout)
    assert "libcuda.so.1 could not be loaded" in facts["error"]
    assert facts["devices"] == []
    assert facts["cuda_version"] is None


def test_a_gpu_that_cannot_be_opened_says_why(capfd, context, simulated):
    with simulator.fail("cuDeviceGetUuid", 1, 801):
        assert main([]) == 1
    words = " ".join(capfd.readouterr().out.split())
    assert "CUDA device 0 cannot be opened cuDeviceGetUuid failed" in words
    assert "CUDA_ERROR_NOT_SUPPORTED" in words
    with simulator.fail("cuDeviceGetUuid", 1, 801):
        assert main(["--json"]) == 1
    assert "cuDeviceGetUuid failed" in json.loads(capfd.readouterr().out)["devices"][0]["error"]


def test_a_driver_without_devices_says_so(capfd, simulated):
    with simulator.fail("cuDeviceGetCount", 1, 100):
        assert main([]) == 1
    assert "CUDA_ERROR_NO_DEVICE" in capfd.readouterr().out


def test_a_kind_that_the_gpu_does_not_have_is_said():
    simulator.require()
    launcher = [os.environ["VKGDR_SIM_DIR"] + "/vkgdr-sim", "--profile", "no-bar", "--"]
    done = run_module(launcher=launcher)
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert "BAR none that Vulkan can map" in words
    assert "mapped none: Vulkan device does not provide a suitable memory type" in words
    device = json.loads(run_module("--json", launcher=launcher).stdout)["devices"][0]
    assert device["bar_size"] is None
    assert "Resizable" in device["kinds"]["mapped"]["error"]


@pytest.fixture
def bar(gpu, monkeypatch, tmp_path):
    """Return the file with PCI's table of the GPU's resources, of a made system."""
    monkeypatch.setenv("VKGDR_SYSTEM_ROOT", str(tmp_path))
    table = tmp_path / "sys/bus/pci/devices" / gpu.pci_bus_id.lower() / "resource"
    table.parent.mkdir(parents=True)
    return table


def test_the_bar_that_pci_has_stands_beside(capfd, bar):
    bar.write_text("0x0 0x0 0x0\n0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n")
    assert main([]) == 0
    assert "256 MiB, PCI's BAR 1 as Linux has it" in " ".join(capfd.readouterr().out.split())


def test_the_size_of_a_bar_is_read_from_linuxs_table(capfd, bar):
    absent = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
    registers = "0x00000000de000000 0x00000000deffffff 0x0000000000040200\n"
    for contents, size in (
        (registers + "0x000000d000000000 0x000000d7ffffffff 0x000000000014220c\n", 32 << 30),
        (registers + absent, None),
        (registers, None),
        ("nonsense\nnonsense\n", None),
        ("", None),
    ):
        bar.write_text(contents)
        assert main(["--json"]) == 0
        device = json.loads(capfd.readouterr().out)["devices"][0]
        assert device["pci_bar1_size"] == size, contents
    bar.unlink()
    assert main(["--json"]) == 0
    assert json.loads(capfd.readouterr().out)["devices"][0]["pci_bar1_size"] is None


def test_help_and_version_need_no_driver():
    done = run_module("--help", COLUMNS="40", **no_driver())
    assert done.returncode == 0
    assert "Usage: vkgdr" in done.stdout
    assert "--json" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 40
    assert run_module("--version", **no_driver()).stdout == f"vkgdr {vkgdr.__version__}\n"


@pytest.mark.parametrize("argument", ["--nonsense", "nonsense", "--js"])
def test_an_unknown_argument_is_refused(argument):
    done = run_module(argument)
    assert done.returncode == 2
    assert f"'{argument}'" in done.stderr
    assert done.stdout == ""


def test_a_reader_that_goes_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-X", "dev", "-W", "error", "-m", "vkgdr"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


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
