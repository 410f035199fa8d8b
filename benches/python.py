#!/usr/bin/env python3
"""Compare the Python package with vkgdr 0.1 from PyPI, on the same driver: `make bench`.

    python benches/python.py PEER FILE    # this interpreter has the package, PEER vkgdr 0.1; FILE gets the results
    python benches/python.py calls|import # prints the seconds of each operation in this environment

Each round starts one process of each environment for the calls and one for the import, in turns.
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

# Goals: the largest ratio of our shortest time to the peer's.
GOALS = {
    "device_ptr": 0.5,
    "flush": 0.5,
    "allocate+free": 1.0,
    "pooled allocate+free": 0.02,
    "import vkgdr": 0.9,
}
# The operation of vkgdr 0.1 to compare with, for one that it lacks.
INSTEAD = {"pooled allocate+free": "allocate+free"}
# Repetitions of a loop; the fastest counts. Short loops make an undisturbed run likely.
REPEATS = 25

Times = dict[str, float]


def timed(statement: str, calls: int, **names: object) -> float:
    """Return the seconds of a statement, without the loop's overhead."""

    def run(body: str) -> float:
        scope: dict[str, object] = {"clock": time.perf_counter, "calls": calls}
        loop = f"def loop({', '.join(names)}):\n t = clock()\n for _ in range(calls):\n  {body}\n return clock() - t"
        exec(loop, scope)
        function = scope["loop"]
        assert callable(function)
        return float(min(function(**names) for _ in range(REPEATS)))

    return max(run(statement) - run("pass"), 0.0) / calls


def calls() -> Times:
    """Time every call. Allocations need a context: device 0's primary context is made current through ctypes."""
    import vkgdr

    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    retained = cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    if code := retained or cuda.cuCtxSetCurrent(context):
        raise SystemExit(f"CUDA error {code}")
    gpu = vkgdr.Vkgdr(0)
    memory = vkgdr.RawMemory(gpu, 4096)
    times = {
        "device_ptr": timed("memory.device_ptr", 4_000, memory=memory),
        "flush": timed("memory.flush(0, 4096)", 4_000, memory=memory),
        "allocate+free": timed("vkgdr.RawMemory(gpu, 4096).free()", 300, vkgdr=vkgdr, gpu=gpu),
    }
    if hasattr(vkgdr, "pool"):
        times["pooled allocate+free"] = timed("pool.allocate(4096)", 4_000, pool=vkgdr.pool.Pool(gpu))
    memory.free()
    return times


def import_time() -> Times:
    """Time the import."""
    start = time.perf_counter()
    import vkgdr  # noqa: F401

    return {"import vkgdr": time.perf_counter() - start}


def side(seconds: list[float]) -> Times:
    """Summarise times as the other benches do."""
    return {"min_ns": round(min(seconds) * 1e9, 3), "median_ns": round(statistics.median(seconds) * 1e9, 3)}


def main() -> None:
    """Measure both environments in turns, and write the results."""
    peer, file = sys.argv[1:]
    quick = os.environ.get("VKGDR_BENCH_QUICK") == "1"
    samples: dict[str, dict[str, list[float]]] = {sys.executable: {}, peer: {}}
    for _ in range(3 if quick else 11):
        for what in ("calls", "import"):
            for python, times in samples.items():
                done = subprocess.run([python, __file__, what], check=True, capture_output=True, text=True)
                for name, seconds in json.loads(done.stdout).items():
                    times.setdefault(name, []).append(seconds)
    rows = []
    for name, goal in GOALS.items():
        ours, theirs = samples[sys.executable][name], samples[peer][INSTEAD.get(name, name)]
        ratio = round(min(ours) / min(theirs), 6)
        peer_is = f"vkgdr 0.1's {INSTEAD[name]}" if name in INSTEAD else "vkgdr 0.1"
        row = {"what": f"Python: {name}", "ours": side(ours), "peer_is": peer_is, "peer": side(theirs), "ratio": ratio}
        rows.append({**row, "rounds": len(ours), "goal": goal, "met": None if goal is None else ratio <= goal})
    Path(file).write_text(json.dumps({"quick": quick, "rows": rows}, indent=2))


if __name__ == "__main__":
    if sys.argv[1] in ("calls", "import"):
        json.dump(calls() if sys.argv[1] == "calls" else import_time(), sys.stdout)
    else:
        main()
