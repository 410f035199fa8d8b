"""The programs in Python of the guide's pages: those of a page are one program, which runs in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import simulator

ROOT = Path(__file__).resolve().parents[4]
PAGES = [ROOT / "README.md", ROOT / "ffi/python/README.md", ROOT / "sim/README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^(<!-- not run: .*-->\n)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not PAGES[0].is_file(), reason=f"the pages are not at {ROOT}")


def programs():
    """Return the pages that have programs."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8") if page.is_file() else ""
        if "```python\n" in text:
            yield pytest.param(text, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("text", list(programs()))
def test_the_program_of_a_page_runs(text, tmp_path):
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
