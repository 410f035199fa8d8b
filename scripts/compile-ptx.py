#!/usr/bin/env python3
r"""Compile CUDA sources to PTX, for machines without the CUDA toolkit: with NVRTC or nvcc from PyPI.

An example's PTX lies beside it. NVRTC 12.0 writes PTX 8.0, which drivers from release 525 on accept; compute_60
(Pascal) runs on every GPU since.

    python3 -m venv /tmp/nvrtc && /tmp/nvrtc/bin/pip install nvidia-cuda-nvrtc-cu12==12.0.140
    /tmp/nvrtc/bin/python scripts/compile-ptx.py examples/vector_add.cu

The kernels in sim/ptx/tests/fixtures are compiled by several compilers and options, one folder each:

    /tmp/cuda12/bin/pip install nvidia-cuda-nvrtc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79
    /tmp/cuda12/bin/python scripts/compile-ptx.py --into nvrtc12-sm_70 --arch compute_70 sim/ptx/tests/fixtures/*.cu
    /tmp/cuda13/bin/pip install nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvrtc==13.5.37 nvidia-cuda-runtime==13.5.37 \
        nvidia-cuda-cccl
    /tmp/cuda13/bin/python scripts/compile-ptx.py --into nvrtc13-sm_90-fast --arch compute_90 \
        --option=--use_fast_math sim/ptx/tests/fixtures/*.cu
    /tmp/cuda13/bin/python scripts/compile-ptx.py --into nvcc13-sm_75 --nvcc --arch compute_75 \
        sim/ptx/tests/fixtures/*.cu
    /tmp/cuda13/bin/python scripts/compile-ptx.py --into nvcc13-sm_90-debug --nvcc --arch compute_90 --option=-G \
        sim/ptx/tests/fixtures/*.cu
    for arch in 75 90; do /tmp/cuda13/bin/python scripts/compile-ptx.py --into ../nvcc13-sm_$arch --nvcc \
        --arch compute_$arch sim/ptx/tests/fixtures/nvcc/*.cu; done
"""

import argparse
import ctypes
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence

PACKAGES = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia"


def nvrtc() -> ctypes.CDLL:
    found = sorted([*PACKAGES.glob("cuda_nvrtc/lib/libnvrtc.so.*"), *PACKAGES.glob("cu1*/lib/libnvrtc.so.*")])
    if not found:
        sys.exit("compile-ptx: NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12==12.0.140")
    return ctypes.CDLL(str(found[0]))


def includes() -> list[str]:
    """List the include folders of the installed toolkit packages."""
    folders = [*PACKAGES.glob("cuda_runtime/include"), *PACKAGES.glob("cu1*/include")]
    folders += [folder / "cccl" for folder in folders if (folder / "cccl").is_dir()]
    return [f"-I{folder}" for folder in folders]


def with_nvrtc(source: pathlib.Path, options: Sequence[str]) -> bytes:
    library = nvrtc()
    program = ctypes.c_void_p()
    text = source.read_bytes()
    check(library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None))
    encoded = [option.encode() for option in ("--device-int128", *options)]
    result = library.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded))
    if result:
        sys.exit(output(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode())
    return output(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program).rstrip(b"\0")


def output(get_size, get, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    check(get_size(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(get(program, text))
    return text.raw


def check(result: int) -> None:
    if result:
        sys.exit(f"compile-ptx: NVRTC error {result}")


def with_nvcc(source: pathlib.Path, options: Sequence[str]) -> bytes:
    found = sorted(PACKAGES.glob("cu1*/bin/nvcc"))
    if not found:
        sys.exit("compile-ptx: nvcc is not installed: pip install nvidia-cuda-nvcc==13.5.37")
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "output.ptx"
        subprocess.run(
            [found[0], "--ptx", f"--output-file={target}", *options, source.name], cwd=source.parent, check=True
        )
        return without_debug_information(target.read_bytes())


def without_debug_information(ptx: bytes) -> bytes:
    """Remove debug sections and the list of files, which contain paths of this machine."""
    return re.sub(rb"^\t*\.(section[^{]*\{[^}]*\}|file\t.*)\n", b"", ptx, flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", default=".", help="folder beside the sources (default: the sources' own)")
    parser.add_argument("--arch", default="compute_60", help="default: %(default)s")
    parser.add_argument("--option", action="append", default=[], help="for the compiler")
    parser.add_argument("--nvcc", action="store_true", help="instead of NVRTC")
    parser.add_argument("sources", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    for source in arguments.sources:
        options = [f"--gpu-architecture={arguments.arch}", *arguments.option]
        # The examples include nothing; their PTX must not depend on include folders.
        if re.search(r"^#include", source.read_text(), re.MULTILINE):
            options += includes()
        compile_with = with_nvcc if arguments.nvcc else with_nvrtc
        target = source.parent / arguments.into / source.with_suffix(".ptx").name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(compile_with(source, options))
        print(target)


if __name__ == "__main__":
    main()
