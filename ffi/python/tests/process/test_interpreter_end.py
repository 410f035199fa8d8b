"""The interpreter's end: live objects are freed, in every order, without a crash."""

import itertools
import textwrap

import pytest
import simulator

MAKE = {
    "pycuda": """
        import pycuda.driver as drv
        drv.init(); context = drv.Device(0).make_context()
        import vkgdr, vkgdr.pycuda
        gpu = vkgdr.Vkgdr(0)
        make = lambda: vkgdr.pycuda.Memory(gpu, 64)
        end = context.pop
    """,
    "primary": """
        import vkgdr
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        make = lambda: vkgdr.Memory(gpu, 64)
        end = lambda: None
    """,
}

KEEP = {
    "a global": "kept = make()",
    "a view": "kept = memoryview(make())",
    "an array": "import numpy; kept = numpy.asarray(make())",
    "a region": "kept = make()[:5]",
    "a map": "kept = make().map()",
    "a capsule": "kept = make().__dlpack__()",
    "a copy by pickle": "import pickle; kept = pickle.loads(pickle.dumps(make()))",
    "a cycle": "kept = []; kept.append((kept, make()))",
    "a builtin": "import builtins; builtins.kept = make()",
    "a sys attribute": "import sys; sys.kept = make()",
    "a generator": "kept = (lambda memory: (memory for _ in range(2)))(make()); next(kept)",
    "a thread local": "import threading; kept = threading.local(); kept.memory = make()",
    "the vkgdr module": "vkgdr.kept = make()",
    "atexit": "import atexit; atexit.register(lambda memory: memory.free(), make())",
    "atexit use": "import atexit; kept = make(); atexit.register(lambda: kept.memset(1))",
    "a finalizer": "import weakref; kept = make(); weakref.finalize(kept, print, end='')",
    "an object with __del__": """
        class Kept:
            def __init__(self, memory): self.memory = memory
            def __del__(self): self.memory.memset(1); self.memory.free()
        kept = Kept(make())
    """,
}


def program(kind, *parts):
    """Return a program that makes memory of a kind."""
    if kind == "pycuda":
        pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    return "\n".join(map(textwrap.dedent, (MAKE[kind], *parts)))


@pytest.mark.parametrize("keep", KEEP)
@pytest.mark.parametrize("kind", MAKE)
def test_the_interpreters_end_frees(run_python_to_its_end, kind, keep):
    done = run_python_to_its_end(program(kind, KEEP[keep], "end()\nif 'context' in globals(): del context, end, drv"))
    assert done.stdout == done.stderr == ""
    assert not any(done.live.values())


@pytest.mark.parametrize("order", list(itertools.permutations(["context", "gpu", "kept"])), ids="-".join)
@pytest.mark.parametrize("kind", MAKE)
def test_names_may_go_in_any_order(run_python_to_its_end, kind, order):
    deletions = "\n".join(f"if {name!r} in globals(): del {name}; gc.collect()" for name in order)
    done = run_python_to_its_end(program(kind, "import gc\nkept = make()\nend()\ndel make, end", deletions))
    assert done.stderr == ""
    assert not any(done.live.values())


AFTER_THE_CONTEXT = {
    "an event of a release": """
        memory = vkgdr.Memory(gpu, 64)
        kept = memory.free_async(0)
        kept.synchronize()
        del memory
    """,
    "a pending release": """
        stream = streams.stream(); memory = vkgdr.Memory(gpu, 1 << 20, stream=stream)
        vkgdr.compat.pyopencl.fill(memory, b"1", stream=stream); kept = memory.free_async(); del memory
    """,
    "a copy's event": """
        kept = vkgdr.Memory(gpu, 1 << 16)
        event = vkgdr.compat.pyopencl.copy(kept, numpy.ones(1 << 16, "u1"), stream=0, is_blocking=False)
    """,
    "a stream and an event": "kept = streams.stream(); event = streams.event(); event.record(kept)",
    "bound memory": "stream = streams.stream(); kept = vkgdr.Memory(gpu, 64, stream=stream)",
    "a pool": """
        pool = vkgdr.pool.Pool(gpu); kept = [pool.allocate(64) for _ in range(3)]
        kept[0].device_ptr
        del kept[0]
    """,
    "a pool's bound memory": """
        stream = streams.stream(); pool = vkgdr.pool.Pool(gpu); kept = pool.allocate(64)
        kept.bind_to_stream(stream); kept.device_ptr
    """,
    "a ring": "kept = vkgdr.ring.Ring(gpu, messages=1000, answers=1000)",
    "a semaphore": "kept = vkgdr.vulkan.Semaphore(gpu)",
    "a copy engine": "gpu.prepare_copies(); kept = vkgdr.Memory(gpu, 1 << 20); kept.copy_from_host(bytes(1 << 20))",
    "deferred frees": "kept = arrays.defer_cleanup(); kept.__enter__(); vkgdr.Memory(gpu, 64).free()",
    "an array": "kept = arrays.to_device([1.0, 2.0])",
    "sources": """
        kept = [Resource(pool=pool) for pool in (False, True)]
        addresses = [source.allocate(100, 0) for source in kept]
    """,
}


