"""The programs in examples/python, each in a separate process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import simulator
from neighbours import first_of_path

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


def test_the_program_of_the_readme_runs(capsys):
    readme = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    code = readme.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("device pointer for kernels: 0x")


def test_share_array_shows_both_addresses_and_that_cuda_sees_the_array():
    output = run("share_array", "--elements", "5000").stdout
    host, device = (int(re.search(rf"^{side} +(0x\w+)$", output, re.M)[1], 16) for side in ("host", "device"))
    assert host != device
    assert "NumPy     wrote 5000 numbers, sum 2497500.0" in output
    assert "CUDA      sees the same bytes" in output
    # The simulated driver has no kernels for them.
    answer = r"\S" if simulator.available() else r"sum 2497500\.0|not installed|has no CUDA here"
    assert re.search(f"^CuPy      ({answer})", output, re.M), output
    assert re.search(f"^PyTorch   ({answer})", output, re.M), output


def shape(line):
    """Return a line without numbers, addresses, and answers of libraries that may be missing."""
    line = re.sub(r"^(CuPy|PyTorch) .*", r"\1", line.strip())
    return re.sub(r"0x[0-9a-f]+|[0-9][0-9.]*", "#", line)


@pytest.mark.parametrize("name", ["share_array", "packets", "pycuda_kernel"])
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


@pytest.mark.parametrize(
    ("threads", "packets", "size"), [(1, 1, 8), (1, 300, 9000), (3, 1000, 1500), (7, 100, 1 << 20), (5, 3, 64)]
)
def test_packets_receives_every_packet_on_any_number_of_threads(threads, packets, size):
    output = run("packets", "--threads", str(threads), "--packets", str(packets), "--size", str(size)).stdout
    assert f"packets   {packets} of {size} bytes, {threads} threads" in output
    assert re.search(rf"^received  {packets} in [\d.]+ s, [\d.]+ GB/s", output, re.M)
    assert "checked   all are right" in output


def test_packets_says_when_no_gpu_took_part(simulated):
    assert "GB/s (simulated" in run("packets", "--packets", "10").stdout


def test_packets_finds_a_wrong_byte():
    code = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import packets
take = packets.Slot.wait
def spoiled(slot, network):
    if slot.event is not None and 123 in slot.numbers:
        slot.event.synchronize()
        slot.taken.memset(255 - network.payloads[123 % 64, 0], offset=slot.numbers.index(123) * slot.size + 8, nbytes=1)
    return take(slot, network)
packets.Slot.wait = spoiled
sys.argv = ["packets.py", "--packets", "200", "--threads", "2"]
sys.exit(packets.main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    assert "1 are wrong, 0 are missing" in done.stdout


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


def test_pycuda_kernel_adds():
    pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    output = run("pycuda_kernel", "--elements", "1000").stdout
    assert "NumPy     wrote 1000 pairs" in output
    assert "pycuda    sees the same bytes" in output
    assert "kernel    all sums are right, the last is 1498.5" in output


@pytest.mark.parametrize(("packets", "size"), [(1, 8), (200, 2048), (300, 100)])
def test_ring_packets_answers_every_packet(packets, size):
    pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    output = run("ring_packets", "--send", "--packets", str(packets), "--size", str(size)).stdout
    assert f"received  {packets} packets, {packets * size} bytes, in " in output
    assert "every answer is right" in output
    assert re.search(r"^rate      \d+ packets/s, [\d.]+ MB/s", output, re.M)
    assert re.search(r"^latency   [\d.]+ us at the median, [\d.]+ us at 99 of 100", output, re.M)


def test_pycuda_kernel_without_pycuda_says_how_to_get_it(tmp_path):
    # Precedes the real one on the path.
    (tmp_path / "pycuda").mkdir()
    (tmp_path / "pycuda" / "__init__.py").write_text("raise ImportError('hidden')")
    done = run("pycuda_kernel", expect=1, PYTHONPATH=first_of_path(tmp_path))
    assert "pycuda cannot be imported (hidden): pip install pycuda" in done.stderr


@pytest.mark.parametrize("name", ["share_array", "packets", "pycuda_kernel", "ring_packets"])
def test_an_example_explains_itself(name):
    output = run(name, "--help", COLUMNS="100").stdout
    assert output.startswith(f"usage: {name}.py")
    assert len(output.splitlines()) > 8


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("share_array", ["--elements", "0"]),
        ("packets", ["--threads", "0"]),
        ("packets", ["--size", "7"]),
        ("packets", ["--packets", "x"]),
        ("pycuda_kernel", ["--elements", "-1"]),
        ("ring_packets", ["--size", "7"]),
        ("share_array", ["--nonsense"]),
    ],
)
def test_an_example_refuses_invalid_arguments(name, arguments):
    assert arguments[0] in run(name, *arguments, expect=2).stderr


@pytest.mark.parametrize("name", ["share_array", "packets"])
def test_an_example_without_a_driver_says_what_to_do(name):
    simulator.require()
    done = run(name, expect=1, LD_LIBRARY_PATH="")
    assert re.match(rf"{name}\.py: .*install the NVIDIA driver", done.stderr)
