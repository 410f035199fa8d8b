"""Invalid arguments: sizes, kinds, slices, shapes, buffers, overlaps."""

import gc
import math
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
import vkgdr.compat.dpctl
from everything import members, refused

SIZE = 4096


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, SIZE)


# ---- sizes, kinds, alignments

ALLOCATES = {
    "Memory": vkgdr.Memory,
    "RawMemory": vkgdr.RawMemory,
    "Buffer": lambda gpu, size: vkgdr.compat.rmm.Buffer(size=size, owner=gpu),
    "MemoryShared": lambda gpu, size: vkgdr.compat.dpctl.MemoryShared(size, owner=gpu),
    "MemoryHost": lambda gpu, size: vkgdr.compat.dpctl.MemoryHost(size, owner=gpu),
    "MemoryDevice": lambda gpu, size: vkgdr.compat.dpctl.MemoryDevice(size, owner=gpu),
}


@pytest.mark.parametrize("name", ALLOCATES)
def test_a_size_that_cannot_be_is_refused(gpu, name, simulated):
    before = simulator.ledger()
    for size in ["1", b"1", 1.5, math.nan, 1j, slice(1)]:
        # The buffers of other packages may be given in place of a size.
        refused(partial(ALLOCATES[name], gpu, size), (TypeError, vkgdr.InvalidArgumentError), "", f"{name} of {size!r}")
    for size in [-1, -(2**63), -(2**100)]:
        with pytest.raises((OverflowError, ValueError), match=str(size)):
            ALLOCATES[name](gpu, size)
    for size in [10**15, 2**63, 2**64 - 1]:
        with pytest.raises(vkgdr.AllocationError, match="VK_ERROR_OUT_OF_DEVICE_MEMORY"):
            ALLOCATES[name](gpu, size)
    with pytest.raises(OverflowError, match=str(2**64)):
        ALLOCATES[name](gpu, 2**64)
    gc.collect()
    assert simulator.ledger() == before


@pytest.mark.parametrize("make", [vkgdr.Memory, vkgdr.RawMemory])
def test_nothing_cannot_be_allocated(gpu, make):
    with pytest.raises(vkgdr.InvalidArgumentError, match="0 bytes"):
        make(gpu, 0)


@pytest.mark.parametrize("make", [vkgdr.Memory, vkgdr.RawMemory])
def test_an_owner_of_another_type_is_refused(gpu, make):
    for owner in (None, 0, "x", object(), vkgdr.Vkgdr, gpu._handle):
        with pytest.raises(TypeError, match="Vkgdr"):
            make(owner, 5)


@pytest.mark.parametrize("make", [vkgdr.Memory, vkgdr.RawMemory])
@pytest.mark.parametrize("kind", ["", "Mapped", "shared", "x" * 1000, "\0", "mapped "])
def test_an_unknown_kind_is_refused_with_those_that_there_are(gpu, make, kind):
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"mapped.*host.*device"):
        make(gpu, 5, kind=kind)
    for method in ("supports", "memory_info", "memory_type_of"):
        with pytest.raises(vkgdr.InvalidArgumentError, match=r"mapped.*host.*device"):
            getattr(gpu, method)(kind)


@pytest.mark.parametrize("kind", [None, 0, b"mapped", object(), [0], ["mapped", None]])
def test_a_kind_that_is_no_string_is_a_type_error(gpu, kind):
    with pytest.raises(TypeError, match=r"kind must be 'mapped', 'host' or 'device', or a sequence of these"):
        vkgdr.Memory(gpu, 5, kind=kind)
    with pytest.raises(TypeError):
        gpu.memory_info(kind)


@pytest.mark.parametrize("alignment", [3, 65, 2**64 - 1])
def test_an_alignment_that_is_no_power_of_two_is_refused(gpu, alignment):
    with pytest.raises(vkgdr.InvalidArgumentError, match=str(alignment)):
        vkgdr.Memory(gpu, 5, alignment=alignment)


def test_an_alignment_that_the_drivers_do_not_give_is_refused_and_nothing_leaks(gpu, simulated):
    before = simulator.ledger()
    with pytest.raises(vkgdr.InvalidArgumentError, match=str(2**62)):
        vkgdr.Memory(gpu, 5, alignment=2**62)
    assert simulator.ledger() == before
    for alignment in (0, 1, 2, 64):
        assert len(vkgdr.Memory(gpu, 5, alignment=alignment)) == 5


@pytest.mark.parametrize("flags", ["x", 1.0, 0.0, None, b"", []])
def test_flags_that_are_no_integer_are_a_type_error(gpu, flags):
    with pytest.raises(TypeError, match="integer"):
        vkgdr.RawMemory(gpu, 5, flags)


@pytest.mark.parametrize("flags", [1, -1, 2**31, 2**100])
def test_unknown_flags_are_refused(gpu, flags):
    with pytest.raises((vkgdr.InvalidArgumentError, OverflowError), match=f"{flags:#x}"):
        vkgdr.RawMemory(gpu, 5, flags)


# ---- slices, shapes, modes


