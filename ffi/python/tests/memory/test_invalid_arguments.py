"""Invalid arguments: sizes, kinds, slices, shapes, buffers, overlaps, and what is no number in its range."""

import math
from functools import partial

import numpy as np
import pytest
import vkgdr
import vkgdr.compat.dpctl
from everything import SIZE, members, refused
from neighbours import Number
from vkgdr.arrays import device_array


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, SIZE)


ALLOCATES = {
    "Memory": vkgdr.Memory,
    "RawMemory": vkgdr.RawMemory,
    "Buffer": lambda gpu, size: vkgdr.compat.rmm.Buffer(size=size, owner=gpu),
    "MemoryShared": lambda gpu, size: vkgdr.compat.dpctl.MemoryShared(size, owner=gpu),
    "MemoryHost": lambda gpu, size: vkgdr.compat.dpctl.MemoryHost(size, owner=gpu),
    "MemoryDevice": lambda gpu, size: vkgdr.compat.dpctl.MemoryDevice(size, owner=gpu),
}


@pytest.mark.parametrize("name", ALLOCATES)
def test_a_size_that_cannot_be_is_refused(gpu, name):
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


@pytest.mark.parametrize("make", [vkgdr.Memory, vkgdr.RawMemory])
def test_owners_sizes_and_kinds_that_there_are_not_are_refused(gpu, make):
    with pytest.raises(vkgdr.InvalidArgumentError, match="0 bytes"):
        make(gpu, 0)
    for owner in (None, 0, "x", object(), vkgdr.Vkgdr):
        with pytest.raises(TypeError, match="Vkgdr"):
            make(owner, 5)
    methods = (gpu.supports, gpu.memory_info, gpu.memory_type_of)
    for kind in ("", "Mapped", "shared", "x" * 1000, "\0", "mapped "):
        for use in (lambda kind: make(gpu, 5, kind=kind), *methods):
            refused(partial(use, kind), vkgdr.InvalidArgumentError, "mapped.*host.*device", f"the kind {kind!r}")


FIRST_ERRORS = {
    "Memory takes a size in bytes; vkgdr.arrays.mapped_array": [
        lambda gpu: vkgdr.Memory(gpu, (10, 10)),
        lambda gpu: vkgdr.Memory(gpu, 10, np.float32),
        lambda gpu: vkgdr.Memory(gpu, 10, dtype=np.float32),
    ],
    "Memory takes an owner and a size; the rest are keywords, as in kind='host'": [
        lambda gpu: vkgdr.Memory(gpu, 10, "host"),
        lambda gpu: vkgdr.Memory(gpu, 10, 0),
    ],
    "owner must be a vkgdr.Vkgdr, not int: vkgdr.Vkgdr.open_primary_context": [lambda _: vkgdr.Memory(4096)],
    "device must be an integer, CUDA's number of the GPU, such as 0, not 'cuda:0'": [
        lambda _: vkgdr.Vkgdr("cuda:0"),
        lambda _: vkgdr.Vkgdr.open_primary_context("cuda:0"),
    ],
}


@pytest.mark.parametrize("text", FIRST_ERRORS)
def test_the_first_errors_of_a_beginner_say_what_to_write(gpu, text):
    for attempt in FIRST_ERRORS[text]:
        with pytest.raises(TypeError, match=text):
            attempt(gpu)


def test_a_kind_that_is_no_string_is_a_type_error(gpu):
    text = "kind must be 'mapped', 'host' or 'device', or a sequence of these"
    for kind in (None, 0, b"mapped", object(), [0], ["mapped", None]):
        refused(partial(vkgdr.Memory, gpu, 5, kind=kind), TypeError, text, f"the kind {kind!r}")
        refused(partial(gpu.memory_info, kind), TypeError, "", f"the kind {kind!r}")


def test_an_alignment_that_the_drivers_do_not_give_is_refused(gpu):
    for alignment in (3, 65, 2**64 - 1, 2**62):
        with pytest.raises(vkgdr.InvalidArgumentError, match=str(alignment)):
            vkgdr.Memory(gpu, 5, alignment=alignment)
    for alignment in (0, 1, 2, 64):
        assert len(vkgdr.Memory(gpu, 5, alignment=alignment)) == 5


