"""A compiler for libraries that a test brings."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[str], str]:
    """Compile C into a shared library, whose undefined functions the program has loaded already."""

    def compile_source(source: str) -> str:
        library = tmp_path / "library.so"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"]
        subprocess.run(command, input=source, text=True, check=True)
        return str(library)

    return compile_source
