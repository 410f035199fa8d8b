"""Makes kernels.ptx of kernels.cu. Needs cuda.core and the headers of nvidia-cuda-runtime and nvidia-cuda-cccl."""

import pathlib
import sys

from cuda.core import Program, ProgramOptions

source = pathlib.Path(__file__).with_name("kernels.cu")
options = ProgramOptions(std="c++17", arch="compute_80", include_path=sys.argv[1:])
ptx = Program(source.read_text(), "c++", options).compile("ptx")
source.with_suffix(".ptx").write_bytes(ptx.code.rstrip(b"\0"))
