"""The environments of the simulator's Python tests and of its wheel; `make` starts them, `nox -l` lists them.

PYTHON names the interpreter; the default is the one that runs nox, or one that uv finds or fetches if that is too old.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target")).absolute()
HERE = TARGET / "python-sim"
SIM = Path(os.environ.get("VKGDR_SIM_DIR", TARGET / "sim")).absolute()
nox.options.envdir = str(HERE / "nox")
os.environ |= {"CARGO_TARGET_DIR": str(TARGET), "VKGDR_SIM_DIR": str(SIM), "PYTHONDONTWRITEBYTECODE": "1"}
PYTHON = os.environ.get("PYTHON") or (None if sys.version_info >= (3, 11) else "3.13")
TESTS = ["-m", "pytest", "--config-file", "python/pyproject.toml", "python/tests", "--numprocesses=auto"]
# The glibc of the wheel: the first with `memfd_create` (2.27) that has a name in manylinux.
GLIBC = "2.28"
# Those whose libraries the simulator has, and NVRTC.
CUDARC_FEATURES = "std,driver,nvrtc,f16,fallback-dynamic-loading,cuda-version-from-build-system,fallback-latest"
# What numba-cuda's own tests import, and the headers of the kernels that they compile.
NUMBA_TESTS = ["cffi", "filecheck", "ml_dtypes", "nvidia-cuda-cccl", "psutil", "pytest"]


def require(session: nox.Session, *names: str) -> None:
    """Install what the files in `requirements` list."""
    files = [word for name in names for word in ("--requirement", f"requirements/{name}.txt")]
    session.install(*files, silent=True)


def simulated(session: nox.Session, *arguments: str, **variables: str) -> None:
    """Run Python on the simulated GPU."""
    session.run(str(SIM / "vkgdr-sim"), "--", "python", *arguments, env=variables, external=True)


@nox.session(python=PYTHON)
def package(session: nox.Session) -> None:
    """Test the package with the simulator that `make` built."""
    require(session, "tests")
    session.install("--no-deps", "--no-build-isolation", "--reinstall", "./python", silent=True)
    session.run("python", *TESTS, *session.posargs)


@nox.session(python=PYTHON)
def wheel(session: nox.Session) -> None:
    """Build the manylinux wheel into `dist`, check it, and test it with a small numba project; 300 MB."""
    require(session, "wheel")
    built = HERE / "wheel-sim"
    shutil.rmtree(built, ignore_errors=True)
    unwinder = str(session.run("cc", "-print-file-name=libgcc_s.so.1", silent=True, external=True)).strip()
    if not unwinder.startswith("/"):
        session.error("libgcc_s.so.1, the unwinder, is missing (package libgcc-s1)")
    # Python ends threads by `pthread_exit`, which unwinds them with the system's unwinder and cannot cross frames of
    # another. Linked by path, as zig resolves the name to its own, and without zig's check of that library, which needs
    # a newer glibc. zig's objects have a target folder of their own.
    environment = {
        "RUSTFLAGS": f"-C link-arg={unwinder} -C link-arg=-Wl,--allow-shlib-undefined",
        "CARGO_TARGET_DIR": str(HERE / "zig"),
        "VKGDR_SIM_DIR": str(built),
        "GLIBC": GLIBC,
    }
    session.log(f"building the simulator for glibc {GLIBC} (a minute the first time)")
    session.run("./build.sh", "bundle", env=environment, external=True)
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"
    dist = Path("dist").absolute()
    for old in dist.glob("vkgdr_sim-*.whl"):
        old.unlink()
    environment = {"VKGDR_SIM_DIR": str(built), "VKGDR_SIM_PLATFORM": tag}
    with session.chdir("python"):
        session.run("hatchling", "build", "--target", "wheel", "--directory", str(dist), env=environment, silent=True)
    [file] = dist.glob(f"vkgdr_sim-*-py3-none-{tag}.whl")
    session.run("twine", "check", "--strict", str(file), silent=True)
    # auditwheel breaks lines anywhere, and takes the wheel's own libcuda.so.1, which libcuda.so loads, for a stranger.
    shown = " ".join(str(session.run("auditwheel", "show", str(file), silent=True)).split())
    if f'constrains the platform tag to "{tag}"' not in shown:
        session.error(f"the wheel needs another glibc than {GLIBC}: {shown}")
    session.log(f"{file.name}: {file.stat().st_size >> 10} KiB")
    require(session, "numba", "tests")
    session.install("--no-deps", "--reinstall", str(file), silent=True)
    session.run("python", *TESTS, *session.posargs)


@nox.session(python=PYTHON)
def ptxas(session: nox.Session) -> None:
    """Compare the modules that the interpreter's tests load with what NVIDIA's ptxas accepts; 40 MB."""
    session.install("--no-deps", "nvidia-cuda-nvcc==13.5.37", silent=True)
    folder = HERE / "ptxas"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["cargo", "test", "--quiet", "--locked", "--package", "ptx", "--features", "dump", "--tests"]
    # The same random modules each time.
    variables = {"PTX_DUMP": str(folder), "PROPTEST_RNG_SEED": "1"}
    session.run(*command, env=variables, external=True, silent=True)
    session.run("python", "tests/ptxas.py", str(folder))


@nox.session(python=PYTHON)
def torch(session: nox.Session) -> None:
    """Run PyTorch's CUDA wheel on the simulated GPU, on the runtime that vkgdr-sim preloads; 1.1 GB."""
    require(session, "tests", "torch")
    session.run_install("python", "tests/torch/stubs.py", silent=True)
    simulated(session, "-m", "pytest", "tests/torch", *session.posargs)


