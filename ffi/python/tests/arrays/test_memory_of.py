"""``vkgdr.memory_of``: from arrays and addresses of any library to the memory in which they lie."""

import ctypes
import gc

import numpy as np
import pytest
import vkgdr
from neighbours import Borrowed, BorrowedBytes, ByDlpack, every_kind, every_visible_kind
from vkgdr.pool import Pool


@every_kind
def test_every_address_of_memory_leads_to_the_rest_of_it(gpu, kind):
    memory = vkgdr.Memory(gpu, 4096, kind=kind)
    starts = [memory.device_ptr] if kind == "device" else [memory.device_ptr, memory.host_ptr]
    for start in starts:
        for offset in (0, 1, 4095):
            region = vkgdr.memory_of(start + offset)
            assert isinstance(region, vkgdr.Memory)
            assert (region.offset, len(region)) == (offset, 4096 - offset)
            assert region.device_ptr == memory.device_ptr + offset
            assert region.kind == kind
    assert vkgdr.memory_of(np.uint64(memory.device_ptr)) == memory[:]


def test_addresses_elsewhere_have_no_memory(gpu):
    memory = vkgdr.Memory(gpu, 4096)
    for address in (0, 1, -1, 1 << 64, memory.device_ptr - 1, memory.host_ptr + 4096, ctypes.addressof(ctypes.c_int())):
        with pytest.raises(vkgdr.InvalidArgumentError, match="not an address in memory of vkgdr"):
            vkgdr.memory_of(address)
    address = memory.device_ptr
    memory.free()
    with pytest.raises(vkgdr.InvalidArgumentError, match=f"{address:#x}"):
        vkgdr.memory_of(address)


@every_visible_kind
def test_host_arrays_lead_to_their_bytes(gpu, kind):
    memory = vkgdr.Memory(gpu, 96, kind=kind)
    whole = np.asarray(memory).view("i4").reshape(4, 6)
    parts = {
        "all": (whole, 0, 96),
        "a row": (whole[1], 24, 24),
        "a column": (whole[:, 1], 4, 76),
        "reversed": (whole[::-1, ::-1], 0, 96),
        "transposed": (whole.T, 0, 96),
        "an element": (whole[2:3, 3:4], 60, 4),
    }
    for name, (part, offset, size) in parts.items():
        region = vkgdr.memory_of(part)
        assert (region.offset, len(region)) == (offset, size), name
    for same in (memory, memory.host, memoryview(memory)):
        assert vkgdr.memory_of(same).__vkgdr_memory__ == memory.__vkgdr_memory__
    assert vkgdr.memory_of(memory[8:16]).__vkgdr_memory__ == memory[8:16].__vkgdr_memory__


def test_device_arrays_lead_to_their_bytes(gpu):
    memory = vkgdr.Memory(gpu, 96)
    for array, offset, size in (
        (Borrowed(memory.device_ptr, (4, 6), "<i4"), 0, 96),
        (Borrowed(memory.device_ptr + 4, (4,), "<i4", strides=(24,)), 4, 76),
        (Borrowed(memory.device_ptr + 92, (24,), "<i4", strides=(-4,)), 0, 96),
        (Borrowed(memory.device_ptr + 8, (4, 4), "<i4", strides=(0, 4)), 8, 16),
        (BorrowedBytes(memory.device_ptr + 1, 95), 1, 95),
        (ByDlpack(memory[16:32]), 16, 16),
    ):
        region = vkgdr.memory_of(array)
        assert (region.offset, len(region)) == (offset, size)


def test_arrays_beyond_the_memory_are_refused(gpu):
    memory = vkgdr.Memory(gpu, 96)
    for shape, start, strides in (((25,), 0, None), ((2, 24), 92, (4, -4))):
        with pytest.raises(vkgdr.InvalidArgumentError):
            vkgdr.memory_of(Borrowed(memory.device_ptr + start, shape, "<i4", strides=strides))


def test_arrays_elsewhere_have_no_memory(foreign):
    with pytest.raises(vkgdr.InvalidArgumentError, match="no memory of vkgdr contains the 16 bytes at device address"):
        vkgdr.memory_of(ByDlpack(vkgdr.arrays.as_cuda_array(foreign)))
    with pytest.raises(vkgdr.InvalidArgumentError, match="no memory of vkgdr contains the 16 bytes at device address"):
        vkgdr.memory_of(foreign)
    with pytest.raises(vkgdr.InvalidArgumentError, match="no memory of vkgdr contains the 80 bytes at host address"):
        vkgdr.memory_of(np.zeros(10))
    with pytest.raises(vkgdr.InvalidArgumentError, match="at host address"):
        vkgdr.memory_of(b"abc")


