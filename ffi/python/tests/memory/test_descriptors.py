"""``Memory.export_fd`` and ``Memory.import_fd``: the descriptors by which ``vkgdr.ipc`` shares memory."""

import os
from functools import partial

import pytest
import simulator
import vkgdr
from everything import refused
from neighbours import every_kind


@every_kind
def test_a_descriptor_is_the_same_memory(cuda, gpu, kind):
    memory = vkgdr.Memory(gpu, 5000, kind=kind)
    memory.copy_from_host(b"hello")
    descriptor = memory.export_fd()
    assert not os.get_inheritable(descriptor)
    again = vkgdr.Memory.import_fd(gpu, descriptor, 5000, kind=kind)
    os.close(descriptor)
    assert type(again) is vkgdr.Memory
    assert (again.kind, again.nbytes, again.owner) == (kind, 5000, gpu)
    assert again != memory
    assert again.device_ptr != memory.device_ptr
    assert again.tobytes()[:5] == b"hello"
    assert cuda.read(again.device_ptr, 5) == b"hello"
    again.copy_from_host(b"world", offset=4995)
    memory.invalidate()
    assert memory.tobytes()[-5:] == b"world"
    memory.free()
    assert again.tobytes()[-5:] == b"world"


def test_what_cannot_be_is_not_imported(gpu, simulated):
    memory = vkgdr.Memory(gpu, 5)
    descriptor, before = memory.export_fd(), simulator.ledger()
    for arguments, error, text in (
        ((descriptor, 0), ValueError, "0 bytes"),
        ((descriptor, -1), OverflowError, "-1"),
        ((descriptor, 5, "gpu"), ValueError, "gpu"),
        *(((number, 5), (vkgdr.VkgdrError, ValueError), str(number)) for number in (-1, -100, 10**6, 2**31 - 1)),
        *(((number, 5), TypeError, "") for number in ("x", None, 1.5)),
        ((2**31, 5), OverflowError, ""),
    ):
        kind = {"kind": arguments[2]} if len(arguments) > 2 else {}
        refused(partial(vkgdr.Memory.import_fd, gpu, *arguments[:2], **kind), error, text, arguments)
    assert simulator.ledger() == before
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
