"""A child forked after the GPU was opened: it can drop objects, and nothing else."""

import textwrap

import pytest

FORK = """
    import gc, os, sys
    import vkgdr
    from vkgdr._vkgdr import Resource
    gpu = vkgdr.Vkgdr.open_primary_context(0)
    memory = vkgdr.Memory(gpu, 64)
    memory.memset(7)
    mapping, view, capsule = memory.map(), memoryview(memory), memory.__dlpack__()
    raw = vkgdr.RawMemory(gpu, 64)
    source = Resource()
    address = source.allocate(64)
    child = os.fork()
    if child == 0:
        code = 1
        try:
{child}
            code = 0
        except BaseException as error:
            print(repr(error), flush=True)
        finally:
            sys.stdout.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    # The parent's memory is untouched.
    assert memory.tobytes() == bytes([7]) * 64
    mapping.release()
    del mapping, view, capsule
    memory.free()
    raw.free()
    vkgdr.memory_of(address).memset(1)
    source.free(address)
    print("the parent is well")
"""


def forked(child):
    return FORK.replace("{child}", textwrap.indent(textwrap.dedent(child), " " * 12))


@pytest.mark.parametrize(
    "use",
    [
        "vkgdr.Vkgdr(0)",
        "vkgdr.Vkgdr.open_primary_context(0)",
        "vkgdr.Memory(gpu, 64)",
        "vkgdr.RawMemory(gpu, 64)",
        "memory.memset(1)",
        "memory.tobytes()",
        "memory.copy_from_host(b'x')",
        "memory.map()",
        "memory.bind_to_stream(0)",
        "gpu.memory_info()",
        "source.allocate(64)",
        "memory[:3].tobytes()",
        "vkgdr.memory_of(view)",
        "vkgdr.memory_of(memory.device_ptr)",
        "vkgdr.RawMemory.from_handle(memory.handle)",
        "gpu.stats()",
    ],
)
def test_a_forked_child_is_told_that_it_cannot_use_the_gpu(run_python, use):
    child = f"""
        import pytest
        with pytest.raises(vkgdr.VkgdrError, match="fork"):
            {use}
    """
    assert run_python(forked(child)).stdout == "the parent is well\n"


@pytest.mark.parametrize(
    "use",
    [
        "memory.free()",
        "memory.free(force=True)",
        "raw.free()",
        "source.free(address)",
        "memory.free_async(0)",
        "gpu.close()",
        "gpu.collect()",
        "mapping.release()",
        "del memory, mapping, view, capsule, raw; gc.collect()",
        "del gpu; gc.collect()",
        "repr(memory), repr(gpu), hash(memory), len(memory), memory.device_ptr",
    ],
)
def test_a_forked_child_may_let_go_of_what_it_inherited(run_python, use):
    child = f"""
        try:
            {use}
        except vkgdr.VkgdrError as error:
            assert "fork" in str(error), error
    """
    assert run_python(forked(child)).stdout == "the parent is well\n"


def test_a_forked_child_leaves_the_scope_of_a_ring_as_that_of_memory(run_python):
    code = """
        import os, vkgdr, vkgdr.ring
        gpu = vkgdr.Vkgdr.open_primary_context(0)
        ring, memory = vkgdr.ring.Ring(gpu, 64, 64), vkgdr.Memory(gpu, 64)
        child = os.fork()
        if child == 0:
            with ring, memory:
                pass
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    run_python(code)


def test_a_forked_child_leaves_streams_and_events_alone(run_python):
    # Without any other use of the package: the streams load the driver.
    code = """
        import gc, os
        import libcuda, simulator, vkgdr
        from vkgdr import stream as streams
        cuda = libcuda.Cuda()
        context = cuda.create_context()
        stream, event = streams.stream(), streams.event()
        child = os.fork()
        if child == 0:
            uses = streams.stream, streams.event, stream.synchronize, event.query, event.synchronize
            for use in (*uses, lambda: event.record(stream), lambda: stream.add_callback(print)):
                try:
                    use()
                except vkgdr.VkgdrError as error:
                    assert "fork" in str(error), error
                else:
                    os._exit(1)
            before = simulator.calls() if simulator.available() else 0
            del stream, event, use, uses
            gc.collect()
            os._exit(simulator.available() and simulator.calls() - before)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        event.record(stream)
        stream.synchronize()
        print("the parent is well")
    """
    assert run_python(code).stdout == "the parent is well\n"


def test_a_fork_before_the_first_use_is_no_problem(run_python):
    run_python("""
        import os
        import vkgdr
        child = os.fork()
        memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 64)
        memory.memset(3)
        assert memory.tobytes() == bytes([3]) * 64
        memory.free()
        if child == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """)
