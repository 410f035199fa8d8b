"""``Memory.export_fd`` and ``Memory.import_fd``: the descriptors by which ``vkgdr.ipc`` shares memory."""

import os

import pytest
import vkgdr
from neighbours import every_kind


@every_kind
def test_a_descriptor_is_the_same_memory(gpu, kind):
    memory = vkgdr.Memory(gpu, 5000, kind=kind)
    memory.copy_from_host(b"hello")
    descriptor = memory.export_fd()
    again = vkgdr.Memory.import_fd(gpu, descriptor, 5000, kind=kind)
    os.close(descriptor)
    assert type(again) is vkgdr.Memory
    assert (again.kind, again.nbytes, again.owner) == (kind, 5000, gpu)
    assert again != memory
    assert again.device_ptr != memory.device_ptr
    assert again.tobytes()[:5] == b"hello"
    again.copy_from_host(b"world", offset=4995)
    memory.invalidate()
    assert memory.tobytes()[-5:] == b"world"
    memory.free()
    assert again.tobytes()[-5:] == b"world"


def test_exported_descriptors_do_not_reach_programs_that_are_started(gpu):
    memory = vkgdr.Memory(gpu, 5)
    descriptor = memory.export_fd()
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_a_size_and_a_kind_that_cannot_be_are_refused(gpu):
    memory = vkgdr.Memory(gpu, 5)
    descriptor = memory.export_fd()
    with pytest.raises(ValueError, match="0 bytes"):
        vkgdr.Memory.import_fd(gpu, descriptor, 0)
    with pytest.raises(OverflowError, match="-1"):
        vkgdr.Memory.import_fd(gpu, descriptor, -1)
    with pytest.raises(ValueError, match="gpu"):
        vkgdr.Memory.import_fd(gpu, descriptor, 5, kind="gpu")
    os.close(descriptor)


@pytest.mark.parametrize("allocate", ["vkgdr.Memory(gpu, 64)", "Held()"])
def test_garbage_is_collected_before_descriptors_count_as_exhausted(run_python, simulated, allocate):
    code = """
import gc, resource
import vkgdr
from vkgdr.pool import Source

gpu, source = vkgdr.Vkgdr.open_primary_context(), Source()

class Held:
    def __init__(self):
        self.address = source.allocate(64)

    def __del__(self):
        source.free(getattr(self, "address", 0))

class Cycle:
    def __init__(self, memory):
        self.itself, self.memory = self, memory

Cycle(ALLOCATE)
gc.disable()
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
for _ in range(300):
    Cycle(ALLOCATE)
kept = []
try:
    for _ in range(300):
        kept.append(ALLOCATE)
except vkgdr.VkgdrError as error:
    assert "too many open files" in str(error), error
else:
    raise AssertionError
"""
    run_python(code.replace("ALLOCATE", allocate))
