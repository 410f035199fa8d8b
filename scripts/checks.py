#!/usr/bin/env python3
"""Runs groups of checks, and ends with a table of their seconds and downloads.

    scripts/checks.py GROUP [PART...]   the parts of a group (test, ci, nightly), or those that are named
    scripts/checks.py --list            the groups and their parts

A failing part does not stop the next. The output of each is also in `checks` in cargo's target folder. `nightly` leaves
out the parts that passed already on the same sources, so that an interrupted run goes on; named parts always run.
"""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Absolute, for programs that start in other folders. Without the first, the simulator has a target folder of its own.
if "CARGO_TARGET_DIR" in os.environ:
    os.environ["CARGO_TARGET_DIR"] = str(ROOT / os.environ["CARGO_TARGET_DIR"])
os.environ["VKGDR_SIM_DIR"] = str(
    ROOT / os.environ.get("VKGDR_SIM_DIR", Path(os.environ.get("CARGO_TARGET_DIR", "sim/target"), "sim"))
)
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
LOGS = TARGET / "checks"
NOX_PROGRAM = f"{TARGET}/python/tools/bin/nox"
NOX = f'"{NOX_PROGRAM}" --session'
FAULTS = {"VKGDR_TEST_LAYERS": "faults"}
ALL = FAULTS | {"VKGDR_TEST_ALL": "1"}
# One process for each folder of tests. The extension module cannot be linked into one.
TESTS = "cargo test --quiet --locked --no-fail-fast"
WORKSPACE = f"{TESTS} --workspace --exclude vkgdr-python --lib --bins --tests"
# The folders whose tests depend most on the kind of memory and on the order of work.
FOLDERS = f"{TESTS} --package vkgdr --test memory --test copy --test stream --test interop --test sequences"


@dataclass(frozen=True)
class Part:
    """A command of bash, the variables that it gets, and the seconds after which it is ended."""

    command: str
    variables: dict[str, str] = field(default_factory=dict)
    limit: int = 1800


@dataclass
class Result:
    """How a part ended, on which sources."""

    state: str
    wall: float
    cpu: float
    mib: float
    sources: str


def profile(name: str, command: str, **variables: str) -> Part:
    """Return tests on another simulated GPU."""
    return Part(command, FAULTS | {"VKGDR_TEST_PROFILE": name} | variables)


def selected(names: str) -> str:
    """Return the command of test binaries of the crate, and of modules of them: `BINARY` or `BINARY::MODULE`."""
    commands = []
    for name in names.split():
        binary, _, module = name.partition("::")
        commands.append(f"{TESTS} --package vkgdr --test {binary} {f'-- {module}::' if module else ''}")
    return "\n".join(commands)


# ---- make test ------------------------------------------------------------------------------------------------------

TEST = {
    "simulator": Part("make -C sim build"),
    "rust": Part(f"cargo build --quiet --locked --package examples --examples\n{WORKSPACE}", FAULTS),
    # By sim/run, since cargo before 1.89 does not use its runner for doctests.
    "doctests": Part("sim/run cargo test --quiet --locked --workspace --exclude vkgdr-python --doc"),
    "c": Part("ffi/c/tests/installed/run.sh"),
    "python": Part(f"{NOX} tests", FAULTS),
    "pages": Part("scripts/pages.py\nmake guide"),
}

# ---- .ci/run --------------------------------------------------------------------------------------------------------

STEPS = {"VKGDR_STEPS": "500"}
CI = {
    "lint": Part("make lint"),
    **TEST,
    "simulator-tests": Part(f"make -C sim test NOX='{NOX_PROGRAM}'"),
    "non-coherent": profile("non-coherent", FOLDERS, **STEPS),
    "late": profile("late", FOLDERS, **STEPS),
    "validation": Part(FOLDERS, STEPS | {"VKGDR_TEST_LAYERS": "validation"}),
}

# ---- make nightly ---------------------------------------------------------------------------------------------------

# What another profile changes, as test binaries of the crate or modules of them.
PROFILES = {
    "rebar": "memory copy::routines copy::engine copy::policy interop vulkan",
    "bar256": "memory::cycles failures pool vulkan",
    "two-gpus-swapped": "device stream interop memory::conformance memory::contexts copy::engine pool::pool",
    "types-11": "sequences",
    "gb10": "copy memory::conformance sequences ring",
    "no-bar": "failures",
    "no-vulkan": "sequences failures ring",
    "dma-buf-no-vulkan": "sequences",
}
CRATE = f"{TESTS} --package vkgdr --tests"
LIBRARIES = f"{CRATE}\n{TESTS} --package vkgdr-c --tests"
# Without the tests of forks and of the interpreter's end, which take half of the time and are run above.
PYTHON_AGAIN = f"{NOX} tests -- --ignore-glob='*/test_fork.py' --ignore-glob='*/test_interpreter_end.py'"
# Calls of Vulkan are several times slower under validation, and memory checkers have no errors of Vulkan to find.
NO_CHECKERS = "--skip under_valgrind --skip under_address_sanitizer"
VALIDATED = f"{TESTS} --package vkgdr --package vkgdr-c --tests -- {NO_CHECKERS}"
LONG = "cargo test --quiet --locked --profile long --package vkgdr --test sequences"
NAMES = """vkgdr-sim --profiles | sed -n 's/^\\([a-z][a-z0-9-]*\\)  .*/\\1/p'"""
# A mutant that no test notices fails the part.
MUTANTS = f"""command -v cargo-mutants >/dev/null || cargo install --quiet --locked cargo-mutants@27.1.0
    cargo mutants --package vkgdr --file src/range.rs --output "{LOGS}" --timeout 600 -- --lib
    cargo mutants --package vkgdr --file src/ipc.rs --re 'Message|check_start' \\
        --output "{LOGS}" --timeout 600 -- --lib --test memory ipc"""
