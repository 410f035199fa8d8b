"""pytest's option ``--vkgdr-sim[=PROFILE]``: runs the tests on a simulated GPU.

Programs find drivers by variables that are read when a program starts. Hence pytest starts anew, as the same process,
by ``vkgdr-sim`` and with the same arguments. pytest-xdist's workers inherit the variables.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest

import vkgdr_sim

OPTION = "--vkgdr-sim"
# Without a profile: lavapipe's memory, or the profile that vkgdr-sim has set already.
DEFAULT = "default"
# The profile that vkgdr-sim has set.
PROFILE = "VKGDR_SIM_PROFILE"
# The process that was started anew, and its profile: a second start would change nothing.
STARTED = "VKGDR_SIM_PYTEST"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option. Its value is read by `requested`, since argparse takes a file for the profile."""
    group = parser.getgroup("vkgdr-sim", "simulated GPU")
    group.addoption(
        OPTION,
        nargs="?",
        const=DEFAULT,
        metavar="PROFILE",
        help="run on a simulated NVIDIA GPU; PROFILE is one of `vkgdr-sim --profiles`, such as non-coherent",
    )


def profiles() -> dict[str, str]:
    """Return the profiles with their descriptions."""
    command = [str(vkgdr_sim.program()), "--profiles"]
    try:
        text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    except OSError as error:
        raise pytest.UsageError(f"{OPTION}: {vkgdr_sim.program()}: {error.strerror}") from None
    found: dict[str, str] = {}
    for line in text.partition("\n\n")[2].splitlines():
        name, _, description = line.partition(" ")
        if name:
            found[name] = description.strip()
        else:
            last = next(reversed(found))
            found[last] += " " + description.strip()
    return found


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Split arguments into the values of the option and everything else.

    A profile may follow the option as an argument of its own; anything else that follows is a file.
    """
    values, others = [], []
    left = iter(enumerate(arguments))
    for at, argument in left:
        if argument == "--":
            others += arguments[at:]
            break
        if argument.startswith(f"{OPTION}="):
            values.append(argument.partition("=")[2] or DEFAULT)
        elif argument != OPTION:
            others.append(argument)
        elif at + 1 < len(arguments) and arguments[at + 1] in profiles():
            values.append(next(left)[1])
        else:
            values.append(DEFAULT)
    return values, others


def simulated(profile: str) -> bool:
    """Whether this process runs under vkgdr-sim, with that profile."""
    searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return str(vkgdr_sim.folder()) in searched and profile in (DEFAULT, os.environ.get(PROFILE))


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Iterator[None]:
    """Start anew before pytest captures the output and imports the first conftest.py."""
    values, others = split(args)
    if values:
        if not simulated(values[-1]):
            start_anew(values[-1], list(early_config.invocation_params.args))
        # argparse would take a file after the option for the profile.
        args[:] = [f"{OPTION}={values[-1]}", *others]
    yield


def start_anew(profile: str, given: list[str]) -> None:
    """Replace this process by the same one on the simulated GPU. `given` are the arguments from the command line."""
    if profile != DEFAULT and profile not in (known := profiles()):
        lines = [f"  {name:22}{description}" for name, description in known.items()]
        raise pytest.UsageError("\n".join([f"{OPTION}: there is no profile '{profile}'; the profiles are:", *lines]))
    mark = f"{os.getpid()} {profile}"
    if os.environ.get(STARTED) == mark:
        raise pytest.UsageError(
            f"{OPTION}: {sys.executable} drops LD_LIBRARY_PATH, which vkgdr-sim sets: name another interpreter"
        )
    own = len(sys.orig_argv) - len(given)
    # A program that calls pytest.main may have done anything before, and a program on stdin has been read.
    if sys.argv[1:] != given or sys.orig_argv[own:] != given or sys.argv[0] in ("", "-"):
        raise pytest.UsageError(
            f"{OPTION} is for pytest's command line; start a program that calls pytest.main by `vkgdr-sim -- PROGRAM`"
        )

    def with_profile(arguments: list[str]) -> list[str]:
        return [f"{OPTION}={profile}", *split(arguments)[1]]

    environment = os.environ | {STARTED: mark}
    # pytest puts these before its arguments.
    if os.environ.get("PYTEST_ADDOPTS"):
        environment["PYTEST_ADDOPTS"] = shlex.join(with_profile(shlex.split(os.environ["PYTEST_ADDOPTS"])))
    path = str(vkgdr_sim.program())
    options = [] if profile == DEFAULT else ["--profile", profile]
    command = ["vkgdr-sim", *options, "--", sys.executable, *sys.orig_argv[1:own], *with_profile(given)]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(path, command, environment)
    except OSError as error:
        raise pytest.UsageError(f"{OPTION}: {path}: {error.strerror}") from None


def pytest_report_header() -> list[str]:
    """Say what is simulated."""
    if not simulated(DEFAULT):
        return []
    name = os.environ.get(PROFILE)
    profile = f"profile {name} ({profiles().get(name, 'unknown')})" if name else "no profile"
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("SIMCUDA_")]
    return [
        f"GPU: simulated by vkgdr-sim {version('vkgdr-sim')}, {profile}",
        "CUDA's driver and runtime, kernels in PTX and Vulkan's memory run on the CPU: times say nothing about a GPU",
        *([f"settings: {' '.join(settings)}"] if settings else []),
    ]
