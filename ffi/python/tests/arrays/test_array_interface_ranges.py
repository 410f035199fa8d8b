"""Ranges in ``__cuda_array_interface__`` at the edges of this package's memory, and pointers that cannot be meant."""

import pytest
import vkgdr
from neighbours import BorrowedBytes, ByInterface
from vkgdr.compat.dpctl import MemoryDevice, MemoryShared, as_memory

SIZE = 4096
USES = {
    "as_memory": as_memory,
    "MemoryShared": MemoryShared,
    "MemoryDevice": lambda obj: MemoryDevice(obj, copy=True),
    "copy_from_device": lambda obj: vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(), 2 * SIZE).copy_from_device(obj),
    "host_view": vkgdr.host_view,
}
every_use = pytest.mark.parametrize("use", USES.values(), ids=USES)


@pytest.mark.parametrize("offset", [0, 100, SIZE])
def test_an_empty_view_of_our_memory_is_of_our_kind(gpu, offset):
    memory = vkgdr.Memory(gpu, SIZE)
    empty = MemoryShared(BorrowedBytes(memory.device_ptr + offset, 0))
    assert empty.kind == "mapped"
    assert empty.nbytes == 0
    assert memory.pending_views == 1
    assert vkgdr.host_view(BorrowedBytes(memory.device_ptr + offset, 0)).size == 0


def test_an_empty_view_at_null_is_of_nothing(gpu):
    assert as_memory(BorrowedBytes(0, 0)).nbytes == 0


@every_use
@pytest.mark.parametrize(("offset", "size"), [(0, SIZE + 1), (1, SIZE), (SIZE - 1, 2), (0, 1 << 40)])
def test_a_view_that_ends_beyond_our_memory_is_refused(gpu, use, offset, size):
    memory = vkgdr.Memory(gpu, SIZE)
    text = rf"{size} bytes at offset {offset} are out of range: the memory has {SIZE} bytes"
    with pytest.raises(vkgdr.OutOfRangeError, match=text):
        use(BorrowedBytes(memory.device_ptr + offset, size))
    assert memory.pending_views == 0


@every_use
def test_a_view_that_begins_before_our_memory_is_refused(gpu, use):
    memory = vkgdr.Memory(gpu, SIZE)
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"begins before memory of vkgdr|not the address of CUDA"):
        use(BorrowedBytes(memory.device_ptr - 1, 2))


def test_a_tensor_that_ends_beyond_our_memory_is_refused(gpu):
    from capsules import Taken

    memory = vkgdr.Memory(gpu, SIZE)
    capsule = memory.__dlpack__(max_version=(1, 0))
    Taken.longer(capsule, SIZE + 1)
    with pytest.raises(vkgdr.OutOfRangeError, match="out of range"):
        vkgdr.Memory.from_capsule(capsule)


@every_use
def test_a_null_pointer_is_named_without_a_context(primary, no_context, use):
    text = r"the null pointer is not the address of 4 bytes"
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        use(BorrowedBytes(0, 4))


@every_use
@pytest.mark.parametrize(("address", "size"), [((1 << 64) - 1, 2), (1 << 63, 1 << 63)])
def test_a_range_beyond_the_address_space_is_named_without_a_context(primary, no_context, use, address, size):
    with pytest.raises(vkgdr.InvalidArgumentError, match="exceeds the address space"):
        use(BorrowedBytes(address, size))


def test_memory_found_by_its_address_has_an_owner(gpu, live):
    memory = vkgdr.Memory(gpu, SIZE)
    for found in (
        as_memory(BorrowedBytes(memory.device_ptr, SIZE)),
        vkgdr.Memory.from_capsule(memory.__dlpack__()),
        vkgdr.RawMemory.from_handle(memory.handle),
    ):
        assert (found.owner.device, found.owner.name) == (gpu.device, gpu.name)
        assert found.migrate("host").owner.device == gpu.device
        found.free()
        assert found.owner is None
    assert memory.owner is gpu


def test_foreign_memory_has_no_owner(foreign):
    assert as_memory(foreign).owner is None
    assert as_memory(ByInterface(foreign.__cuda_array_interface__)).owner is None


def test_a_copy_of_a_view_is_on_the_gpu_of_the_memory(run_python, simulated):
    code = """
        import vkgdr
        from vkgdr.compat.dpctl import MemoryDevice, MemoryHost, as_memory

        class View:
            def __init__(self, memory):
                self.__cuda_array_interface__ = memory.__cuda_array_interface__

        class Tensor:
            def __init__(self, memory):
                self.__dlpack__, self.__dlpack_device__ = memory.__dlpack__, memory.__dlpack_device__

        for device in (0, 1):
            gpu = vkgdr.Vkgdr.open_primary_context(device)
            memory = vkgdr.Memory(gpu, 64)
            memory.memset(7 + device)
            for obj in (memory, View(memory), Tensor(memory)):
                for cls in (MemoryDevice, MemoryHost):
                    copied = cls(obj, copy=True)
                    assert copied.device == copied.owner.device == device, (obj, copied)
                    assert copied.tobytes() == bytes([7 + device]) * 64
                assert as_memory(obj).owner.device == device
            found = vkgdr.RawMemory.from_handle(memory.handle)
            assert found.owner.device == device
            assert found.migrate("device").device == device
        print("ok")
    """
    assert run_python(code, VKGDR_TEST_PROFILE="two-gpus").stdout == "ok\n"