def test_flags_other_than_0_are_refused(gpu):
    for flags in ("x", 1.0, 0.0, None, b"", []):
        refused(partial(vkgdr.RawMemory, gpu, 5, flags), TypeError, "integer", f"the flags {flags!r}")
    error = (vkgdr.InvalidArgumentError, OverflowError)
    for flags in (1, -1, 2**31, 2**100):
        refused(partial(vkgdr.RawMemory, gpu, 5, flags), error, f"{flags:#x}", f"the flags {flags}")


def test_memory_has_slices_without_a_step_and_no_items(memory):
    for index in (0, -1, 1.0, "0", None, ..., (slice(1),), np.int64(0), [0], True):
        refused(partial(memory.__getitem__, index), TypeError, "", f"the index {index!r}")
    for step in (2, -1, 0, 2**70):
        refused(partial(memory.__getitem__, slice(None, None, step)), ValueError, "step", f"the step {step}")
    with pytest.raises(TypeError):
        memory[0:1] = b"x"
    with pytest.raises(TypeError):
        del memory[0:1]
    with pytest.raises(TypeError):
        iter(memory)
    with pytest.raises(TypeError):
        5 in memory  # noqa: B015


def test_slices_are_cut_at_the_end_as_pythons_are(memory):
    assert memory[-(10**30) : 10**30].nbytes == SIZE
    assert memory[-5:].nbytes == 5
    assert memory[10:][5:].offset == 15


LAYOUTS = {
    "too many bytes": ({"shape": (SIZE + 1,)}, f"{SIZE + 1}.*{SIZE}"),
    "too many elements": ({"shape": (1025,), "dtype": "f4"}, f"4100.*{SIZE}"),
    "too many rows": ({"shape": (65, 64)}, f"4160.*{SIZE}"),
    "an overflow of two extents": ({"shape": (2**40, 2**40)}, f"{2**40}.*address space"),
    "an overflow of the element": ({"shape": (2**63,), "dtype": "c16"}, f"{2**63}.*address space"),
    "objects": ({"shape": (1,), "dtype": "O"}, "dtype"),
    "a field of objects": ({"shape": (1,), "dtype": [("a", "O")]}, "dtype"),
    "elements without bytes": ({"shape": (1,), "dtype": "V0"}, "dtype"),
    "texts without bytes": ({"shape": (1,), "dtype": "U0"}, "dtype"),
    "no type": ({"dtype": "nothing"}, "nothing"),
    "a number for a type": ({"dtype": 5}, "data type"),
    "bytes that the type does not divide": ({"dtype": "V10"}, f"{SIZE}.*10"),
    **{f"the order {order!r}": ({"order": order}, "order") for order in ("", "A", "K", "c", None, 0, "CF")},
}


@pytest.mark.parametrize(("layout", "text"), LAYOUTS.values(), ids=LAYOUTS)
def test_an_array_that_cannot_be_is_refused(memory, layout, text):
    for view in (memory.get_host_array, memory.map):
        with pytest.raises((vkgdr.InvalidArgumentError, TypeError), match=text):
            view(**layout)
    assert memory.map_count == memory.pending_views == 0


def test_an_unknown_mode_is_refused(memory):
    for mode in ("", "x", "RW", "wr", None, 0, b"r", "r\0"):
        refused(partial(memory.map, mode), (vkgdr.InvalidArgumentError, TypeError), "mode", f"the mode {mode!r}")
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


