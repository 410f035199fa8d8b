"""``vkgdr.host_view`` of arrays that other libraries allocated, `vkgdr.Mapping`, and memory for network cards."""

import pytest
import simulator

SETUP = """
import ctypes, gc, os, pytest
import numpy as np
import vkgdr

cuda = ctypes.CDLL("libcuda.so.1")
good = lambda code: code == 0 or exec(f"raise AssertionError({code})")

class Array:
    def __init__(self, shape, typestr, readonly=False, room=0):
        self.nbytes = int(np.dtype(typestr).itemsize * np.prod(shape, dtype=int))
        self.pointer = ctypes.c_uint64()
        good(cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), ctypes.c_size_t(max(self.nbytes + room, 1))))
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (self.pointer.value, readonly), "version": 3,
        }

    def fill(self, value):
        good(cuda.cuMemsetD8_v2(self.pointer, ctypes.c_ubyte(value), ctypes.c_size_t(self.nbytes)))
        good(cuda.cuCtxSynchronize())

    def tobytes(self):
        bytes = ctypes.create_string_buffer(self.nbytes)
        good(cuda.cuMemcpyDtoH_v2(bytes, self.pointer, ctypes.c_size_t(self.nbytes)))
        return bytes.raw

    def free(self):
        good(cuda.cuMemFree_v2(self.pointer))

gpu = vkgdr.Vkgdr.open_primary_context()
context = ctypes.c_void_p()
good(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
good(cuda.cuCtxSetCurrent(context))
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
array = Array((20, 30), "<f4")
array.fill(0)
view = vkgdr.host_view(array)
assert (view.shape, view.dtype, view.flags.writeable) == ((20, 30), np.float32, True)
view[3] = np.arange(30)
assert array.tobytes() == view.tobytes()
array.fill(1)
assert (view.view("u1") == 1).all()
assert vkgdr.host_view(array).ctypes.data == view.ctypes.data
assert not vkgdr.host_view(Array((5,), "|u1", readonly=True)).flags.writeable
array.fill(0)
every_second = Array((1,), "<f4")
every_second.__cuda_array_interface__ = dict(array.__cuda_array_interface__, shape=(10, 15), strides=(240, 8))
strided = vkgdr.host_view(every_second)
strided[:] = 3
assert (view[::2, ::2] == 3).all() and view.sum() == 450
backwards = Array((1,), "<f4")
pointer = array.pointer.value + 4 * 599
backwards.__cuda_array_interface__ = dict(
    array.__cuda_array_interface__, shape=(600,), strides=(-4,), data=(pointer, True)
)
assert (vkgdr.host_view(backwards)[::-1] == view.ravel()).all() and not vkgdr.host_view(backwards).flags.writeable
scalar = Array((), "<i8")
assert vkgdr.host_view(scalar).shape == ()
assert vkgdr.host_view(Array((0, 3), "<i8")).shape == (0, 3)
assert vkgdr.host_view(array, owner=gpu).ctypes.data == view.ctypes.data
# The view keeps the array.
import weakref
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
        "array = Array((9,), '|u1')\nview = vkgdr.host_view(array, owner=gpu)\n"
        "good(cuda.cuCtxSetCurrent(None))\nassert vkgdr.host_view(array).ctypes.data == view.ctypes.data",
    )


REFUSED = """
assert not gpu.supports_existing()
with pytest.raises(ValueError, match="this Array is not in memory of vkgdr") as refused:
    vkgdr.host_view(Array((5,), "|u1"))
assert isinstance(refused.value, vkgdr.VkgdrError)
for text in (os.environ["REASON"], "allocate mapped memory with this library"):
    assert text in str(refused.value), refused.value
"""


@pytest.mark.parametrize(("profile", "reason"), [("rebar", "CUDA 13.3"), ("dma-buf-no-mmap", "device attribute 152")])
def test_where_it_cannot_be_mapped_the_error_names_the_reason(under, profile, reason):
    under(profile, REFUSED, REASON=reason)


MAPPING = """
array = Array((100,), "|u1", room=1 << 20)
mapping = vkgdr.Mapping(gpu, array.pointer.value + 10, 80, keep=array)
assert (len(mapping), mapping.nbytes, mapping.device_ptr) == (80, 80, array.pointer.value + 10)
assert not mapping.is_cached and not mapping.readonly
assert repr(mapping).startswith("<vkgdr.Mapping: 80 bytes, ")
np.asarray(mapping)[:] = 7
mapping.flush()
mapping.invalidate()
assert array.tobytes()[10:90] == bytes([7]) * 80
fd, offset, nbytes = mapping.dma_buf()
os.close(fd)
assert nbytes == 80 and offset >= 10
assert mapping.is_current()
array.free()
assert not mapping.is_current()
assert (np.asarray(mapping) == 7).all()
for arguments, error, text in [
    ((gpu, 0, 1), vkgdr.InvalidArgumentError, "no memory there"),
    ((gpu, array.pointer.value, 1), vkgdr.InvalidArgumentError, "no memory there"),
    ((gpu, Array((4,), "|u1").pointer.value, 0), vkgdr.InvalidArgumentError, "empty"),
    ((gpu, Array((4,), "|u1").pointer.value, 1 << 40), vkgdr.OutOfRangeError, None),
    ((gpu, -1, 1), OverflowError, None),
    ((gpu, 1, -1), OverflowError, None),
    ((gpu, 1 << 64, 1), OverflowError, None),
    ((5, 1, 1), TypeError, None),
]:
    with pytest.raises(error, match=text):
        vkgdr.Mapping(*arguments)
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