@nox.session(python=PYTHON)
@nox.parametrize("suite", ["numba", "pycuda", "cudarc"])
def pass_rates(session: nox.Session, suite: str) -> None:
    """Run the tests of CUDA libraries on the simulated GPU, and write the rates into docs/pass-rates.md; 700 MB."""
    results = HERE / "pass-rates"
    results.mkdir(parents=True, exist_ok=True)
    output = str(results / f"{suite}.json")
    program = "tests/pass_rates"
    if suite == "numba":
        require(session, "numba")
        session.install(*NUMBA_TESTS, silent=True)
        simulated(session, program, "numba", output)
    elif suite == "cudarc":
        session.install("--no-deps", "nvidia-cuda-nvrtc==13.5.37", silent=True)
        crate, version = cudarc_sources(results)
        simulated(
            session, program, "rust", f"cudarc {version}", str(crate), CUDARC_FEATURES, output, **libraries(session)
        )
    else:
        require(session, "nvcc", "tests")
        session.install("numpy", "Mako", "platformdirs", "pytools", "siphash24", silent=True)
        pycuda(session)
        # The wheel that was built has no tests, unlike the sdist that it was built from.
        session.run("python", "-m", "ensurepip", silent=True)
        download = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "pycuda", "pycuda==2026.1"]
        sources = results / "pycuda"
        session.run("python", *download, "--dest", str(sources), silent=True)
        [archive] = sources.glob("pycuda-*.tar.gz")
        session.run("tar", "-xf", str(archive), "-C", str(sources), external=True)
        tests = next(sources.glob("pycuda-*/test"))
        # libcudadevrt.a is among the libraries.
        simulated(session, program, "pytest", "pycuda 2026.1", str(tests), output, **libraries(session))
    session.run("python", program, "write", str(results))


def cuda_folder(session: nox.Session, name: str) -> Path:
    """Return a folder of the toolkit that is installed from PyPI."""
    [folder] = Path(session.virtualenv.location).glob(f"lib/python3.*/site-packages/nvidia/cu13/{name}")
    return folder


def libraries(session: nox.Session) -> dict[str, str]:
    """Return the environment in which programs find the libraries of CUDA's packages."""
    return in_front("LD_LIBRARY_PATH", cuda_folder(session, "lib"))


def in_front(name: str, folder: Path) -> dict[str, str]:
    """Return a variable with a folder in front of those that it has: an empty one would be the current folder."""
    return {name: ":".join(filter(None, [str(folder), os.environ.get(name)]))}


def pycuda(session: nox.Session) -> None:
    """Install pycuda, built without a toolkit: the simulated driver has the soname of the real one."""
    # Its setup reads a file in the home folder. cuRAND's library alone has 105 MB, and few programs use it.
    with tempfile.TemporaryDirectory() as home:
        Path(home, ".aksetup-defaults.py").write_text("CUDA_ENABLE_CURAND = False\n")
        paths = in_front("CPATH", cuda_folder(session, "include")) | in_front("LIBRARY_PATH", SIM)
        session.install(
            "--no-deps", "--no-binary", "pycuda", "pycuda==2026.1", env={"HOME": home, **paths}, silent=True
        )


def cudarc_sources(into: Path) -> tuple[Path, str]:
    """Copy the sources of our version of cudarc, as a workspace of its own; return their folder and version."""
    command = ["cargo", "metadata", "--quiet", "--locked", "--format-version=1"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    [cudarc] = [package for package in metadata["packages"] if package["name"] == "cudarc"]
    crate = into / f"cudarc-{cudarc['version']}"
    shutil.copytree(Path(cudarc["manifest_path"]).parent, crate, dirs_exist_ok=True)
    with (crate / "Cargo.toml").open("a") as manifest:
        manifest.write("\n[workspace]\n")
    return crate, cudarc["version"]