def test_bytes_that_do_not_fit_are_refused_with_the_sizes(anything):
    for copy, larger in (
        (anything.copy_from_host, bytes(SIZE + 1)),
        (anything.copy_from_device, vkgdr.Memory(anything.owner, SIZE + 1)),
    ):
        # In dpctl's or RMM's words.
        with pytest.raises(
            vkgdr.InvalidArgumentError, match=r"(Source object|Argument `ary`) is too large.*4097.*4096"
        ):
            copy(larger)
    words = r"(Destination object|Argument `ary`) is too small.*4096.*4095"
    with pytest.raises(vkgdr.InvalidArgumentError, match=words):
        anything.copy_to_host(bytearray(SIZE - 1))
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"\b2\b.*\b1\b"):
        anything.copy_from_host(b"ab", offset=SIZE - 1)
    # Nothing fits everywhere.
    anything.copy_from_host(b"")
    anything.copy_from_host(b"", offset=SIZE)
    anything.copy_to_host(bytearray(), offset=SIZE)
    anything.memset(0, offset=SIZE)
    anything.memset(0, nbytes=0)


def test_what_is_no_buffer_is_a_type_error(anything):
    for obj in (5, "text", 1.5, object(), [1, 2], {}):
        for copy in (anything.copy_from_host, anything.copy_to_host):
            refused(partial(copy, obj), TypeError, "", f"{copy.__name__} of {obj!r}")
    frozen = np.zeros(SIZE, np.uint8)
    frozen.flags.writeable = False
    for obj in (bytes(SIZE), frozen, memoryview(bytearray(SIZE)).toreadonly()):
        with pytest.raises((vkgdr.InvalidArgumentError, TypeError), match=r"writable|read-only|read-write"):
            anything.copy_to_host(obj)


def test_references_to_python_objects_are_no_bytes(anything):
    """NumPy gives them as a buffer: a copy over them would crash the interpreter."""
    for array in (np.empty(8, object), np.empty(2, [("a", object), ("b", "u1")])):
        for copy in (anything.copy_from_host, anything.copy_to_host):
            for obj in (array, memoryview(array)):
                refused(partial(copy, obj), vkgdr.InvalidArgumentError, "references", f"{copy.__name__} of {obj!r}")


def test_host_bytes_that_are_not_in_a_row_are_refused(memory):
    for obj in (np.zeros((8, 8))[:, ::2], np.zeros((4, 4)).T, memoryview(b"abcdef")[::2]):
        with pytest.raises(vkgdr.InvalidArgumentError, match="contiguous"):
            memory.copy_from_host(obj)


def test_what_is_no_device_memory_is_refused(memory):
    for obj in (5, "text", b"bytes", None, object(), [1, 2], np.zeros(5)):
        refused(partial(memory.copy_from_device, obj), (vkgdr.InvalidArgumentError, TypeError), "", f"{obj!r}")


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


def test_a_number_that_is_no_handle_is_refused(memory):
    number = memory.handle
    assert vkgdr.RawMemory.from_handle(number) == memory
    memory.free()
    error = (vkgdr.InvalidArgumentError, OverflowError)
    for wrong in (number, 0, number + 10**6, 2**64 - 1, -1, 2**64):
        refused(partial(vkgdr.RawMemory.from_handle, wrong), error, str(wrong), f"the handle {wrong}")
    for wrong in ("x", 1.5, None):
        refused(partial(vkgdr.RawMemory.from_handle, wrong), TypeError, "", f"the handle {wrong!r}")


def test_rows_of_nothing_and_rows_that_no_memory_has_room_for_are_refused(gpu):
    for rows in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1), (1, -5, 1)):
        refused(partial(vkgdr.Memory.pitched, gpu, *rows), vkgdr.InvalidArgumentError, "", f"the rows {rows}")
    with pytest.raises((OverflowError, MemoryError)):
        vkgdr.Memory.pitched(gpu, 2**40, 2**40, 8)
    with pytest.raises(TypeError):
        vkgdr.Memory.pitched(gpu, 1.5, 2, 3)


def test_facts_cannot_be_set_or_deleted(anything):
    for name, is_method in members(anything):
        if is_method or name == "name":
            continue
        with pytest.raises(AttributeError):
            setattr(anything, name, 5)
        with pytest.raises(AttributeError):
            delattr(anything, name)


def test_the_native_classes_are_not_made_by_hand():
    with pytest.raises(TypeError):
        vkgdr.stream.Event()


# ---- errors that are raised while another one is handled have it as their context, as those of Python code -----------


