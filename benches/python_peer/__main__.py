#!/usr/bin/env python3
"""Compare the Python package with vkgdr 0.1 from PyPI, on the same driver, interleaved.

    python benches/python_peer --ours PYTHON --peer PYTHON [--rounds N] [--json FILE]

`make bench` creates the two virtual environments and calls this. Each round runs `times.py` in one process of
each environment for the calls and in one for the import, alternating; the table has the ratio of the minima and that of
the medians.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
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
    "import vkgdr": 0.9,
}
# The operation of vkgdr 0.1 to compare with, for operations that it lacks.
INSTEAD = {"pooled allocate+free": "allocate+free"}


def ask(python: str, what: str) -> dict[str, float]:
    """Take times in another environment."""
    command = [python, str(Path(__file__).with_name("times.py")), what]
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
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", default=sys.executable, help="Python with this package (default: this one)")
    parser.add_argument("--peer", help="Python with vkgdr 0.1")
    parser.add_argument("--rounds", type=int, default=11, help="processes per environment (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample and the goals to FILE")
    options = parser.parse_args()
    if options.peer is None:
        parser.error("--peer is required: a Python interpreter with vkgdr==0.1 installed")
    print(f"Python {platform.python_version()}; times of a simulated driver are not times of hardware")
    samples = measure({"ours": options.ours, "peer": options.peer}, options.rounds)
    if options.json:
        options.json.write_text(json.dumps({"goals": GOALS, "instead": INSTEAD, **samples}))
    return 0 if report(samples) else 1


if __name__ == "__main__":
    sys.exit(main())
