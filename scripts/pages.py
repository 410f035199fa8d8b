#!/usr/bin/env python3
"""Checks the code of the guide's pages as a reader would run it, with the library installed into a home folder.

C and C++ are compiled, and whole programs run; a piece of CMake builds the program in C before it; lines of a shell
run; with VKGDR_TEST_ALL=1 clang compiles kernels. Doctests run the Rust (examples/pages/lib.rs), pytest the Python
(process/test_examples.py).
Comments of HTML before a block, which no page shows, are marks:

    <!-- not run: REASON -->    it is compiled or parsed, and not run
    <!-- file: PATH -->         it is the content of that file, relative to the page

A block within a comment is run, and not shown: it makes what the page takes for granted.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "docs/*.md", "examples/README.md", "ffi/python/README.md", "sim/README.md"]
# `text` is output, a drawing or a pattern of a command line.
LANGUAGES = {"c", "cmake", "cpp", "cuda", "dockerfile", "python", "rust", "sh", "text", "yaml"}
BLOCK = re.compile(r"(?:^<!-- (not run|file): ([^\n]*) -->\n+)?^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STRICT = "-O1 -Wall -Wextra -Werror"
# Kernels without includes need no toolkit.
CLANG = (
    "clang -x cuda --cuda-device-only --cuda-gpu-arch=sm_60 -nocudainc -nocudalib -fsyntax-only -Wall -Werror "
    "-Wno-unknown-cuda-version "  # of an nvcc that is newer than clang
    + " ".join(f"'-D__{word}__=__attribute__(({word}))'" for word in ("global", "device", "shared"))
)
PROJECT = "cmake_minimum_required(VERSION 3.13)\nproject(program LANGUAGES C)\nadd_executable(program program.c)\n"


@dataclass
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str | None
    file: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page."""
    text, found = page.read_text(), []
    for match in BLOCK.finditer(text):
        mark, value, language, code = match.groups()
        line = text.count("\n", 0, match.start(4))
        marks = {"not run": None, "file": None} | {mark: value}
        found.append(Block(page, line, re.split("[ ,]", language)[0], code, marks["not run"], marks["file"]))
    return found


def faults(page: Path, found: list[Block]) -> list[str]:
    """Return what keeps code of a page from being checked."""
    wrong = []
    if page == ROOT / "README.md" and page.read_text().count("\n") > 110:
        wrong.append("README.md is longer than a page")
    # Within a list, four spaces continue an item.
    rest = BLOCK.sub("", page.read_text())
    if "```" in rest:
        wrong.append(f"{page}: a fence within a list, which the guide does not render, or without an end")
    lists = re.compile(r"^(?:\* |\d+\. ).*\n(?:(?: .*)?\n)*", re.MULTILINE)
    wrong += [
        f"{page}: code without a fence: {line}"
        for line in re.findall(r"^\n(    \S.*)", lists.sub("", rest), re.MULTILINE)
    ]
    doctests = (ROOT / "examples/pages/lib.rs").read_text() + (ROOT / "src/lib.rs").read_text()
    for block in found:
        if block.language not in LANGUAGES:
            wrong.append(f"{block}: no known language, '{block.language}'")
        if block.not_run is not None and len(block.not_run) < 10:
            wrong.append(f"{block}: no reason for which it is not run")
        if block.file and (page.parent / block.file).read_text() != block.code:
            wrong.append(f"{block}: is not {block.file}")
        if block.language in {"dockerfile", "yaml"} and not block.file and not block.not_run:
            wrong.append(f"{block}: neither a file's content nor marked as not run")
        if block.language == "rust" and f'../{page.relative_to(ROOT)}")' not in doctests:
            wrong.append(f"{block}: examples/pages/lib.rs lacks its page")
    return wrong