@pytest.mark.parametrize("late", ["0", "1"])
@pytest.mark.parametrize("keep", AFTER_THE_CONTEXT)
def test_what_outlives_the_context_of_pycudas_autoinit(run_python, simulated, keep, late):
    pytest.importorskip("pycuda.driver", reason="pycuda is not installed", exc_type=ImportError)
    # Destroys its context at the interpreter's end, before the globals go.
    code = """
        import numpy, pycuda.autoinit, vkgdr, vkgdr.pool, vkgdr.ring, vkgdr.vulkan
        from vkgdr import arrays, stream as streams
        from vkgdr._vkgdr import Resource
        gpu = vkgdr.Vkgdr.open_current_context()
    """
    done = run_python("\n".join(map(textwrap.dedent, (code, AFTER_THE_CONTEXT[keep]))), SIMCUDA_LATE=late)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "end", ["raise SystemExit(5)", "sys.exit(5)", "raise KeyError(make())", "1 / 0", "os._exit(5)"]
)
def test_a_program_that_ends_early_does_not_crash(run_python, end):
    done = run_python(program("primary", "import os, sys; kept = make(); view = memoryview(kept)", end), expect=None)
    assert done.returncode in (1, 5)
    assert "vkgdr:" not in done.stderr


def test_daemon_threads_that_use_memory_to_the_end_do_not_crash(run_python):
    # Python ends such a thread by unwinding its stack, including the extension's frames.
    code = """
        import threading
        import vkgdr
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        shared, large = vkgdr.Memory(gpu, 64), vkgdr.Memory(gpu, 1 << 22)
        def use():
            memory = vkgdr.Memory(gpu, 64)
            memory.memset(1); shared.flush(); memory.tobytes()
            memoryview(shared)[0] = 1
        def copy():
            large.copy_to_host(bytearray(1 << 22))
        started = threading.Barrier(5)
        def work(step):
            step()
            started.wait()
            while True:
                step()
        for step in (use, use, use, copy):
            threading.Thread(target=work, args=(step,), daemon=True).start()
        started.wait()
    """
    for _ in range(3):
        run_python(code)


def test_a_daemon_thread_that_waits_in_the_driver_does_not_hold_the_end_up(run_python, simulated):
    run_python("""
        import threading
        import libcuda
        import vkgdr
        cuda = libcuda.Cuda(); context = cuda.create_context()
        stream = cuda.create_stream()
        memory = vkgdr.Memory(vkgdr.Vkgdr(0), 64, stream=stream)
        hold = cuda.hold(stream)
        gate = hold.__enter__()
        started = threading.Event()
        def work():
            started.set()
            memory.tobytes()
        threading.Thread(target=work, daemon=True).start()
        started.wait()
    """)


def test_memory_bound_to_a_stream_goes_at_the_end(run_python_to_its_end):
    code = """
        import vkgdr
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        kept = vkgdr.Memory(gpu, 64, stream=1)
    """
    # Without its profile: memory that still waits for its stream is left to the end of the process.
    done = run_python_to_its_end(code, VKGDR_TEST_PROFILE="none", SIMCUDA_ASYNC="0", SIMCUDA_LATE="0")
    # A GPU has not always passed the stream's event by then.
    assert done.live.get("Vulkan memory", 0) == 0 or not simulator.available()
