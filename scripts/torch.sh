#!/usr/bin/env bash
# Installs PyTorch into a virtual environment, for tests on the CPU:
#
#     scripts/torch.sh PYTHON
#
# PyPI's wheels (500 MB) link to CUDA's libraries, several gigabytes that the tests do not use. torch_stubs.py makes
# stub libraries with the same names and functions instead.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

python=${1:?}
packages=(torch==2.15.0 filelock==4.2.11 fsspec==2026.9.0 Jinja2==3.1.6 mpmath==1.3.0 networkx==3.6.1 sympy==1.14.0)

say 'installing PyTorch (500 MB to download, once)'
"$python" -m pip install "${pip_options[@]}" --no-deps "${packages[@]}" || die "PyTorch could not be installed"
folder=$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/torch/lib
"$python" scripts/torch_stubs.py "$folder"
"$python" -W error -c 'import torch; assert torch.ones(2).sum() == 2' ||
    die 'PyTorch cannot be imported without CUDA (see scripts/torch_stubs.py)'