@pytest.mark.parametrize("index", [0, -1, 1.0, "0", None, ..., (slice(1),), np.int64(0), [0], True])
def test_an_index_that_is_no_slice_is_a_type_error(memory, index):
    with pytest.raises(TypeError):
        memory[index]


@pytest.mark.parametrize("step", [2, -1, 0, 2**70])
def test_a_slice_with_a_step_is_refused(memory, step):
    with pytest.raises(ValueError, match="step"):
        memory[::step]


def test_slices_are_cut_at_the_end_as_pythons_are(memory):
    assert memory[-(10**30) : 10**30].nbytes == SIZE
    assert memory[-5:].nbytes == 5
    assert memory[10:][5:].offset == 15


def test_memory_cannot_be_assigned_to_deleted_from_or_iterated_over(memory):
    with pytest.raises(TypeError):
        memory[0:1] = b"x"
    with pytest.raises(TypeError):
        del memory[0:1]
    with pytest.raises(TypeError):
        iter(memory)
    with pytest.raises(TypeError):
        5 in memory  # noqa: B015


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((SIZE + 1,), "u1"), ((1025,), "f4"), ((2**40, 2**40), "u1"), ((2**63,), "c16"), ((65, 64), "u1")],
)
def test_a_shape_that_does_not_fit_is_refused_with_the_sizes(memory, shape, dtype):
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    for view in (memory.get_host_array, lambda s, d: memory.map(shape=s, dtype=d)):
        with pytest.raises(vkgdr.InvalidArgumentError, match=f"{needed}.*{SIZE}"):
            view(shape, dtype)


@pytest.mark.parametrize("dtype", ["O", [("a", "O")], "V0", "S0", "U0"])
def test_a_data_type_that_cannot_lie_in_memory_is_refused(memory, dtype):
    for view in (memory.get_host_array, lambda s, d: memory.map(shape=s, dtype=d)):
        with pytest.raises(vkgdr.InvalidArgumentError, match="dtype"):
            view((1,), dtype)


@pytest.mark.parametrize("dtype", ["nothing", 5, object()])
def test_a_data_type_that_is_none_is_numpys_error(memory, dtype):
    with pytest.raises(TypeError):
        memory.get_host_array((1,), dtype)


def test_a_data_type_that_does_not_divide_the_memory_is_refused(gpu):
    memory = vkgdr.Memory(gpu, 10)
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"10.*4"):
        memory.get_host_array(dtype="f4")


@pytest.mark.parametrize("order", ["", "A", "K", "c", None, 0, "CF"])
def test_an_unknown_order_is_refused(memory, order):
    for view in (lambda **a: memory.get_host_array((2, 2), **a), lambda **a: memory.map(shape=(2, 2), **a)):
        with pytest.raises((vkgdr.InvalidArgumentError, TypeError), match="order"):
            view(order=order)


@pytest.mark.parametrize("mode", ["", "x", "RW", "wr", None, 0, b"r", "r\0"])
def test_an_unknown_mode_is_refused(memory, mode):
    with pytest.raises((vkgdr.InvalidArgumentError, TypeError), match="mode"):
        memory.map(mode)
    assert memory.map_count == 0


def test_read_only_memory_cannot_be_written(gpu):
    memory = vkgdr.Memory(gpu, 64, readonly=True)
    other = vkgdr.Memory(gpu, 64)
    for use in (
        lambda: memory.memset(0),
        lambda: memory.copy_from_host(b"x"),
        lambda: memory.copy_from_device(other),
        lambda: memory[:5].memset(0),
        lambda: memory.map("rw"),
        lambda: memory.map("discard"),
    ):
        with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
            use()
    assert not memory.map("r").array.flags.writeable


# ---- copies


def both(*numbers):
    """Return a pattern for text with these numbers, in any order."""
    return "".join(rf"(?=.*\b{number}\b)" for number in numbers)


def test_host_bytes_that_do_not_fit_are_refused_with_the_sizes(anything):
    with pytest.raises(vkgdr.InvalidArgumentError, match=both(SIZE + 1, SIZE)):
        anything.copy_from_host(bytes(SIZE + 1))
    with pytest.raises(vkgdr.InvalidArgumentError, match=both(SIZE - 1, SIZE)):
        anything.copy_to_host(bytearray(SIZE - 1))
    with pytest.raises(vkgdr.InvalidArgumentError, match=both(2, 1)):
        anything.copy_from_host(b"ab", offset=SIZE - 1)


@pytest.mark.parametrize("obj", [5, "text", 1.5, object(), [1, 2], {}])
def test_what_is_no_buffer_is_a_type_error(anything, obj):
    with pytest.raises(TypeError):
        anything.copy_from_host(obj)
    with pytest.raises(TypeError):
        anything.copy_to_host(obj)


def test_host_bytes_that_are_not_in_a_row_are_refused(memory):
    for obj in (np.zeros((8, 8))[:, ::2], np.zeros((4, 4)).T, memoryview(b"abcdef")[::2]):
        with pytest.raises(vkgdr.InvalidArgumentError, match="contiguous"):
            memory.copy_from_host(obj)