NIGHTLY = {
    "lint": CI["lint"],
    "simulator": CI["simulator-tests"],
    "simulator-validation": Part(CI["simulator-tests"].command, {"VKGDR_TEST_LAYERS": "validation"}),
    "rust": Part(
        f"cargo build --quiet --locked --package examples --examples\n{WORKSPACE}",
        ALL,
    ),
    "doctests": TEST["doctests"],
    "c": Part("ffi/c/tests/installed/run.sh", ALL),
    "python": Part(f"{NOX} tests_all", ALL),
    "pages": Part(TEST["pages"].command, ALL),
    "pip": Part(f"{NOX} install"),
    "validation": Part(VALIDATED, {"VKGDR_TEST_LAYERS": "validation"}),
    "validation-python": Part(PYTHON_AGAIN, {"VKGDR_TEST_LAYERS": "validation"}),
    "non-coherent": profile("non-coherent", f"{CRATE}\n{TESTS} --package vkgdr-c --test gdrapi"),
    "non-coherent-python": profile("non-coherent", PYTHON_AGAIN),
    "late": profile("late", LIBRARIES),
    "late-python": profile("late", PYTHON_AGAIN),
    **{name: profile(name, selected(names)) for name, names in PROFILES.items()},
    "broken-flush": Part("scripts/broken-flush.sh"),
    "mutants": Part(MUTANTS, FAULTS, limit=7200),
    "sequences": Part(
        f"""{LONG}
        VKGDR_COPY=portable {LONG}
        VKGDR_TEST_LAYERS=validation VKGDR_STEPS=10000 {LONG}
        for profile in $("$VKGDR_SIM_DIR"/{NAMES}); do
            echo "==> sequences on $profile"
            VKGDR_TEST_PROFILE=$profile {LONG}
        done""",
        FAULTS | {"VKGDR_STEPS": "100000"},
        7200,
    ),
    "soak": Part(
        f"{TESTS} --package vkgdr --test sequences -- --ignored --exact "
        "soak::the_resources_of_the_process_stay_flat --nocapture",
        FAULTS | {"MINUTES": "10"},
    ),
    # The models of what is lock-free, in every interleaving and with every value that a load may give.
    "loom": Part(
        f'cargo test --quiet --locked --package vkgdr --release --lib --target-dir "{TARGET}/loom" ring::tests',
        {"RUSTFLAGS": "--cfg loom"},
        3600,
    ),
    **{name: Part(f"scripts/sanitize.sh {name}", limit=3600) for name in ("miri", "address", "thread")},
    # Programs under AddressSanitizer and Valgrind, which checks the accesses of the library, as it is shipped.
    "sanitized-c": Part(f"{TESTS} --package vkgdr-c --tests -- sanitizer valgrind", ALL),
    "sanitized-python": Part("scripts/sanitize.sh python", limit=3600),
    "fuzz": Part("scripts/fuzz.sh", {"SECONDS_EACH": "60"}),
    "aarch64": Part(
        """rustup target add aarch64-unknown-linux-gnu
        cargo test --quiet --locked --release --package vkgdr --lib --target aarch64-unknown-linux-gnu""",
        {
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER": "aarch64-linux-gnu-gcc",
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER": "qemu-aarch64 -L /usr/aarch64-linux-gnu",
        },
    ),
    "wheels": Part("make wheel", limit=3600),
    "adaptors": Part(f"{NOX} adaptors", limit=3600),
    "extras": Part(f"{NOX} extras", limit=3600),
    "ptxas": Part(f"make -C sim ptxas NOX='{NOX_PROGRAM}'"),
    "torch": Part(f"make -C sim torch NOX='{NOX_PROGRAM}'", limit=3600),
    "pass-rates": Part(f"make -C sim pass-rates NOX='{NOX_PROGRAM}'", limit=18000),
    "gpu-bundle": Part(f"""make gpu-bundle BUNDLE="{LOGS}/gpu-bundle"
        VKGDR_GPU_SECONDS=240 bash "{LOGS}/gpu-bundle/run.sh" "{LOGS}/gpu-report" facts probe"""),
    # NVIDIA's own libraries, without a GPU.
    "real-libs": Part("cargo build --quiet --locked --package vkgdr-cli --package vkgdr-c\nscripts/real_libs.py"),
    "publish": Part("cargo publish --quiet --dry-run --locked --allow-dirty --package vkgdr"),
    "deny": Part("""command -v cargo-deny >/dev/null || cargo install --quiet --locked cargo-deny@0.20.2
        cargo deny --log-level error check bans licenses sources"""),
}
GROUPS = {"test": TEST, "ci": CI, "nightly": NIGHTLY}

