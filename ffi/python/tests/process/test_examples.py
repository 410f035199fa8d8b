"""The programs in examples/python, each in a separate process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import simulator

FOLDER = Path(__file__).resolve().parents[4] / "examples" / "python"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the examples are not at {FOLDER}")


def run(name, *arguments, expect=0, **environment):
    """Run an example and return its output."""
    # Warnings of CuPy and PyTorch, which share_array imports, are not errors.
    strict = name != "share_array" or simulator.available()
    warnings = ["-X", "dev", "-W", "error"] if strict else []
    command = [sys.executable, *warnings, str(FOLDER / f"{name}.py"), *arguments]
    # share_array asks CuPy, and the simulated driver says why its runtime, which is linked statically, cannot use it.
    settings = {"PYTHONDONTWRITEBYTECODE": "1", "SIMCUDA_QUIET": "1"}
    done = subprocess.run(
        command,
        env=os.environ | settings | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert expect != 0 or not strict or not done.stderr, done.stderr
    return done


def shape(line):
    """Return a line without numbers, addresses, and answers of libraries that may be missing."""
    line = re.sub(r"^(CuPy|PyTorch) .*", r"\1", line.strip())
    return re.sub(r"0x[0-9a-f]+|[0-9][0-9.]*", "#", line)


@pytest.mark.parametrize("name", ["share_array", "pycuda_kernel"])
def test_the_head_of_an_example_shows_what_it_prints(name, simulated):
    if name == "pycuda_kernel":
        pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    if os.environ.get("VKGDR_TEST_PROFILE", "none") != "none":
        pytest.skip("the output shown is that of the simulated GPU without a profile")
    head = (FOLDER / f"{name}.py").read_text(encoding="utf-8").split('"""')[1]
    shown = head.partition(f"    $ python examples/python/{name}.py\n")[2]
    assert [shape(line) for line in run(name).stdout.splitlines()] == [shape(line) for line in shown.splitlines()]


def test_the_head_of_ring_packets_shows_what_it_prints(simulated):
    pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    if os.environ.get("VKGDR_TEST_PROFILE", "none") != "none":
        pytest.skip("the output shown is that of the simulated GPU without a profile")
    head = (FOLDER / "ring_packets.py").read_text(encoding="utf-8").split('"""')[1]
    shown = head.partition("    $ python examples/python/ring_packets.py --send\n")[2]
    printed = run("ring_packets", "--send", "--packets", "100").stdout
    assert [shape(line) for line in printed.splitlines()] == [shape(line) for line in shown.splitlines()]


def test_the_head_of_send_memory_shows_what_it_prints():
    text = (FOLDER / "send_memory.py").read_text(encoding="utf-8")
    assert "send_memory.py PATH\n    the other process doubled the numbers\n" in text


def test_send_memory_shares_memory_with_a_program_in_rust(tmp_path):
    built = Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "debug/examples"
    receiver = Path(os.environ.get("VKGDR_EXAMPLES_DIR", built)) / "receive_memory"
    if not receiver.is_file():
        pytest.skip(f"{receiver} is not built: cargo build -p examples --examples, or set VKGDR_EXAMPLES_DIR")
    path = str(tmp_path / "socket")
    with subprocess.Popen([str(receiver), path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == f"listening at {path}\n"
            assert run("send_memory", path).stdout == "the other process doubled the numbers\n"
            output, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert output == "received 4000 bytes of mapped memory\nthey were [0.0, 1.0, 2.0] ...\n"


def test_send_memory_says_why_it_fails(tmp_path):
    assert "No such file" in run("send_memory", str(tmp_path / "nothing"), expect=1).stderr


def test_an_example_without_a_driver_says_what_to_do():
    simulator.require()
    done = run("share_array", expect=1, LD_LIBRARY_PATH="")
    assert re.match(r"share_array\.py: .*install the NVIDIA driver", done.stderr)
