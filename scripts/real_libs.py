#!/usr/bin/env python3
"""Tries the crate and the command with NVIDIA's own libraries of three driver generations, without a GPU.

    scripts/real_libs.py

Looks for the functions that the crate calls, checks what `vkgdr` says of installations with a defect, and compiles our
PTX. Prints tables, and exits with 1 on an unexpected answer.

Debian's archive has the libraries. They are downloaded into `real-libs` in cargo's target folder and unpacked, never
installed. As root they make /dev/nvidiactl, by which others tell that there is a GPU. So every program that loads them
gets a /dev of its own, and no right to make devices.
"""

import ctypes
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
SIMULATOR = ROOT / os.environ.get("VKGDR_SIM_DIR", "sim/target/sim") / "libcuda.so.1"
CACHE = TARGET / "real-libs"
ARCHIVE = "http://deb.debian.org/debian/pool/non-free/n/nvidia-graphics-drivers"


# SHA-256 and file, from the archive's indices of bullseye, bookworm and trixie, component non-free.
PACKAGES = """
4a6d2dcd33042c215bd1ae4754504e487c39f56e8b7395f9c879b3e127e23de7  libcuda1_470.256.02-2_amd64.deb
b7ad55a1342753a216e27976c89fe50f139950152556f95dc968f1b22b2f5d53  libegl-nvidia0_470.256.02-2_amd64.deb
3a9853ea43a14dd4e39852145b9c7bfe5f046f0acaa22478ba7aa5f6b9b07bc5  libglx-nvidia0_470.256.02-2_amd64.deb
7a8b227e9981d68a3cb081768a40b67ad5fda25fc9bbc283e1ce5676a756e868  libnvidia-eglcore_470.256.02-2_amd64.deb
2ab3548c37d39210aeb7ccfbc357ab70128c91f1378ff96dfcf9dc841f81c067  libnvidia-glcore_470.256.02-2_amd64.deb
3f1227cfe6895f3a312ecf1009c6d2a0256f42d56a1edd7efcaad3ba46c76385  libnvidia-glvkspirv_470.256.02-2_amd64.deb
e1b90d4d0ae96445744a6a756e82b8782229d68786f5b44213055f0f31820ad3  libnvidia-ptxjitcompiler1_470.256.02-2_amd64.deb
2333a944f73f04174d2f240bcfce1f4ee5fdcaf13010e21eae5592fc91e381f1  nvidia-vulkan-common_470.256.02-2_amd64.deb
de1e9ca34164a5983b3f752e6699cf1ad924790f1a843b7d582bab6f99206e1e  libcuda1_535.261.03-1_amd64.deb
e8333e0d66aa8290ec8b83971fc8de2892fa6dc540c1e8fd58cbd1ef51624421  libegl-nvidia0_535.261.03-1_amd64.deb
dc63dbc6bc19f14eeee2b7b7db2add481ae074a2d917d3137663c27fb4df11d4  libglx-nvidia0_535.261.03-1_amd64.deb
73522098427011117448abb0446f7a66cfe3db7e11479233f54303c9efe78e66  libnvidia-eglcore_535.261.03-1_amd64.deb
bb302960887eb82fda13b877aa5d5c5e01ff4331b977c4c2660d632cfd5311b5  libnvidia-glcore_535.261.03-1_amd64.deb
66a130a344ef1c5612d8c8716419f3ae27367e32cd34fe1775ece2bfc0445fa8  libnvidia-glvkspirv_535.261.03-1_amd64.deb
4e03bb994324a81d1a39d1e3eb0fed3f7f3c31a2b606a6e9110300de4f4fa1a0  libnvidia-ptxjitcompiler1_535.261.03-1_amd64.deb
7173748a2d4d0c48e0775a1f5ba969ef8514efa6c11d5ab89d7d0d42bcf308d3  nvidia-vulkan-common_535.261.03-1_amd64.deb
8feff97aac61d6f27ded96a3c25b9e68025a680476e6072ff7eaf10623509135  libcuda1_550.163.01-2_amd64.deb
e6a491ba403d9cf106c66cd3c3a75c7301578a64db5fe989c93e25e740412656  libegl-nvidia0_550.163.01-2_amd64.deb
79d35284eef1a06431b78b806403e6b4373dfac09540a085f2764ceccc1c9199  libglx-nvidia0_550.163.01-2_amd64.deb
15e5dd1929a6ef0ec3434318259221c0494e060b9fda131fa353d03a1f310bfb  libnvidia-eglcore_550.163.01-2_amd64.deb
d0ddaeb5aa552757e6423cad2fa4829f10dd8b771688d84fae19f799d094e983  libnvidia-glcore_550.163.01-2_amd64.deb
f2b89aa2c51c0ff52c647e6466c3911f33664c2fecb0c9dc0c69580690725e41  libnvidia-glvkspirv_550.163.01-2_amd64.deb
f058804c64345d205e9350d31584bff1e60494a97b7a9af3c486513998d46ec2  libnvidia-gpucomp_550.163.01-2_amd64.deb
73ce8da87e13d0cd5a7f5ec3e0b5822f91fe1cc72977542cd9a8354c25d810f4  libnvidia-ptxjitcompiler1_550.163.01-2_amd64.deb
68131339e5df5553e14b29f6d25947cb448b2d9ce390297b705b557920efa787  nvidia-vulkan-common_550.163.01-2_amd64.deb
"""


