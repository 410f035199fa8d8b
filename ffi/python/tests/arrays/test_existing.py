"""``vkgdr.host_view`` of arrays that other libraries allocated, `vkgdr.Mapping`, and memory for network cards."""

import pytest
import simulator

SETUP = """
import gc, os, pytest, weakref
import libcuda
import numpy as np
import vkgdr
from neighbours import Borrowed, Foreign

cuda = libcuda.Cuda()
gpu = vkgdr.Vkgdr.open_primary_context()
cuda.push(cuda.retain_primary())

def foreign(shape, typestr, readonly=False):
    contents = bytes(np.dtype(typestr).itemsize * np.prod(shape, dtype=int) or 1)
    array = Foreign(cuda, contents, shape=shape, typestr=typestr)
    array.__cuda_array_interface__["data"] = (array.pointer, readonly)
    return array
"""


@pytest.fixture
def under(run_python):
    """Run a program under a profile of the simulated GPU."""
    simulator.require()

    def run(profile, program, **variables):
        done = run_python(SETUP + program + "\nprint('ok')\n", VKGDR_TEST_PROFILE=profile, **variables)
        assert done.stdout == "ok\n", done

    return run


MAP = """
assert gpu.supports_existing()
array = foreign((20, 30), "<f4")
view = vkgdr.host_view(array)
assert (view.shape, view.dtype, view.flags.writeable) == ((20, 30), np.float32, True)
view[3] = np.arange(30)
assert cuda.read(array.pointer, 2400) == view.tobytes()
cuda.fill(array.pointer, 1, 2400)
assert (view.view("u1") == 1).all()
assert vkgdr.host_view(array).ctypes.data == vkgdr.host_view(array, owner=gpu).ctypes.data == view.ctypes.data
assert not vkgdr.host_view(foreign((5,), "|u1", readonly=True)).flags.writeable
cuda.fill(array.pointer, 0, 2400)
strided = vkgdr.host_view(Borrowed(array.pointer, (10, 15), "<f4", strides=(240, 8)))
strided[:] = 3
assert (view[::2, ::2] == 3).all() and view.sum() == 450
backwards = vkgdr.host_view(Borrowed(array.pointer + 4 * 599, (600,), "<f4", strides=(-4,), readonly=True))
assert (backwards[::-1] == view.ravel()).all() and not backwards.flags.writeable
for shape in ((), (0, 3)):
    assert vkgdr.host_view(foreign(shape, "<i8")).shape == shape
# The view keeps the array.
seen = weakref.ref(array)
del array
gc.collect()
assert seen() is not None
del view
gc.collect()
assert seen() is None
"""


@pytest.mark.parametrize("profile", ["dma-buf", "dma-buf-cached", "dma-buf-no-vulkan"])
def test_an_array_of_another_library_has_a_host_view(under, profile):
    under(profile, MAP)


def test_without_a_current_context_the_primary_one_is_used(under):
    under(
        "dma-buf",
        "array = foreign((9,), '|u1')\nview = vkgdr.host_view(array, owner=gpu)\n"
        "cuda.pop()\nassert vkgdr.host_view(array).ctypes.data == view.ctypes.data",
    )


REFUSED = """
assert not gpu.supports_existing()
with pytest.raises(ValueError, match="this Foreign is not in memory of vkgdr") as refused:
    vkgdr.host_view(foreign((5,), "|u1"))
assert isinstance(refused.value, vkgdr.VkgdrError)
for text in (os.environ["REASON"], "allocate mapped memory with this library"):
    assert text in str(refused.value), refused.value
"""


@pytest.mark.parametrize(("profile", "reason"), [("rebar", "CUDA 13.3"), ("dma-buf-no-mmap", "device attribute 152")])
def test_where_it_cannot_be_mapped_the_error_names_the_reason(under, profile, reason):
    under(profile, REFUSED, REASON=reason)


MAPPING = """
pointer, small = cuda.allocate(1 << 20), foreign((4,), "|u1")
mapping = vkgdr.Mapping(gpu, pointer + 10, 80)
assert (len(mapping), mapping.nbytes, mapping.device_ptr) == (80, 80, pointer + 10)
assert not mapping.is_cached and not mapping.readonly
assert repr(mapping).startswith("<vkgdr.Mapping: 80 bytes, ")
np.asarray(mapping)[:] = 7
mapping.flush()
mapping.invalidate()
assert cuda.read(pointer + 10, 80) == bytes([7]) * 80
fd, offset, nbytes = mapping.dma_buf()
os.close(fd)
assert nbytes == 80 and offset >= 10
assert mapping.is_current()
cuda.free(pointer)
assert not mapping.is_current()
assert (np.asarray(mapping) == 7).all()
for arguments, error, text in [
    ((gpu, 0, 1), vkgdr.InvalidArgumentError, "no memory there"),
    ((gpu, pointer, 1), vkgdr.InvalidArgumentError, "no memory there"),
    ((gpu, small.pointer, 0), vkgdr.InvalidArgumentError, "empty"),
    ((gpu, small.pointer, 1 << 40), vkgdr.OutOfRangeError, None),
    ((gpu, -1, 1), OverflowError, None),
    ((gpu, 1, -1), OverflowError, None),
    ((gpu, 1 << 64, 1), OverflowError, None),
    ((5, 1, 1), TypeError, None),
]:
    with pytest.raises(error, match=text):
        vkgdr.Mapping(*arguments)
kept = weakref.ref(small)
mapping = vkgdr.Mapping(gpu, small.pointer, 4, keep=small)
del small
assert kept() is not None
"""


def test_a_mapping_has_both_addresses_and_knows_that_its_memory_was_freed(under):
    under("dma-buf", MAPPING)


CARDS = """
from vkgdr.arrays import DmaBuf
for kind in ("mapped", "device"):
    memory = vkgdr.Memory(gpu, 5000, kind=kind, dma_buf=True)
    whole, part = memory.dma_buf(), memory[100:200].dma_buf()
    assert isinstance(whole, DmaBuf) and whole.nbytes == 5000
    assert (part.offset - whole.offset, part.nbytes) == (100, 100)
    os.close(whole.fd)
    os.close(part.fd)
    memory.copy_from_host(bytes(range(256)))
    assert memory.tobytes()[:256] == bytes(range(256))
for memory in (lambda: vkgdr.Memory(gpu, 1, kind="host", dma_buf=True), lambda: vkgdr.Memory(gpu, 1).dma_buf()):
    with pytest.raises(vkgdr.InvalidArgumentError, match="dma-buf"):
        memory()
"""


def test_a_card_can_register_memory(under):
    under("dma-buf", CARDS)
