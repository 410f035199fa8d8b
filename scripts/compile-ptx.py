#!/usr/bin/env python3
r"""Compile CUDA sources to PTX, for machines without the CUDA toolkit: with NVRTC or nvcc from PyPI, run by uv.

The output declares PTX 7.4, of CUDA 11.4 and driver R470, the oldest that vkgdr supports; compute_60 (Pascal) runs on
every GPU since. NVRTC 12.0 writes 8.0: its line is replaced, and ptxas refuses what PTX 7.4 does not have.

    packages="--with nvidia-cuda-nvrtc-cu12==12.0.140 --with nvidia-cuda-nvcc-cu12==12.0.140"
    uv run --no-project $packages scripts/compile-ptx.py examples/vector_add.cu

Those that include vkgdr_ring.cuh need --option=-Isrc/ring.

The kernels of sim/ptx/tests/fixtures are compiled in these ways, one folder each:

    old="--with nvidia-cuda-nvrtc-cu12==12.9.86 --with nvidia-cuda-runtime-cu12==12.9.79"
    new="--with nvidia-cuda-nvcc==13.5.37 --with nvidia-cuda-nvrtc==13.5.37 --with nvidia-cuda-runtime==13.5.37 \
        --with nvidia-cuda-cccl"
    nvrtc12-sm_70         uv run $old … --arch compute_70, of *.cu
    nvrtc13-sm_90-fast    uv run $new … --arch compute_90 --option=--use_fast_math, of atomics.cu and math.cu
    nvcc13-sm_90-debug    uv run $new … --arch compute_90 --nvcc --option=-G, of atomics.cu, control.cu and data.cu
    nvcc13-sm_80          uv run $new … --arch compute_80 --nvcc, of nvcc/*.cu

where … is "--no-project scripts/compile-ptx.py --declare= --into FOLDER" and the sources.
"""

import argparse
import ctypes
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

FOUND = importlib.util.find_spec("nvidia")
PACKAGES = pathlib.Path(next(iter(FOUND.submodule_search_locations or []), "") if FOUND else "")


def check(result: int) -> None:
    if result:
        sys.exit(f"compile-ptx: NVRTC error {result}")


def nvrtc() -> ctypes.CDLL:
    found = sorted([*PACKAGES.glob("cuda_nvrtc/lib/libnvrtc.so.*"), *PACKAGES.glob("cu1*/lib/libnvrtc.so.*")])
    return ctypes.CDLL(str(found[0])) if found else sys.exit("compile-ptx: NVRTC is not installed")


def includes() -> list[str]:
    """List the include folders of the installed toolkit packages."""
    folders = [*PACKAGES.glob("cuda_runtime/include"), *PACKAGES.glob("cu1*/include")]
    folders += [folder / "cccl" for folder in folders if (folder / "cccl").is_dir()]
    return [f"-I{folder}" for folder in folders]


def with_nvrtc(source: pathlib.Path, options: list[str]) -> bytes:
    library, program = nvrtc(), ctypes.c_void_p()
    check(library.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None))
    encoded = [option.encode() for option in ("--device-int128", *options)]
    if library.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)):
        sys.exit(output(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode())
    return output(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program).rstrip(b"\0")


def output(get_size, get, program: ctypes.c_void_p) -> bytes:
    check(get_size(program, ctypes.byref(size := ctypes.c_size_t())))
    check(get(program, text := ctypes.create_string_buffer(size.value)))
    return text.raw


def declare(version: str, ptx: bytes) -> bytes:
    """Replace the version that the PTX declares, and check that it uses nothing newer."""
    ptx = re.sub(rb"^\.version .*$", f".version {version}".encode(), ptx, count=1, flags=re.MULTILINE)
    # Constants of the compiler's own header nv/target, which no kernel uses.
    ptx = re.sub(rb"^\.global .* _ZN\d+_INTERNAL_\w*2nv6target.*;\n", b"", ptx, flags=re.MULTILINE)
    found = [*PACKAGES.glob("cuda_nvcc/bin/ptxas"), *PACKAGES.glob("cu1*/bin/ptxas")]
    ptxas = found[0] if found else sys.exit("compile-ptx: ptxas is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "output.ptx"
        path.write_bytes(ptx)
        # An architecture of every ptxas from CUDA 10 on.
        if subprocess.run([ptxas, "--gpu-name=sm_75", "--output-file=/dev/null", path], check=False).returncode:
            sys.exit(f"compile-ptx: not PTX {version}: --declare names another version")
    return ptx


def with_nvcc(source: pathlib.Path, options: list[str]) -> bytes:
    nvcc = next(PACKAGES.glob("cu1*/bin/nvcc"), None) or sys.exit("compile-ptx: nvcc is not installed")
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "output.ptx"
        subprocess.run([nvcc, "--ptx", f"--output-file={target}", *options, source.name], cwd=source.parent, check=True)
        # Without debug sections and the list of files, which contain paths of this machine.
        debug = rb"^\t*\.(section[^{]*\{[^}]*\}|file\t.*)\n"
        return re.sub(debug, b"", target.read_bytes(), flags=re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--into", default=".", help="folder beside the sources (default: the sources' own)")
    add("--declare", default="7.4", metavar="VERSION", help="of PTX (default: %(default)s); empty: the compiler's")
    add("--arch", default="compute_60", help="default: %(default)s")
    add("--option", action="append", default=[], help="for the compiler")
    add("--nvcc", action="store_true", help="instead of NVRTC")
    add("sources", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    for source in arguments.sources:
        options = [f"--gpu-architecture={arguments.arch}", *arguments.option]
        # The examples include nothing; their PTX must not depend on include folders.
        if re.search(r"^#include", source.read_text(), re.MULTILINE):
            options += includes()
        target = source.parent / arguments.into / source.with_suffix(".ptx").name
        target.parent.mkdir(exist_ok=True)
        ptx = (with_nvcc if arguments.nvcc else with_nvrtc)(source, options)
        target.write_bytes(declare(arguments.declare, ptx) if arguments.declare else ptx)
        print(target)


if __name__ == "__main__":
    main()
