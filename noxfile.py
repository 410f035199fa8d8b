"""Python's environments, tests and wheels: `nox -l` lists the sessions, `nox -s tests -- -k NAME` runs a test.

`make` starts it from an environment of its own, `python/tools` in cargo's target folder; uv makes the others beside it.
PYTHON names the interpreter; the default is the one that runs nox, or one that uv finds or fetches if that is too old.
"""

import hashlib
import os
import shutil
import sys
import urllib.request
import zipfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = False
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", "target")).absolute()
HERE = TARGET / "python"
SIM = Path(os.environ.get("VKGDR_SIM_DIR", Path(os.environ.get("CARGO_TARGET_DIR", "sim/target"), "sim"))).absolute()
nox.options.envdir = str(HERE / "nox")
os.environ |= {"CARGO_TARGET_DIR": str(TARGET), "VKGDR_SIM_DIR": str(SIM)}
os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "MYPY_CACHE_DIR": str(HERE / "mypy")}
os.environ.setdefault("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))
for folder in sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/3.*/bin")):
    os.environ["PATH"] += f":{folder}"
PYTHON = os.environ.get("PYTHON") or (None if sys.version_info >= (3, 11) else "3.13")
REQUIREMENTS = "ffi/python/tests/requirements.txt"
CONFIG = "ffi/python/pyproject.toml"
PYCUDA = "2026.1"
# Tests with real libraries have the runtime and nvJitLink of the simulator, and no other layer than they need.
REAL_LIBRARIES = {"VKGDR_SIM_PRELOAD": "1", "VKGDR_TEST_LAYERS": "faults", "VKGDR_TEST_TORCH": "1"}


def torch(session: nox.Session, *newest: str) -> None:
    """Install PyTorch, or the newest version that is asked for, without CUDA's libraries and with stubs of them."""
    session.install("--no-deps", "--requirement", "sim/requirements/torch.txt", silent=True)
    if newest:
        session.install("--no-deps", "--upgrade", *newest, silent=True)
    session.run_install("python", "sim/tests/torch/stubs.py", silent=True)


def c_library(session: nox.Session) -> None:
    """Build the C library, for the tests of a process that has it beside the package."""
    session.run("cargo", "build", "--quiet", "--locked", "--package", "vkgdr-c", external=True)
    session.env["VKGDR_C_LIBRARY"] = str(TARGET / "debug/libvkgdr_c.so")


def run(session: nox.Session, *arguments: str) -> None:
    """Run Python on the driver and the layers that sim/run chooses, with warnings as errors."""
    driver = session.run("sim/run", "--driver", silent=True, external=True) or ""
    # Without the layer, tests that inject faults skip themselves. pycuda and Mesa write caches.
    layers = os.environ.get("VKGDR_TEST_LAYERS") or ("faults" if "sim" in driver else "none")
    environment = {"VKGDR_TEST_LAYERS": layers, "XDG_CACHE_HOME": str(HERE / "cache")}
    session.run("sim/run", "python", "-X", "dev", "-W", "error", *arguments, env=environment, external=True)


def package(session: nox.Session) -> None:
    """Install the tools of tests and lints, and the package, which uv builds anew when its sources changed."""
    session.install("--no-deps", "--requirement", REQUIREMENTS, silent=True)
    session.log("building the package, if it changed (half a minute the first time)")
    session.install("--no-deps", "--build-constraints", REQUIREMENTS, "./ffi/python", silent=True)


def pycuda(session: nox.Session, *options: str, cached: bool = False) -> None:
    """Install nvcc and pycuda, built without a toolkit: the simulated driver has the soname of the real one."""
    offline = ["--offline"] if cached else []
    session.install("--no-deps", "--requirement", "scripts/requirements/nvcc.txt", *offline, silent=True)
    # pycuda's setup reads a file in the home folder. cuRAND's library alone has 105 MB, and few programs use it.
    home = Path(session.virtualenv.location)
    (home / ".aksetup-defaults.py").write_text("CUDA_ENABLE_CURAND = False\n")
    [headers] = home.glob("lib/python3.*/site-packages/nvidia/cu13/include")
    paths = {"HOME": str(home), **in_front("CPATH", headers), **in_front("LIBRARY_PATH", SIM)}
    if not cached:
        session.log("building pycuda (two minutes, once)")
    how = ["--no-deps", *offline, "--no-binary", "pycuda", *options]
    session.install(*how, f"pycuda=={PYCUDA}", env=paths, silent=True)


def has_built_pycuda(session: nox.Session) -> bool:
    """Return whether uv has built pycuda for the session's interpreter: `--no-build` would refuse that wheel, too."""
    tag = session.run("python", "-c", "import sys; print('cp%d%d' % sys.version_info[:2])", silent=True) or ""
    built = Path(os.environ["UV_CACHE_DIR"]).glob(f"sdists-*/pypi/pycuda/{PYCUDA}/*/pycuda-*-{tag.strip()}-*.whl")
    return any(built)


def in_front(name: str, folder: Path) -> dict[str, str]:
    """Return a variable with a folder in front of those that it has: an empty one would be the current folder."""
    return {name: ":".join(filter(None, [str(folder), os.environ.get(name)]))}


@nox.session(python=PYTHON)
def python(session: nox.Session) -> None:
    """Make an environment with the package, NumPy, pycuda and nvcc; `-- PYTHON` adds pycuda to another environment."""
    package(session)
    pycuda(session)
    if session.posargs:
        pycuda(session, "--python", *session.posargs)
    session.log(f"a program that uses the package: sim/run {session.virtualenv.location}/bin/python PROGRAM.py")


@nox.session(python=PYTHON)
def tests(session: nox.Session) -> None:
    """Run the tests, or those that pytest's arguments select, and check the stubs against the extension module."""
    package(session)
    if has_built_pycuda(session):
        pycuda(session, cached=True)
    else:
        session.warn("uv has not built pycuda: its tests are skipped (`make python` builds it)")
    c_library(session)
    pytest(session, *session.posargs)
    if not session.posargs:
        stubs(session)


@nox.session(python=PYTHON)
def tests_all(session: nox.Session) -> None:
    """Run all tests, with pycuda, nvcc and PyTorch; 700 MB."""
    package(session)
    pycuda(session)
    torch(session)
    c_library(session)
    pytest(session, *session.posargs)


def pytest(session: nox.Session, *arguments: str) -> None:
    """Run the tests in at most 8 processes: each has a context of several hundred megabytes on a GPU."""
    run(session, "-m", "pytest", "--numprocesses=auto", "--maxprocesses=8", "ffi/python/tests", *arguments)


def stubs(session: nox.Session) -> None:
    """Check the stubs against the built extension module."""
    options = ["--concise", "--ignore-unused-allowlist", "--allowlist", "ffi/python/stubtest-allowlist.txt"]
    session.run("python", "-m", "mypy.stubtest", "--mypy-config-file", CONFIG, *options, "vkgdr._vkgdr")


def cpp_headers(session: nox.Session) -> dict[str, str]:
    """Fetch headers that no package of PyPI has; return the folders by the variables in which tests look for them."""
    found = {}
    archive, folder = HERE / "adaptors/onnxruntime.deb", HERE / "adaptors/onnxruntime"
    archive.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Seconds without a byte.
        with urllib.request.urlopen(ONNXRUNTIME_DEV, timeout=60) as response, archive.open("wb") as file:
            shutil.copyfileobj(response, file)
        if hashlib.sha256(archive.read_bytes()).hexdigest() != ONNXRUNTIME_DEV_SHA256:
            session.error(f"{ONNXRUNTIME_DEV} is not what it was")
        session.run("dpkg-deb", "--extract", str(archive), str(folder), external=True)
        found["VKGDR_ONNXRUNTIME_HEADERS"] = str(folder / "usr/include/onnxruntime")
    except (OSError, nox.command.CommandFailed) as error:
        session.warn(f"no headers of ONNX Runtime: {error}")
    # Cargo keeps the sources of a crate that it shows. 101 is any failure.
    command = ["cargo", "info", "--quiet", "--registry", "crates-io", TENSORRT_CRATE]
    session.run(*command, silent=True, external=True, success_codes=[0, 101])
    sources = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"), "registry/src")
    crate = TENSORRT_CRATE.replace("@", "-")
    for folder in sources.glob(f"*/{crate}+*/TensorRT-Headers/TRT-Enterprise-*"):
        found["VKGDR_TENSORRT_HEADERS"] = str(folder)
    return found


@nox.session(python=PYTHON)
@nox.parametrize("libraries", ["nvidia", "torch", "cupy", "jax"])
def adaptors(session: nox.Session, libraries: str) -> None:
    """Test the adaptors with the real libraries, and numba-cuda's own tests with our manager; 3 GB."""
    package(session)
    if libraries == "torch":
        torch(session)
    elif libraries == "cupy":
        session.install("--no-deps", "cupy-cuda13x==14.2.0", "cuda-pathfinder==1.9.0", silent=True)
    elif libraries == "jax":
        session.install("--constraint", REQUIREMENTS, "jax==0.10.2", silent=True)
    else:
        session.install("--constraint", REQUIREMENTS, "--requirement", "scripts/requirements/adaptors.txt", silent=True)
    session.run("make", "-C", "sim", "build", external=True)
    environment = REAL_LIBRARIES.copy()
    if libraries == "nvidia":
        c_library(session)
        session.install("--no-deps", "onnxruntime==1.31.1", silent=True)
        environment |= cpp_headers(session)
    tests = ["-m", "pytest", "ffi/python/tests/adaptors", *session.posargs]
    session.run("sim/run", "python", *tests, env=environment, external=True)
    if libraries == "nvidia" and not session.posargs:
        environment = {"VKGDR_SIM_PRELOAD": "1", "SIMCUDA_STALE_CONTEXT": "error"}
        session.run("sim/run", "python", "scripts/numba_tests.py", env=environment, external=True)


@nox.session(python=PYTHON)
@nox.parametrize("extra", ["numba", "torch", "cupy"])
def extras(session: nox.Session, extra: str) -> None:
    """Test an extra's adaptor and README's program with the newest versions that its bounds allow; 3 GB."""
    package(session)
    newest = nox.project.load_toml(CONFIG)["project"]["optional-dependencies"][extra]
    if extra == "torch":
        torch(session, *newest)
    else:
        session.install("--upgrade", *newest, silent=True)
    session.run("make", "-C", "sim", "build", external=True)
    tests = [f"ffi/python/tests/adaptors/test_{extra}.py"]
    if extra == "numba":
        tests.append("ffi/python/tests/process/test_examples.py::test_the_program_of_a_page_runs[README.md]")
    session.run("sim/run", "python", "-m", "pytest", *tests, env=REAL_LIBRARIES, external=True)


@nox.session
def build_wheel(session: nox.Session) -> None:
    """Build the manylinux wheel into `python/wheel`, by zig for an older glibc than this machine's, and check it."""
    session.install("--requirement", "scripts/requirements/wheel.txt", silent=True)
    shutil.rmtree(HERE / "wheel", ignore_errors=True)
    # Python ends threads by `pthread_exit`, which unwinds them with the system's unwinder and cannot cross frames of
    # another. By its path, as zig resolves the name to its own; it may be newer than the glibc of the wheel.
    unwinder = (session.run("cc", "-print-file-name=libgcc_s.so.1", silent=True, external=True) or "").strip()
    if not unwinder.startswith("/"):
        session.error("libgcc_s.so.1, the unwinder, is missing (package libgcc-s1)")
    # Apart from the objects of other builds.
    flags = {"RUSTFLAGS": f"-C link-arg={unwinder} -C link-arg=-Wl,--allow-shlib-undefined"}
    options = ["--zig", "--auditwheel", "check", "--compatibility", "manylinux2014"]
    paths = ["--manifest-path", "ffi/python/Cargo.toml", "--out", str(HERE / "wheel")]
    command = ["maturin", "build", "--quiet", "--locked", "--release", *options, *paths]
    session.run(*command, env=flags | {"CARGO_TARGET_DIR": str(HERE / "zig")})
    [built] = (HERE / "wheel").glob("*-cp311-abi3-manylinux2014_*.whl")
    session.run("twine", "check", "--strict", str(built), silent=True)
    with zipfile.ZipFile(built) as archive:
        if b"libgcc_s.so.1" not in archive.read("vkgdr/_vkgdr.abi3.so"):
            session.error("the wheel does not use the system's unwinder")
    session.log(f"{built.name}: {built.stat().st_size >> 10} KiB")


@nox.session(python=["3.11", "3.12", "3.13", "3.14", "3.15"])
def wheel(session: nox.Session) -> None:
    """Run the tests with the wheel of the session `build_wheel`; one serves all versions of Python (abi3)."""
    session.install("--constraint", REQUIREMENTS, "numpy", "pytest", "pytest-timeout", silent=True)
    session.install("--no-deps", "--reinstall", *map(str, (HERE / "wheel").glob("*.whl")), silent=True)
    run(session, "-m", "pytest", "--quiet", "-r", "fE", "ffi/python/tests")


# Debian's headers of ONNX Runtime, whose wheel has none, and a crate with TensorRT's.
ONNXRUNTIME_DEV = "https://deb.debian.org/debian/pool/main/o/onnxruntime/libonnxruntime-dev_1.21.0+dfsg-1_amd64.deb"
ONNXRUNTIME_DEV_SHA256 = "14f7d959d5deacbcf1504830d4189f91fc67382b399ed9ae9d3aa9c4050ced08"
TENSORRT_CRATE = "trtx-sys@0.9.1"


@nox.session(venv_backend="venv", reuse_venv=False)
def install(session: nox.Session) -> None:
    """Run `pip install` of the source distribution as a user would: pip fetches maturin, and NumPy is absent."""
    session.install("--constraint", "scripts/requirements/wheel.txt", "maturin", silent=True)
    shutil.rmtree(HERE / "sdist", ignore_errors=True)
    session.run(
        "maturin", "sdist", "--manifest-path", "ffi/python/Cargo.toml", "--out", str(HERE / "sdist"), silent=True
    )
    session.install(*map(str, (HERE / "sdist").glob("*.tar.gz")), silent=True)
    run(session, "-m", "vkgdr")


@nox.session(python=PYTHON)
def types(session: nox.Session) -> None:
    """Check the types of the sources; the session `tests` checks the stubs."""
    session.install("--no-deps", "--requirement", REQUIREMENTS, silent=True)
    environment = {"MYPYPATH": "ffi/python/python"}
    for checked in (["--package", "vkgdr"], ["examples/python"], ["sim/python/src"]):
        session.run("mypy", "--config-file", CONFIG, "--no-error-summary", *checked, env=environment)