def test_the_use_of_another_librarys_memory_is_not_recorded(foreign):
    with pytest.raises(vkgdr.InvalidArgumentError, match="another library"):
        vkgdr.arrays.as_cuda_array(foreign).memory.record_stream(0)


def test_what_is_no_array_is_a_type_error():
    for obj in (None, "text", 1.5, object()):
        with pytest.raises(TypeError):
            vkgdr.memory_of(obj)


def test_the_region_keeps_the_memory(gpu, live):
    memory = vkgdr.Memory(gpu, 100)
    region = vkgdr.memory_of(memory.device_ptr)
    memory.free()
    assert live() == 1
    region.memset(7)
    assert region.tobytes() == b"\7" * 100
    del region
    gc.collect()
    assert live() == 0


def test_a_chunk_of_a_pool_ends_at_its_own_end(gpu):
    pool = Pool(gpu)
    chunk = pool.allocate(100)
    assert len(vkgdr.memory_of(chunk.device_ptr + 10)) == 90
    with pytest.raises(vkgdr.InvalidArgumentError):
        vkgdr.memory_of(chunk.device_ptr + 100)


def test_read_only_memory_stays_read_only_by_whatever_it_is_found(gpu):
    memory = vkgdr.Memory(gpu, 64, readonly=True)
    host = np.asarray(memory)
    found = {
        "a host array": vkgdr.memory_of(host),
        "a host view": vkgdr.memory_of(memory.host),
        "a part": vkgdr.memory_of(host[8:16]),
        "a memoryview": vkgdr.memory_of(memoryview(memory)),
        "a device address": vkgdr.memory_of(memory.device_ptr),
        "a host address": vkgdr.memory_of(memory.host_ptr + 1),
        "an interface that does not say so": vkgdr.memory_of(BorrowedBytes(memory.device_ptr, 64)),
        "its device view": vkgdr.device_view(host),
        "its handle": vkgdr.RawMemory.from_handle(memory.handle),
        "DLPack": vkgdr.Memory.from_capsule(memory.__dlpack__(max_version=(1, 0))),
    }
    for name, region in found.items():
        assert region.readonly, name
        assert region.__cuda_array_interface__["data"][1], name
        assert not np.asarray(region).flags.writeable, name
        with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
            region.memset(1)


def test_a_read_only_array_of_writable_memory_leads_to_a_read_only_region(gpu):
    memory = vkgdr.Memory(gpu, 64)
    host = np.asarray(memory)
    host.flags.writeable = False
    for region in (
        vkgdr.memory_of(host),
        vkgdr.memory_of(memoryview(memory).toreadonly()),
        vkgdr.device_view(host),
        vkgdr.device_view(memoryview(memory).toreadonly()),
        vkgdr.memory_of(BorrowedBytes(memory.device_ptr, 64, readonly=True)),
    ):
        assert region.readonly
    # An address carries no mark.
    for region in (vkgdr.memory_of(host.ctypes.data), vkgdr.RawMemory.from_handle(memory.handle)):
        assert not region.readonly


def test_strided_objects_without_an_array_interface_are_refused(gpu):
    memory = vkgdr.Memory(gpu, 64)
    part = vkgdr.arrays.to_device(np.zeros((4, 4), "u1"), owner=gpu)[:, 1]
    for strided in (memoryview(memory)[::2], ByDlpack(part)):
        with pytest.raises(vkgdr.InvalidArgumentError, match=r"contiguous|C order"):
            vkgdr.memory_of(strided)
    with pytest.raises(vkgdr.InvalidArgumentError, match="C order"):
        memory.copy_from_device(ByDlpack(part))


def test_a_tensor_that_its_library_refuses_is_an_invalid_argument(gpu):
    class Refusing:
        """A tensor that needs a gradient, for example."""

        def __init__(self, device):
            self.__dlpack_device__ = lambda: device

        def __dlpack__(self, **_arguments):
            raise BufferError("not today")

    for device in ((1, 0), (2, 0)):
        with pytest.raises(vkgdr.InvalidArgumentError, match="not today"):
            vkgdr.memory_of(Refusing(device))
