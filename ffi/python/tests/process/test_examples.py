"""The programs in examples/python, and those of the guide's pages, each in a separate process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import simulator

ROOT = Path(__file__).resolve().parents[4]
FOLDER = ROOT / "examples" / "python"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the sources are not at {ROOT}")


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


# What the heads of the examples show, and further arguments for the test.
SHOWN = {"share_array": "", "pycuda_kernel": "", "ring_packets --send": "--packets 100"}


@pytest.mark.parametrize("shown", SHOWN)
def test_the_head_of_an_example_shows_what_it_prints(shown, simulated):
    name, *arguments = shown.split()
    if name in ("pycuda_kernel", "ring_packets"):
        pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    if os.environ.get("VKGDR_TEST_PROFILE", "none") != "none":
        pytest.skip("the output shown is that of the simulated GPU without a profile")
    head = (FOLDER / f"{name}.py").read_text(encoding="utf-8").split('"""')[1]
    lines = head.partition(f"    $ python examples/python/{' '.join([f'{name}.py', *arguments])}\n")[2].splitlines()
    printed = run(name, *arguments, *SHOWN[shown].split()).stdout
    assert [shape(line) for line in printed.splitlines()] == [shape(line) for line in lines]


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


# ---- the guide's pages: the programs of a page are one program, which runs in a process of its own -------------------


PAGES = [ROOT / "README.md", ROOT / "ffi/python/README.md", ROOT / "sim/README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^(<!-- not run: .*-->\n)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def programs():
    """Return the pages that have programs."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if "```python\n" in text:
            yield pytest.param(text, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("text", list(programs()))
def test_the_program_of_a_page_runs(text, tmp_path):
    if "from numba import cuda" in text:
        pytest.importorskip("numba_cuda", reason="numba-cuda is not installed: `nox -s extras`")
    blocks = BLOCK.findall(text)
    for marked, code in blocks:
        compile(code, "not run" if marked else "run", "exec")
    program = tmp_path / "page.py"
    program.write_text("\n".join(code for marked, code in blocks if not marked), encoding="utf-8")
    command = [sys.executable, "-X", "dev", "-W", "error", str(program)]
    profile = re.search(r"^<!-- profile: (\S+) -->$", text, re.MULTILINE)
    if profile:
        simulator.require()
        command = [f"{os.environ['VKGDR_SIM_DIR']}/vkgdr-sim", "--profile", profile[1], "--", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr, done.stderr