# ---- Running --------------------------------------------------------------------------------------------------------


def git(*arguments: str) -> str:
    """Return what git prints; nothing where the sources are no checkout."""
    run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return run.stdout.strip()


def sources() -> str:
    """Return a name for the sources as they are: the commit, and the hash of what was changed or added since."""
    changed = git("diff", "HEAD").encode()
    for name in git("ls-files", "--others", "--exclude-standard").splitlines():
        changed += name.encode() + (ROOT / name).read_bytes()
    commit = git("rev-parse", "HEAD")
    return f"{commit}-{hashlib.sha1(changed, usedforsecurity=False).hexdigest()}" if changed else commit


def received() -> int:
    """Return the bytes that this machine has received, from all but itself."""
    lines = [line.split(":") for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    return sum(int(counts.split()[0]) for name, counts in lines if name.strip() != "lo")


def lines_of(part: Part, environment: dict[str, str]) -> Iterator[str]:
    """Run a part, and yield the lines that it prints. A failure or the limit is a `CalledProcessError` at the end."""
    command = ["timeout", "--signal=KILL", str(part.limit), "bash", "-euo", "pipefail", "-c", part.command]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            assert process.stdout
            yield from process.stdout
        except BaseException:
            # timeout passes it on to all that the part has started.
            process.terminate()
            raise
    if process.returncode:
        late = f", at its limit of {part.limit} s" if process.returncode == -signal.SIGKILL else ""
        yield f"ended with {process.returncode}{late}\n"
        raise subprocess.CalledProcessError(process.returncode, part.command)


def run(name: str, part: Part, now: str) -> Result:
    """Run a part, show and keep its output."""
    print(f"==> {name}", flush=True)
    began, before, usage = time.monotonic(), received(), resource.getrusage(resource.RUSAGE_CHILDREN)
    state = "passed"
    with (LOGS / f"{name}.log").open("w") as log:
        try:
            for line in lines_of(part, os.environ | part.variables):
                log.write(line)
                print(line, end="", flush=True)
        except subprocess.CalledProcessError:
            state = "FAILED"
            print(f"{name} failed: the output is in {log.name}", file=sys.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    result = Result(state, time.monotonic() - began, cpu, (received() - before) / 2**20, now)
    (LOGS / f"{name}.json").write_text(json.dumps(asdict(result)))
    return result


def passed_before(name: str, now: str) -> Result | None:
    """Return the result of a part that passed on the same sources."""
    try:
        result = Result(**json.loads((LOGS / f"{name}.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return result if result.state == "passed" and result.sources == now else None


def main() -> None:
    """Run what the command line says."""
    match sys.argv[1:]:
        case ["--list"]:
            for group, parts in GROUPS.items():
                print(f"{group}: {' '.join(parts)}")
            return
        case [group, *asked] if group in GROUPS:
            parts = GROUPS[group]
        case _:
            sys.exit(__doc__)
    if unknown := [name for name in asked if name not in parts]:
        sys.exit(f"{group} has no part {unknown[0]!r}, only: {' '.join(parts)}")
    driver = subprocess.run(
        ["sim/run", "--driver"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    if driver == "real" and group != "test":
        sys.exit(f"{group} is of the simulated GPU: VKGDR_CUDA_DRIVER=sim selects it")
    os.environ["VKGDR_CUDA_DRIVER"] = driver
    print(f"==> CUDA driver: {'the real one' if driver == 'real' else 'simulated'}")
    LOGS.mkdir(parents=True, exist_ok=True)
    now, results = sources(), {}
    for name in asked or parts:
        before = passed_before(name, now) if group == "nightly" and not asked else None
        results[name] = before or run(name, parts[name], now)
    width = max(map(len, results))
    print(f"==> {'part':{width}}  state   wall s   CPU s     MiB")
    for name, result in results.items():
        print(f"    {name:{width}}  {result.state:6}  {result.wall:6.0f}  {result.cpu:6.0f}  {result.mib:6.0f}")
    failed = sum(result.state != "passed" for result in results.values())
    wall, cpu, mib = (sum(getattr(result, key) for result in results.values()) for key in ("wall", "cpu", "mib"))
    print(f"    {'':{width}}          {wall:6.0f}  {cpu:6.0f}  {mib:6.0f}")
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