class Reader:
    """Works in a folder, with what `make install` has put into the home folder."""

    def __init__(self, folder: Path) -> None:
        self.work, self.home = folder / "work", folder / "home"
        self.work.mkdir()
        self.home.mkdir()

    def shell(self, code: str, folder: Path | None = None) -> None:
        """Run lines of a shell on the driver of sim/run; a failure is an `OSError` with their output."""
        local = self.home / ".local"
        # The shell of a test may have variables of builds; a reader who follows the pages has only what they say.
        builds = {"DESTDIR", "LIBDIR", "INCLUDEDIR", "PREFIX", "GDRAPI", "CMAKE_PREFIX_PATH", "vkgdr_DIR"}
        inherited = {name: value for name, value in os.environ.items() if name not in builds}
        tools = {
            name: str(Path.home() / place) for name, place in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup"))
        }
        own = {
            "HOME": str(self.home),
            "PATH": f"{local}/bin:{os.environ['PATH']}",
            "PKG_CONFIG_PATH": f"{local}/lib/pkgconfig",
            "LD_LIBRARY_PATH": f"{local}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}",
        }
        command = [
            str(ROOT / "sim/run"),
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f'cd "$0"\n{code}',
            str(folder or self.work),
        ]
        done = subprocess.run(command, env=tools | inherited | own, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"ended with {done.returncode}\n{done.stdout}{done.stderr}")

    def check(self, block: Block) -> None:
        """Check a block as its language needs."""
        code, run = block.code, block.not_run is None
        if block.language in {"c", "cpp"}:
            compiler = "cc -std=gnu11" if block.language == "c" else "c++ -std=c++17"
            whole = "int main(" in code
            # A program is compiled as its page says. Later pages use the last one.
            name, kind = ("program", "-o program") if whole else ("functions", "-c -o functions.o")
            (self.work / f"{name}.{block.language}").write_text(code)
            flags = "$(pkg-config --cflags --libs vkgdr)" if whole else "$(pkg-config --cflags vkgdr)"
            self.shell(
                f"{compiler} {STRICT} {name}.{block.language} {kind} {flags}\n"
                + ("./program\n" if whole and run else "")
            )
        elif block.language == "cmake":
            (self.work / "CMakeLists.txt").write_text(PROJECT + code)
            self.shell("cmake -DCMAKE_PREFIX_PATH=$HOME/.local -S . -B build\ncmake --build build\nbuild/program\n")
        elif block.language == "cuda" and "int main(" in code:
            # Without NVIDIA's compiler nothing can build it.
            if shutil.which("nvcc") is None:
                print(f"skipped: {block} needs nvcc")
                return
            (self.work / "a.cu").write_text(code)
            self.shell("nvcc --cudart shared a.cu $(pkg-config --cflags --libs vkgdr)\n./a.out\n")
        elif block.language == "cuda" and os.environ.get("VKGDR_TEST_ALL") == "1":
            (self.work / "kernel.cu").write_text(code)
            self.shell(f"{CLANG} -D__forceinline__=inline -I$HOME/.local/include kernel.cu\n")
        elif block.language == "sh":
            # In the sources where they build something there.
            in_sources = re.search(r"^make |docs/", code, re.MULTILINE)
            if not run:
                subprocess.run(["bash", "-n", "-c", code], check=True)
                code = "".join(f"make -n {line}\n" for line in re.findall(r"^make (.*)", code, re.MULTILINE))
            self.shell(code, ROOT if in_sources else None)


def main() -> None:
    """Check all pages, and say what was run and what was not."""
    driver = subprocess.run([ROOT / "sim/run", "--driver"], capture_output=True, text=True, check=True).stdout.strip()
    os.environ["VKGDR_CUDA_DRIVER"] = driver
    failed, ran, not_run = [], Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        reader = Reader(Path(folder))
        reader.shell("make install PREFIX=$HOME/.local\n", ROOT)
        if driver == "sim":
            reader.shell("make -C sim install PREFIX=$HOME/.local\n", ROOT)
        for page in (page for pattern in PAGES for page in sorted(ROOT.glob(pattern))):
            found = blocks(page)
            failed += faults(page, found)
            for block in found:
                ran[block.language] += block.not_run is None
                if block.not_run:
                    not_run.append(f"    {block}, {block.language}: {block.not_run}")
                try:
                    reader.check(block)
                except (OSError, subprocess.CalledProcessError) as error:
                    failed.append(f"{block}: {error}")
    counts = ", ".join(f"{count} {language}" for language, count in sorted(ran.items()))
    print(f"blocks of code in the pages: {counts}; not run are {len(not_run)}:", *not_run, sep="\n")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