@dataclass(frozen=True)
class Generation:
    """A driver: its version, and the GPUs that its compiler knows from sm_75 to sm_90."""

    version: str
    gpus: tuple[int, ...]

    @property
    def libraries(self) -> Path:
        """The folder with links to all libraries."""
        return CACHE / self.version / "libraries"


GENERATIONS = [
    Generation("470.256.02", (75, 80, 86)),
    Generation("535.261.03", (75, 80, 86, 89, 90)),
    Generation("550.163.01", (75, 80, 86, 89, 90)),
]

# Functions of every driver here that cuda.h does not declare, and the simulator lacks.
UNDOCUMENTED = {"cuEGLApiInit", "cuMemGetAttribute", "cuMemGetAttribute_v2"}

# ---- The libraries, and programs that load them ---------------------------------------------------------------------


def fetch(generation: Generation) -> None:
    """Download a generation's packages, check and unpack them."""
    if generation.libraries.is_dir():
        return
    folder = CACHE / f"{generation.version}.new"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "libraries").mkdir(parents=True)
    for expected, name in re.findall(rf"(\w+)  (\S+_{generation.version}-\S+)", PACKAGES):
        print(f"fetching {name}", flush=True)
        with urllib.request.urlopen(f"{ARCHIVE}/{name}", timeout=300) as answer:
            data = answer.read()
        if hashlib.sha256(data).hexdigest() != expected:
            sys.exit(f"{name} is not what it was: its SHA-256 differs")
        (folder / name).write_bytes(data)
        subprocess.run(["dpkg-deb", "--extract", folder / name, folder], check=True)
        (folder / name).unlink()
    for library in (folder / "usr/lib").rglob("*.so*"):
        (folder / "libraries" / library.name).symlink_to(os.path.relpath(library, folder / "libraries"))
    folder.rename(CACHE / generation.version)


# Runs a program where /dev has only what every program needs, no device can be made, and no kernel module is seen.
PRIVATE = """
new=$(mktemp -d)
mount -t tmpfs -o nodev tmpfs "$new"
for name in null zero full random urandom tty; do touch "$new/$name"; mount --bind "/dev/$name" "$new/$name"; done
mkdir "$new/shm"; mount -t tmpfs tmpfs "$new/shm"
ln -s /proc/self/fd "$new/fd"
touch "$new/private"
mount --move "$new" /dev
rmdir "$new"
[ ! -d /proc/driver ] || mount -t tmpfs tmpfs /proc/driver
[ -e /dev/private ]
exec "$@"
"""