ERRORS = {
    "no size": lambda gpu, _memory: vkgdr.Memory(gpu, 0),
    "too large": lambda gpu, _memory: vkgdr.Memory(gpu, 1 << 50),
    "no size_t": lambda gpu, _memory: vkgdr.Memory(gpu, -1),
    "no number": lambda gpu, _memory: vkgdr.Memory(gpu, "x"),
    "no kind": lambda gpu, _memory: vkgdr.Memory(gpu, 8, kind="x"),
    "no device": lambda _gpu, _memory: vkgdr.Vkgdr.open_primary_context(99),
    "out of range": lambda _gpu, memory: memory.flush(9),
    "no stream": lambda _gpu, memory: memory.__dlpack__(stream=0),
    "no host view": lambda gpu, _memory: memoryview(vkgdr.Memory(gpu, 8, kind="device")),
    "no tensor": lambda _gpu, _memory: vkgdr.Memory.from_capsule(object()),
    "freed": lambda _gpu, memory: memory.free() or memory.device_ptr,
}


@pytest.mark.parametrize("fail", ERRORS.values(), ids=ERRORS)
def test_an_error_has_the_one_that_is_handled_as_its_context(gpu, fail):
    memory, first = vkgdr.Memory(gpu, 8), KeyError("the first")
    try:
        raise first
    except KeyError:
        with pytest.raises((vkgdr.VkgdrError, TypeError, ValueError, OverflowError)) as caught:
            fail(gpu, memory)
    assert caught.value.__context__ is first
    assert caught.value.__cause__ is None


def test_an_error_of_its_own_has_no_context(gpu):
    with pytest.raises(vkgdr.InvalidArgumentError) as caught:
        vkgdr.Memory(gpu, 0)
    assert caught.value.__context__ is None


def test_an_error_that_a_callback_raises_keeps_its_own_context(gpu):
    inner = KeyError("the callback's")

    def fail(_queue):
        try:
            raise inner
        except KeyError:
            raise IndexError("the second")  # noqa: B904 - its context is tested

    try:
        raise ValueError("the first")
    except ValueError:
        with pytest.raises(IndexError) as caught:
            gpu.with_vulkan_queue(fail)
    assert caught.value.__context__ is inner


TAKES_NUMBERS = {
    "flush offset": lambda m, n: m.flush(n),
    "flush size": lambda m, n: m.flush(0, n),
    "invalidate offset": lambda m, n: m.invalidate(n),
    "invalidate size": lambda m, n: m.invalidate(0, n),
    "get_sub_region origin": lambda m, n: m.get_sub_region(n, 1),
    "get_sub_region size": lambda m, n: m.get_sub_region(0, n),
    "get_host_array shape": lambda m, n: m.get_host_array((2, n)),
    "get_host_array offset": lambda m, n: m.get_host_array(offset=n),
    "map offset": lambda m, n: m.map(offset=n),
    "map size": lambda m, n: m.map(size=n),
    "map shape": lambda m, n: m.map(shape=(n,)),
    "copy_to_host offset": lambda m, n: m.copy_to_host(bytearray(SIZE), offset=n),
    "copy_from_host offset": lambda m, n: m.copy_from_host(b"x", offset=n),
    "memset value": lambda m, n: m.memset(n),
    "memset offset": lambda m, n: m.memset(0, offset=n),
    "memset nbytes": lambda m, n: m.memset(0, nbytes=n),
}

# Device memory has no host view.
CALLS = [(call, "mapped") for call in TAKES_NUMBERS]
CALLS += [(call, "device") for call in TAKES_NUMBERS if call.split()[0] not in ("map", "get_host_array")]

# None means "all" there, and is the default.
NONE_IS_ALL = {"flush size", "invalidate size", "map size", "memset nbytes"}

NO_NUMBERS = ["1", b"1", 1.0, None, [], {}, object(), math.nan, 1j, np.float64(1), np.array([1, 2]), slice(1)]
NEGATIVE = [-1, -(2**31), -(2**63), -(2**64), -(2**100), np.int64(-1)]
HUGE = [SIZE + 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**100, np.uint64(2**64 - 1)]


