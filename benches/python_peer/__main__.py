#!/usr/bin/env python3
"""Compare the Python package with vkgdr 0.1 from PyPI, on the same driver, interleaved.

    python benches/python_peer.py --ours PYTHON --peer PYTHON [--rounds N] [--json FILE]

`make bench` creates the two virtual environments and calls this. Each round runs one process of each environment for
the calls and one for the import, alternating; the table has the ratio of the minima and that of the medians.
Allocations need a CUDA context: both make device 0's primary context current through ctypes.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Goals: the largest allowed ratio of our time to the peer's.
GOALS = {
    "device_ptr": 0.5,
    "is_coherent": 0.5,
    "flush": 0.5,
    "flush, non-coherent": None,
    "allocate+free": 1.0,
    "allocate+free, 16 MiB": None,
    "pooled allocate+free": 0.02,
    "import vkgdr": 1.0,
}
# The operation of vkgdr 0.1 to compare with, for operations that it lacks.
INSTEAD = {"pooled allocate+free": "allocate+free"}

# Repetitions of a loop; the fastest counts. Short loops make an undisturbed run likely.
REPEATS = 25


def make_context_current() -> None:
    """Make device 0's primary context current on this thread."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for code in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        cuda.cuCtxSetCurrent(context),
    ):
        if code:
            raise SystemExit(f"CUDA error {code}")


def timed(statement: str, names: dict[str, object], calls: int) -> float:
    """Return the seconds of a statement, without the loop's overhead."""

    def run(body: str) -> float:
        scope: dict[str, object] = {"clock": time.perf_counter, "calls": calls}
        loop = f"def loop({', '.join(names)}):\n t = clock()\n for _ in range(calls):\n  {body}\n return clock() - t"
        exec(loop, scope)
        function = scope["loop"]
        assert callable(function)
        best = min(function(**names) for _ in range(REPEATS))
        return float(best)

    return max(run(statement) - run("pass"), 0.0) / calls


def work() -> dict[str, float]:
    """Time every call in this environment."""
    import vkgdr

    make_context_current()
    gpu = vkgdr.Vkgdr(0)
    memory = vkgdr.RawMemory(gpu, 4096)
    names: dict[str, object] = {"vkgdr": vkgdr, "gpu": gpu, "memory": memory}
    forced = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    non_coherent = vkgdr.RawMemory(forced, 4096)
    times = {
        "device_ptr": timed("memory.device_ptr", names, 4_000),
        "is_coherent": timed("memory.is_coherent", names, 4_000),
        "flush": timed("memory.flush(0, 4096)", names, 4_000),
        "flush, non-coherent": timed("memory.flush(0, 4096)", {**names, "memory": non_coherent}, 4_000),
        "allocate+free": timed("vkgdr.RawMemory(gpu, 4096).free()", names, 300),
        "allocate+free, 16 MiB": timed("vkgdr.RawMemory(gpu, 1 << 24).free()", names, 100),
    }
    if hasattr(vkgdr, "pool"):
        pool = vkgdr.pool.Pool(gpu)
        times["pooled allocate+free"] = timed("pool.allocate(4096)", {"pool": pool}, 4_000)
    memory.free()
    non_coherent.free()
    return times


def import_time() -> dict[str, float]:
    """Time the import in this environment."""
    start = time.perf_counter()
    import vkgdr  # noqa: F401

    return {"import vkgdr": time.perf_counter() - start}


def ask(python: str, what: str) -> dict[str, float]:
    """Run this file in another environment."""
    command = [python, __file__, "--worker", what]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    times: dict[str, float] = json.loads(done.stdout)
    return times


def measure(pythons: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Collect the times of every round, by environment and operation."""
    samples: dict[str, dict[str, list[float]]] = {who: {} for who in pythons}
    for number in range(rounds):
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        for what in ("calls", "import"):
            for who, python in pythons.items():
                for name, seconds in ask(python, what).items():
                    samples[who].setdefault(name, []).append(seconds)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return samples


def report(samples: dict[str, dict[str, list[float]]]) -> bool:
    """Print the table; return whether every goal was met."""
    met = True
    print(f"{'':24}{'ours':>12}{'vkgdr 0.1':>12}{'ratio':>8}{'median':>8}{'goal':>7}")
    for name, goal in GOALS.items():
        ours, peer = samples["ours"][name], samples["peer"][INSTEAD.get(name, name)]
        ratio = min(ours) / min(peer)
        medians = statistics.median(ours) / statistics.median(peer)
        verdict = "" if goal is None else f"{goal:7.2f}" + ("" if ratio <= goal else "  MISSED")
        met &= goal is None or ratio <= goal
        print(f"{name:24}{min(ours) * 1e9:9.0f} ns{min(peer) * 1e9:9.0f} ns{ratio:8.3f}{medians:8.3f}{verdict}")
    return met


def main() -> int:
    """Measure, or run as a measured process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", choices=("calls", "import"), help=argparse.SUPPRESS)
    parser.add_argument("--ours", default=sys.executable, help="Python with this package (default: this one)")
    parser.add_argument("--peer", help="Python with vkgdr 0.1")
    parser.add_argument("--rounds", type=int, default=11, help="processes per environment (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample and the goals to FILE")
    options = parser.parse_args()
    if options.worker:
        json.dump(work() if options.worker == "calls" else import_time(), sys.stdout)
        return 0
    if options.peer is None:
        parser.error("--peer is required: a Python interpreter with vkgdr==0.1 installed")
    print(f"Python {platform.python_version()}; times of a simulated driver are not times of hardware")
    samples = measure({"ours": options.ours, "peer": options.peer}, options.rounds)
    if options.json:
        options.json.write_text(json.dumps({"goals": GOALS, "instead": INSTEAD, **samples}))
    return 0 if report(samples) else 1


if __name__ == "__main__":
    sys.exit(main())