def inside(
    folders: list[Path], arguments: list[str | Path], given: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that may load a driver's libraries from `folders`. A hang ends with code 137."""
    with tempfile.TemporaryDirectory() as home:
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        paths = {"LD_LIBRARY_PATH": ":".join(map(str, folders)), "HOME": home, "VKGDR_SYSTEM_ROOT": home}
        variables = kept | paths | {"LC_ALL": "C", "COLUMNS": "1000", "VKLAYER_PROFILE": "no-vulkan"} | variables
        own = ["unshare", "--map-root-user", "--mount", "bash", "-euc", PRIVATE, "private"]
        command = ["timeout", "--signal=KILL", "120", *own, *arguments]
        return subprocess.run(command, env=variables, input=given, capture_output=True, text=True, check=False)


def probe(question: str, folders: list[Path], argument: Any, **variables: str) -> Any:
    """Return the answer of one of the functions `probe_…` below, run inside."""
    run = inside(folders, [sys.executable, Path(__file__), question], json.dumps(argument), **variables)
    if run.returncode:
        return {"ended": f"{run.returncode}: {run.stderr}"}
    return json.loads(run.stdout)


# ---- A driver's functions --------------------------------------------------------------------------------------------


def exported(library: Path) -> set[str]:
    """Return the names of a library's functions of CUDA."""
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r" [TW] (cu[A-Z]\w*)", listed))


def called(heading: str) -> list[str]:
    """Return the functions that the crate looks up, of those that are required or optional."""
    listed = (ROOT / "src/driver/cuda.rs").read_text().partition(f"\n    {heading} {{\n")[2].partition("\n    }\n")[0]
    return re.findall(r"^\s+(cu\w+)\(", listed, re.MULTILINE)


def symbols(generation: Generation) -> list[str]:
    """Look for the crate's functions in the driver, and for all of its in the simulator. Return what is missing."""
    real, simulated = exported(generation.libraries / "libcuda.so.1"), exported(SIMULATOR)
    lacks = [name for name in called("optional") if name not in real]
    print(f"{generation.version} has {len(real)} functions, the simulator {len(simulated)}; of ours it lacks {lacks}")
    wrong = [f"{name}, which the crate needs, is missing" for name in called("required") if name not in real]
    return wrong + [f"{name} is missing in the simulator" for name in sorted(real - simulated - UNDOCUMENTED)]


# ---- What vkgdr says ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Situation:
    """An installation with a defect, and what a check of `vkgdr doctor` and the error of opening a GPU must say."""

    name: str
    check: str
    doctor: str
    opening: str
    # Patterns of the driver's files that are missing, and one whose need of libX11 is not met.
    without: tuple[str, ...] = ()
    without_x11: str = ""
    # The version of libcuda's file. Without one it is the simulator's, which has a GPU that Vulkan does not know.
    cuda: str = ""


REFUSED = "does not list this GPU (libEGL_nvidia.so.0: vk_icdNegotiateLoaderICDInterfaceVersion failed ("
REASON = "is installed but cannot be loaded ("


def situations(generation: Generation, other: Generation) -> Iterator[Situation]:
    """Yield a generation's situations. `other` is that of libcuda where versions differ."""
    driver, loads = "vulkan-driver", "NVIDIA's can be loaded"
    no_gpu = "cuInit failed (CUDA_ERROR_NO_DEVICE): no NVIDIA GPU is visible"
    yield Situation("libcuda without a device", "cuda", no_gpu, no_gpu, cuda=generation.version)
    yield Situation("Vulkan without device nodes", "mapped", REFUSED, REFUSED)
    yield Situation("GLX without X11, EGL", driver, loads, REFUSED, without_x11="libGLX_nvidia.so.0")
    glx = REASON + "libX11.so.9: cannot open shared object file: No such file or directory): install libx11-6"
    yield Situation("GLX without X11", driver, glx, glx, without=("libEGL*",), without_x11="libGLX_nvidia.so.0")
    core = REASON + f"libnvidia-eglcore.so.{generation.version}: cannot open shared object file"
    yield Situation("EGL without eglcore", driver, core, core, without=("libGLX*", "*eglcore*"))
    if any(generation.libraries.glob("*gpucomp*")):
        gpucomp = core.replace("eglcore", "gpucomp")
        yield Situation("EGL without gpucomp", driver, gpucomp, gpucomp, without=("libGLX*", "*gpucomp*"))
    versions = f"has version {generation.version}, and the rest of the driver {other.version}: "
    yield Situation("another libcuda, no device", driver, versions, no_gpu, cuda=other.version)
    yield Situation("another libcuda", driver, versions, versions, cuda=f"{other.version}, simulated")
    yield Situation("no Vulkan driver", driver, "is not installed", "is not installed", without=("libGLX*", "libEGL*"))


