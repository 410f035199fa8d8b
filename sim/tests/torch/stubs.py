"""Makes stubs of CUDA's libraries beside PyTorch's, so that PyTorch can be imported without them.

    python tests/torch/stubs.py

PyTorch's shared libraries search their folder first for their dependencies. A stub is made for each missing CUDA
library; it exports the functions that PyTorch imports from it, each of which returns 100, ``cudaErrorNoDevice``. For
use of PyTorch on the CPU. Needs ``readelf`` and ``cc``.
"""

import re
import subprocess
import sysconfig
import tempfile
from collections import defaultdict
from pathlib import Path

# Libraries whose symbols have no versions are recognised by the symbols' prefixes.
PREFIXES = {"libnccl": "nccl", "libcufile": "cuFile", "libcusparseLt": "cusparseLt"}
# Libraries that are loaded only when CUDA is used.
NEVER_LOADED = ("libtorch_cuda_linalg", "libcaffe2_nvrtc")
CUDA = re.compile(r"lib(cu|nv|nccl)")
NEEDED = re.compile(r"\(NEEDED\).*\[(\S+)\]")
# In the version table: a library, or a version imported from the library before it.
VERSION = re.compile(r"File: (\S+)|Name: (\S+)\s+Flags: .*Version: \d+")
# In the symbol table: an undefined function, with its version after an @.
UNDEFINED = re.compile(r"^\s*\d+: [0-9a-f]+\s.*\sUND (\w+)(?:@+(\S+))?", re.MULTILINE)


class Stubs:
    """The missing libraries and the functions imported from them, by version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.needed: set[str] = set()
        self.functions: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.unversioned: set[str] = set()
        for library in sorted(folder.glob("lib*.so*")):
            if not library.name.startswith(NEVER_LOADED):
                self._read(library)

    def _read(self, library: Path) -> None:
        command = ["readelf", "--dynamic", "--version-info", "--dyn-syms", "--wide", str(library)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.needed |= {name for name in NEEDED.findall(text) if CUDA.match(name)}
        versions, file = {}, ""
        for found in VERSION.finditer(text):
            file = found[1] or file
            if found[2]:
                versions[found[2]] = file
        for name, version in UNDEFINED.findall(text):
            if version in versions:
                self.functions[versions[version]][version].add(name)
            elif not version:
                self.unversioned.add(name)

    def make(self) -> None:
        """Build each missing library."""
        for library in sorted(self.needed):
            if not (self.folder / library).exists():
                self._build(library)

    def _build(self, library: str) -> None:
        versions = self.functions[library]
        names = set().union(*versions.values())
        prefix = PREFIXES.get(library.split(".")[0])
        if prefix:
            names |= {name for name in self.unversioned if name.startswith(prefix)}
        with tempfile.TemporaryDirectory() as work:
            source, script = Path(work, "stub.c"), Path(work, "stub.map")
            source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names)))
            script.write_text("".join(f"{v} {{ global: {'; '.join(sorted(f))}; }};\n" for v, f in versions.items()))
            options = [f"-Wl,--version-script={script}"] if versions else []
            output = str(self.folder / library)
            command = ["cc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{library}", *options, "-o", output, str(source)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    Stubs(Path(sysconfig.get_path("platlib"), "torch/lib")).make()