@pytest.mark.parametrize(("call", "kind"), CALLS)
def test_what_is_no_number_or_out_of_range_is_refused(gpu, call, kind):
    memory = vkgdr.Memory(gpu, SIZE, kind=kind)
    for value in NO_NUMBERS:
        if value is not None or call not in NONE_IS_ALL:
            # The message must not name the operator that failed: the argument is wrong.
            refused(partial(TAKES_NUMBERS[call], memory, value), TypeError, "^(?!.*<=)", f"{call} of {value!r}")
    for value in NEGATIVE + HUGE:
        error = (OverflowError, vkgdr.InvalidArgumentError)
        refused(partial(TAKES_NUMBERS[call], memory, value), error, str(int(value)), f"{call} of {value!r}")
    assert memory.pending_views == 0


@pytest.mark.parametrize("call", TAKES_NUMBERS)
def test_every_kind_of_integer_is_a_number_and_its_index_may_raise_or_free_the_memory(gpu, call):
    class Bad(Number):
        def __index__(self):
            if self._value is None:
                raise KeyError("mine")
            memory.free(force=True)
            return self._value

    memory = vkgdr.Memory(gpu, SIZE)
    for value in (np.int8(2), np.uint64(2), Number(2), True):
        TAKES_NUMBERS[call](memory, value)
    with pytest.raises(KeyError, match="mine"):
        TAKES_NUMBERS[call](memory, Bad(None))
    with pytest.raises(vkgdr.FreedError):
        TAKES_NUMBERS[call](memory, Bad(1))


class Zero(int):
    """An int whose arithmetic gives 0."""

    def __mul__(self, other):
        return 0

    __rmul__ = __sub__ = __rsub__ = __add__ = __radd__ = __mul__


@pytest.mark.parametrize("number", [np.uint8, np.int32, np.uint64, Zero])
def test_a_map_checks_shape_and_strides_in_whole_numbers(gpu, number):
    memory = vkgdr.Memory(gpu, SIZE)
    # 2 * 200 does not fit into NumPy's uint8, 2 * (1 << 30) not into its int32.
    stride = 200 if number is np.uint8 else 1 << 30
    for shape, strides in ((3, (stride,)), ((2, 3), (1, stride)), ((number(100), number(100)), None)):
        strides = None if strides is None else tuple(map(number, strides))
        with pytest.raises(vkgdr.InvalidArgumentError, match=r"are out of range|there are 256"):
            memory[:256].map(shape=shape, strides=strides)
    assert memory.map_count == 0
    assert memory.map(shape=(3,), strides=(number(200),)).array.strides == (200,)


@pytest.mark.parametrize("number", [np.uint8, np.int32, Zero])
def test_the_sizes_of_strided_arrays_and_of_rows_are_whole_numbers(gpu, number):
    assert device_array((number(3),), "u1", strides=(number(100),), owner=gpu).alloc_size == 201
    assert device_array((number(100), number(100)), "u4", order="F", owner=gpu).strides == (4, 400)
    with pytest.raises(vkgdr.InvalidArgumentError, match="negative extent"):
        device_array((number(3), -3), "u1", strides=(1, 100), owner=gpu)
    memory, pitch = vkgdr.Memory.pitched(gpu, number(200), number(100), number(4))
    assert (len(memory), pitch, type(pitch)) == (100 * 1024, 1024, int)


def test_a_stream_of_another_context_is_named_as_the_error_also_without_a_current_one(run_python, simulated):
    code = """
        import vkgdr

        one, two = (vkgdr.Vkgdr.open_primary_context(device) for device in (0, 1))
        memory, other = vkgdr.Memory(two, 64), vkgdr.stream.stream()
        for use in (memory.map, lambda stream: memory.copy_from_host(b"abc", stream=stream)):
            try:
                use(stream=other)
            except vkgdr.VkgdrError as error:
                assert "another CUDA context" in str(error), error
            else:
                raise AssertionError("it worked")
    """
    run_python(code, VKGDR_TEST_PROFILE="two-gpus")
