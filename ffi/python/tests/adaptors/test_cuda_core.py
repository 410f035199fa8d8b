"""The memory resource of cuda.core: wrong arguments, and graphs."""

import adaptors
import pytest

PRELUDE = """
import numpy as np
import pytest
import vkgdr
from cuda.core import Device
from vkgdr.cuda_core import MappedMemoryResource

device = Device(0)
device.set_current()
stream = device.create_stream()
resource = MappedMemoryResource(device)
refused = pytest.raises
"""


@pytest.fixture
def run(run_python):
    """Return a function that runs a program with a memory resource."""
    return adaptors.runner(run_python, "cuda.core", "cuda-core", PRELUDE)


def test_the_device_is_a_device_or_its_number(run):
    run("""
        for number in (None, device, 0, np.int64(0)):
            assert MappedMemoryResource(number).device_id == 0
        # Not the current one.
        assert MappedMemoryResource(np.int64(7)).device_id == 7
        for other in ("0", 1.5, []):
            refused(TypeError, lambda: MappedMemoryResource(other))
        refused(vkgdr.VkgdrError, lambda: MappedMemoryResource(7).allocate(1, stream=stream))
    """)


def test_a_buffer_that_cannot_be_made_leaves_no_memory(run):
    run("""
        # cuda.core takes no number for a stream, this package does.
        refused(TypeError, lambda: resource.allocate(100, stream=1))
        assert len(resource._resource) == 0
    """)


def test_a_buffer_without_a_current_context_is_refused_by_cuda_core_itself(run):
    run("""
        import threading

        errors = []

        def allocate(stream):
            try:
                resource.allocate(100, stream=stream)
            except Exception as error:
                errors.append(error)

        for default in (None, device.default_stream):
            thread = threading.Thread(target=allocate, args=(default,))
            thread.start()
            thread.join()
        assert len(errors) == 2
        for error in errors:
            assert "no CUDA context is current" in str(error), error
            assert error.__context__ is None, error.__context__
        errors.clear()
        assert len(resource._resource) == 0
    """)


def test_memory_is_not_allocated_or_freed_in_a_graph(run):
    run("""
        buffer, other = resource.allocate(100, stream=stream), resource.allocate(100, stream=stream)
        graph = device.create_graph_builder().begin_building()
        refused(vkgdr.InvalidArgumentError, lambda: resource.allocate(100, stream=graph))
        refused(vkgdr.InvalidArgumentError, lambda: resource.deallocate(buffer.handle, 100, stream=graph))
        buffer.copy_to(other, stream=graph)
        # The refusals did not end the graph.
        built = graph.end_building().complete()
        vkgdr.host_view(buffer)[:] = 5
        built.launch(stream)
        stream.sync()
        assert (vkgdr.host_view(other) == 5).all()
    """)


def test_a_pickle_of_a_buffer_is_refused_by_cuda_core_itself(run):
    run("""
        import pickle

        assert not resource.is_ipc_enabled
        # In a variable: cuda.core cannot free a buffer while an exception passes.
        buffer = resource.allocate(100, stream=stream)
        refused(RuntimeError, lambda: pickle.dumps(buffer))
    """)
