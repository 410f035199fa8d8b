#!/usr/bin/env python3
"""Compile a CUDA source to PTX beside it, for a machine without the CUDA toolkit.

    python3 -m venv /tmp/nvrtc && /tmp/nvrtc/bin/pip install nvidia-cuda-nvrtc-cu12==12.0.140
    /tmp/nvrtc/bin/python scripts/compile-ptx.py examples/vector_add.cu

NVRTC 12.0 writes PTX 8.0, which drivers from release 525 on accept; compute_60 (Pascal) runs on every GPU since.
"""

import ctypes
import pathlib
import sys
import sysconfig

ARCHITECTURE = "compute_60"


def nvrtc():
    packages = pathlib.Path(sysconfig.get_paths()["purelib"])
    found = sorted(packages.glob("nvidia/cuda_nvrtc/lib/libnvrtc.so.*"))
    if not found:
        sys.exit("compile-ptx: NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12==12.0.140")
    return ctypes.CDLL(str(found[0]))


def compile_ptx(library, source):
    program = ctypes.c_void_p()
    text = source.read_bytes()
    check(library.nvrtcCreateProgram(ctypes.byref(program), text, source.name.encode(), 0, None, None))
    option = f"--gpu-architecture={ARCHITECTURE}".encode()
    result = library.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(option))
    if result:
        sys.exit(output(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode())
    return output(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program)


def output(get_size, get, program):
    size = ctypes.c_size_t()
    check(get_size(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(get(program, text))
    return text.value


def check(result):
    if result:
        sys.exit(f"compile-ptx: NVRTC error {result}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    library = nvrtc()
    for name in sys.argv[1:]:
        source = pathlib.Path(name)
        target = source.with_suffix(".ptx")
        target.write_bytes(compile_ptx(library, source))
        print(target)


if __name__ == "__main__":
    main()
