"""Take times of `import vkgdr` or of its calls in this environment, and print them as JSON: seconds by operation.

    python times.py import|calls

Runs with this package and with vkgdr 0.1. Allocations need a CUDA context: device 0's primary context is made current
through ctypes.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

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


if __name__ == "__main__":
    json.dump(work() if sys.argv[1] == "calls" else import_time(), sys.stdout)