def install(situation: Situation, generation: Generation, folder: Path) -> None:
    """Make the situation's folder of libraries."""
    for library in generation.libraries.iterdir():
        if library.name.startswith("libcuda.") or any(library.match(pattern) for pattern in situation.without):
            continue
        if library.name == situation.without_x11:
            (folder / library.name).write_bytes(library.read_bytes().replace(b"libX11.so.6\0", b"libX11.so.9\0"))
        else:
            (folder / library.name).symlink_to(library.resolve())
    version, _, simulated = situation.cuda.partition(", ")
    if simulated:
        shutil.copy(SIMULATOR, folder / f"libcuda.so.{version}")
        (folder / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")
    else:
        real = CACHE / version / "libraries" / "libcuda.so.1"
        (folder / "libcuda.so.1").symlink_to(real.resolve() if version else SIMULATOR)


def check(situation: Situation, generation: Generation) -> Iterator[str]:
    """Print a line on what vkgdr says. Yield what is unexpected."""
    with tempfile.TemporaryDirectory() as folder:
        install(situation, generation, Path(folder))
        manifest = CACHE / generation.version / "usr/share/vulkan/icd.d/nvidia_icd.json"
        variables = {"VK_DRIVER_FILES": str(manifest)}
        command = TARGET / "debug/vkgdr"
        doctor = inside([Path(folder)], [command, "doctor", "--json"], **variables)
        info = inside([Path(folder)], [command, "info", "--json"], **variables)
        through_c = probe("open", [Path(folder)], str(TARGET / "debug/libvkgdr_c.so"), **variables)
    checks = json.loads(doctor.stdout)["checks"] if doctor.stdout else []
    said = [": ".join(filter(None, (one["text"], one["remedy"]))) for one in checks if one["id"] == situation.check]
    print(f"{situation.name:28} {generation.version[:3]}  {' '.join(said)}", flush=True)
    if not any(situation.doctor in text for text in said):
        yield f"doctor says {said or doctor.stderr} and not {situation.doctor!r}"
    if situation.opening not in json.dumps(json.loads(info.stdout or "0"), ensure_ascii=False).replace('\\"', '"'):
        yield f"info says {info.stdout or info.stderr} and not {situation.opening!r}"
    texts = through_c.get("texts", [])
    if len(texts) != 1 or situation.opening not in texts[0]:
        yield f"opening in C says {through_c} and not {situation.opening!r}"
    # A child of a process where CUDA has not started has nothing to lose.
    if situation.check == "cuda" and [through_c.get("child")] != texts:
        yield f"a forked child says {through_c}"
    if through_c.get("leaked") != [0, 0]:
        yield f"opening again leaves descriptors or threads behind: {through_c}"


def table(generation: Generation) -> list[str]:
    """Print what vkgdr says in each situation. Return what is unexpected."""
    other = GENERATIONS[GENERATIONS.index(generation) - 1]
    found = [(one, problem) for one in situations(generation, other) for problem in check(one, generation)]
    return [f"{situation.name}: {problem}" for situation, problem in found]


def opened() -> tuple[int, int]:
    """Return the numbers of this process's descriptors and threads."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def in_a_child(ask: Callable[[], str]) -> str:
    """Ask in a forked child."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        signal.alarm(30)
        os.write(writer, ask().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        return answer.read() or "a child that ended early"


def probe_open(library: str) -> dict[str, Any]:
    """Open a GPU by the C library, with few descriptors. Return what it says, and what all after the first leave."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    vkgdr = ctypes.CDLL(library)
    vkgdr.vkgdr_open.restype = ctypes.c_void_p
    vkgdr.vkgdr_last_error.restype = ctypes.c_char_p

    def once() -> str:
        return "opened" if vkgdr.vkgdr_open(0, 0) else vkgdr.vkgdr_last_error().decode()

    texts = {once()}
    before = opened()
    texts |= {once() for _ in range(39)}
    leaked = [now - then for now, then in zip(opened(), before, strict=True)]
    return {"texts": sorted(texts), "leaked": leaked, "child": in_a_child(once)}


# ---- PTX ------------------------------------------------------------------------------------------------------------


def shipped() -> dict[str, str]:
    """Return our PTX: files outside the simulator, and the texts in examples."""
    listed = subprocess.run(["git", "ls-files", "*.ptx"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    texts = {name: (ROOT / name).read_text() for name in listed.splitlines() if not name.startswith("sim/")}
    for name in ("README.md", "examples/python/pycuda_kernel.py", "tests/kernels/main.rs"):
        found = re.search(r'\.version [0-9][^"]*', (ROOT / name).read_text())
        texts[name] = found[0] if found else "no PTX was found"
    return texts


def probe_ptx(asked: dict[str, Any]) -> dict[str, str]:
    """Compile texts by the driver's compiler. Return the errors, by text and GPU; empty ones where there is none."""
    compiler = ctypes.CDLL("libnvidia-ptxjitcompiler.so.1")
    answers = {}
    for name, text in asked["texts"].items():
        for gpu in asked["gpus"]:
            handle, size = ctypes.c_void_p(), ctypes.c_size_t()
            data = text.encode()
            code = compiler.nvPTXCompilerCreate(ctypes.byref(handle), ctypes.c_size_t(len(data)), data)
            option = (ctypes.c_char_p * 1)(f"--gpu-name=sm_{gpu}".encode())
            code = code or compiler.nvPTXCompilerCompile(handle, 1, option)
            compiler.nvPTXCompilerGetErrorLogSize(handle, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            compiler.nvPTXCompilerGetErrorLog(handle, log)
            answers[f"{name} for sm_{gpu}"] = f"{code}: {log.value.decode()}" if code else ""
            compiler.nvPTXCompilerDestroy(ctypes.byref(handle))
    return answers


def compile_ptx(generation: Generation) -> list[str]:
    """Compile our PTX for all GPUs that the generation knows. Return what fails."""
    asked = {"texts": shipped(), "gpus": generation.gpus}
    answers = probe("ptx", [generation.libraries], asked)
    print(f"{generation.version}: {len(answers)} compilations of {len(asked['texts'])} texts, for sm_{generation.gpus}")
    return [f"{name}: {error}" for name, error in answers.items() if error]


def main() -> None:
    """Run a probe, or everything."""
    match sys.argv[1:]:
        case [("open" | "ptx") as question]:
            probes: dict[str, Callable[[Any], Any]] = {"open": probe_open, "ptx": probe_ptx}
            print(json.dumps(probes[question](json.load(sys.stdin))))
            return
        case [_, *_]:
            sys.exit(__doc__)
    CACHE.mkdir(parents=True, exist_ok=True)
    before, unexpected = Path("/dev/nvidiactl").exists(), []
    for ask in (symbols, table, compile_ptx):
        for generation in GENERATIONS:
            fetch(generation)
            unexpected += [f"{generation.version}: {problem}" for problem in ask(generation)]
    if Path("/dev/nvidiactl").exists() != before:
        unexpected.append("/dev/nvidiactl was made on this machine: remove it")
    print("\n".join(["", f"{len(unexpected)} unexpected", *unexpected]))
    sys.exit(bool(unexpected))


if __name__ == "__main__":
    main()