def test_host_bytes_that_are_read_only_are_no_destination(anything):
    frozen = np.zeros(SIZE, np.uint8)
    frozen.flags.writeable = False
    for obj in (bytes(SIZE), frozen, memoryview(bytearray(SIZE)).toreadonly()):
        with pytest.raises((vkgdr.InvalidArgumentError, TypeError), match=r"writable|read-only|read-write"):
            anything.copy_to_host(obj)


def test_nothing_is_copied_from_nothing(anything):
    anything.copy_from_host(b"")
    anything.copy_from_host(b"", offset=SIZE)
    anything.copy_to_host(bytearray(), offset=SIZE)
    anything.memset(0, offset=SIZE)
    anything.memset(0, nbytes=0)


def test_device_memory_that_does_not_fit_is_refused_with_the_sizes(anything):
    with pytest.raises(vkgdr.InvalidArgumentError, match=both(SIZE + 1, SIZE)):
        anything.copy_from_device(vkgdr.Memory(anything.owner, SIZE + 1))


@pytest.mark.parametrize("obj", [5, "text", b"bytes", None, object(), [1, 2], np.zeros(5)])
def test_what_is_no_device_memory_is_refused(memory, obj):
    with pytest.raises((vkgdr.InvalidArgumentError, TypeError)):
        memory.copy_from_device(obj)


@pytest.mark.parametrize(
    ("to", "source"), [((0, 10), (5, 15)), ((5, 15), (0, 10)), ((0, 10), (0, 10)), ((0, 2), (1, 3))]
)
def test_overlapping_parts_are_not_copied(memory, to, source):
    with pytest.raises(vkgdr.InvalidArgumentError, match="overlap"):
        memory[slice(*to)].copy_from_device(memory[slice(*source)])


@pytest.mark.parametrize("shift", [1, 7, 64, 1000])
def test_overlapping_host_bytes_are_copied_as_if_they_were_saved_first(memory, shift):
    array = np.asarray(memory)
    values = np.arange(SIZE) % 251
    array[:] = values
    memory.copy_from_host(array[shift:])
    assert (array[:-shift] == values[shift:]).all()
    array[:] = values
    memory.copy_from_host(array[:-shift], offset=shift)
    assert (array[shift:] == values[:-shift]).all()
    array[:] = values
    memory.flush()
    memory[:-shift].copy_to_host(array[shift:])
    assert (array[shift:] == values[:-shift]).all()


# ---- maps, handles and descriptors


def test_a_number_that_is_no_handle_is_refused(memory):
    number = memory.handle
    assert vkgdr.RawMemory.from_handle(number) == memory
    for wrong in (0, number + 10**6, 2**64 - 1):
        with pytest.raises(vkgdr.InvalidArgumentError, match=str(wrong)):
            vkgdr.RawMemory.from_handle(wrong)
    memory.free()
    with pytest.raises(vkgdr.InvalidArgumentError, match=str(number)):
        vkgdr.RawMemory.from_handle(number)
    for wrong in ("x", 1.5, None):
        with pytest.raises(TypeError):
            vkgdr.RawMemory.from_handle(wrong)
    for wrong in (-1, 2**64):
        with pytest.raises((OverflowError, vkgdr.InvalidArgumentError), match=str(wrong)):
            vkgdr.RawMemory.from_handle(wrong)


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1), (1, -5, 1)])
def test_rows_of_nothing_are_refused(gpu, arguments):
    with pytest.raises(vkgdr.InvalidArgumentError):
        vkgdr.Memory.pitched(gpu, *arguments)


def test_rows_that_no_memory_has_room_for_are_refused(gpu):
    with pytest.raises((OverflowError, MemoryError)):
        vkgdr.Memory.pitched(gpu, 2**40, 2**40, 8)
    with pytest.raises(TypeError):
        vkgdr.Memory.pitched(gpu, 1.5, 2, 3)


def test_a_descriptor_that_is_none_is_refused(gpu, simulated):
    before = simulator.ledger()
    for descriptor in (-1, -100, 10**6, 2**31 - 1):
        with pytest.raises((vkgdr.VkgdrError, ValueError), match=str(descriptor)):
            vkgdr.Memory.import_fd(gpu, descriptor, 5)
    for descriptor in ("x", None, 1.5):
        with pytest.raises(TypeError):
            vkgdr.Memory.import_fd(gpu, descriptor, 5)
    with pytest.raises(OverflowError):
        vkgdr.Memory.import_fd(gpu, 2**31, 5)
    assert simulator.ledger() == before


# ---- read-only attributes


def test_facts_cannot_be_set_or_deleted(anything):
    for name, is_method in members(anything):
        if is_method or name == "name":
            continue
        with pytest.raises(AttributeError):
            setattr(anything, name, 5)
        with pytest.raises(AttributeError):
            delattr(anything, name)


def test_the_native_classes_are_not_made_by_hand():
    from vkgdr import _vkgdr

    for name in ("MemoryView", "Handle", "Event"):
        with pytest.raises(TypeError):
            getattr(_vkgdr, name)()
