"""``vkgdr.compat.pyopencl.copy``: copies of ranges and of rectangles, their errors and their order."""

import gc
import threading
from functools import partial
from unittest import mock

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE
from neighbours import KINDS, BorrowedBytes, ByDlpack, Pinned, device_bytes, wait_at
from vkgdr.compat import pyopencl as ops

DATA = bytes(range(256)) * (SIZE // 256)


@pytest.fixture
def mapped(gpu):
    return vkgdr.Memory(gpu, SIZE)


@pytest.mark.parametrize("is_blocking", [True, False])
def test_bytes_go_to_memory_and_back(cuda, memory, is_blocking):
    ops.copy(memory, DATA, is_blocking=is_blocking).synchronize()
    assert device_bytes(cuda, memory) == DATA
    back = bytearray(SIZE)
    ops.copy(back, memory, is_blocking=is_blocking).synchronize()
    assert back == DATA
    for kind in KINDS:
        other = vkgdr.Memory(memory.owner, SIZE, kind=kind)
        event = ops.copy(other, memory, is_blocking=is_blocking)
        assert event.is_complete or not is_blocking
        event.synchronize()
        assert device_bytes(cuda, other) == DATA


def test_the_host_the_shorter_memory_or_byte_count_says_how_much_is_copied(gpu, memory):
    ops.fill(memory, b"\0", is_blocking=True)
    ops.copy(memory, b"abcdef", src_offset=1, dst_offset=10)
    assert memory.tobytes()[8:18] == b"\0\0bcdef\0\0\0"
    back = bytearray(b"........")
    ops.copy(back, memory, src_offset=10, dst_offset=2)
    assert back == b"..bcdef\0"
    small = vkgdr.Memory(gpu, 8)
    ops.copy(small, b"12345678")
    ops.fill(memory, b".", is_blocking=True)
    ops.copy(memory, small, src_offset=6, dst_offset=1)
    assert memory.tobytes()[:4] == b".78."
    ops.copy(small, memory, dst_offset=7)
    assert small.tobytes() == b"1234567."
    for stream in (None, 0):
        ops.fill(memory, b".", is_blocking=True)
        ops.copy(memory, b"abcdef", byte_count=2, src_offset=3, dst_offset=4, stream=stream)
        assert memory.tobytes()[:8] == b"....de.."
        back = bytearray(6)
        ops.copy(back, memory, byte_count=2, src_offset=4, dst_offset=1, stream=stream)
        assert back == b"\0de\0\0\0"


def test_copies_of_nothing_are_allowed(memory):
    ops.copy(memory, DATA)
    assert ops.copy(memory, b"").is_complete
    assert ops.copy(bytearray(), memory, src_offset=SIZE).is_complete
    ops.copy(memory, memory, byte_count=0, is_blocking=False).synchronize()
    ops.copy(memory, b"abc", byte_count=0, dst_offset=SIZE, src_offset=3)
    assert memory.tobytes() == DATA


def test_regions_and_host_arrays_of_any_type_are_sides(cuda, memory):
    ops.fill(memory, b"\0", is_blocking=True)
    region = memory[100:200]
    numbers = np.arange(6, dtype=">f4").reshape(2, 3)
    ops.copy(region, numbers, dst_offset=4)
    assert device_bytes(cuda, memory)[104:128] == numbers.tobytes()
    back = np.zeros((3, 2), np.complex64)[:, :1].copy()
    ops.copy(back, region, src_offset=4)
    assert back.tobytes() == numbers.tobytes()
    part = np.zeros(8, [("a", "u2"), ("b", "f8")])
    ops.copy(part, region, byte_count=5, src_offset=4, dst_offset=3)
    assert part.tobytes()[3:8] == numbers.tobytes()[:5]


def test_a_cuda_array_of_another_library_is_a_side(cuda, memory, foreign):
    pointer = foreign.__cuda_array_interface__["data"][0]
    ops.copy(foreign, b"0123456789abcdef")
    assert cuda.read(pointer, 16) == b"0123456789abcdef"
    ops.copy(memory, foreign, src_offset=10)
    assert memory.tobytes()[:6] == b"abcdef"
    back = bytearray(16)
    ops.copy(back, foreign, is_blocking=False).synchronize()
    assert back == b"0123456789abcdef"


def test_a_dlpack_tensor_is_a_side(memory):
    ops.copy(ByDlpack(memory), DATA)
    assert memory.tobytes() == DATA
    back = bytearray(SIZE)
    ops.copy(back, ByDlpack(memory))
    assert back == DATA


def test_rectangles_are_copied_within_one_context(cuda, gpu, context):
    memory = vkgdr.Memory(gpu, SIZE)
    other = cuda.create_context()
    elsewhere = vkgdr.Memory(gpu, SIZE)
    assert elsewhere.context != memory.context
    with pytest.raises(vkgdr.InvalidArgumentError, match="one CUDA context"):
        ops.copy(elsewhere, memory, region=(8, 2))
    elsewhere.free()
    other.destroy()


def test_memory_of_another_context_waits_for_a_copy_when_it_goes(cuda, gpu, context):
    a = vkgdr.Memory(gpu, SIZE, kind="device")
    ops.copy(a, DATA)
    other = cuda.create_context()
    try:
        b = vkgdr.Memory(gpu, SIZE, kind="device")
        with cuda.stream() as stream, cuda.hold(stream) as gate:
            event = ops.copy(b, a, stream=stream, is_blocking=False)
            before = gpu.stats()["live_allocations"]
            del a
            assert gpu.stats()["live_allocations"] == before, "freed while the copy was pending"
            gate.open()
            event.synchronize()
        assert b.tobytes() == DATA
        assert gpu.stats()["live_allocations"] == before - 1
        # Before their context.
        del b, event
    finally:
        other.destroy()


MEMORY = object()
# Both sides, keywords, the error and its text.
REFUSED = [
    (bytearray(4), b"abcd", {}, TypeError, "both sides are host memory, bytes to bytearray"),
    (MEMORY, 5, {}, TypeError, "the source must be device memory or a bytes-like object, not int"),
    ([1], MEMORY, {}, TypeError, "the destination must be .* not list"),
    (MEMORY, DATA, {"src_origin": (0, 0)}, TypeError, "region"),
    (MEMORY, DATA, {"dst_pitches": (8,)}, TypeError, "region"),
    (MEMORY, DATA, {"stream": "default"}, TypeError, "not a CUDA stream"),
    (MEMORY, bytes(4097), {}, vkgdr.OutOfRangeError, "4097 bytes at 0 .* 4096 bytes of the destination"),
    (bytearray(4), MEMORY, {"src_offset": 4093}, vkgdr.OutOfRangeError, "4 bytes at 4093 .* 4096 bytes of the source"),
    (MEMORY, bytes(4), {"src_offset": 9}, vkgdr.OutOfRangeError, "0 bytes at 9 .* 4 bytes of the source"),
    (bytearray(4), MEMORY, {"byte_count": 5}, vkgdr.OutOfRangeError, "5 bytes at 0 .* 4 bytes of the destination"),
]
for name in ("byte_count", "src_offset", "dst_offset"):
    REFUSED.append((MEMORY, DATA, {"region": (2, 2), name: 4}, TypeError, "not byte_count"))
    REFUSED.append((MEMORY, DATA, {name: 1.5}, TypeError, "float"))
    for value in (-1, 1 << 64, 10**30):
        REFUSED.append((MEMORY, DATA, {name: value}, vkgdr.OutOfRangeError, f"{name} must be .* not {value}"))


@pytest.mark.parametrize(("dest", "src", "arguments", "error", "text"), REFUSED)
def test_what_cannot_be_copied_is_refused_with_the_numbers(mapped, dest, src, arguments, error, text):
    dest, src = (mapped if side is MEMORY else side for side in (dest, src))
    for stream in ({}, {"stream": 0}):
        with pytest.raises(error, match=text):
            ops.copy(dest, src, **stream | arguments)


def test_overlapping_ranges_are_refused_and_touching_ones_are_not(mapped):
    ops.copy(mapped, DATA)
    with pytest.raises(vkgdr.InvalidArgumentError, match=r"from byte 0 on, .* from byte 99 on, overlap"):
        ops.copy(mapped, mapped, byte_count=100, dst_offset=99)
    with pytest.raises(vkgdr.InvalidArgumentError, match="overlap"):
        ops.copy(mapped[50:150], mapped[149:249])
    assert mapped.tobytes() == DATA
    ops.copy(mapped, mapped, byte_count=100, dst_offset=100)
    assert mapped.tobytes()[:200] == DATA[:100] * 2


def test_a_read_only_destination_is_refused(gpu, foreign):
    readonly = vkgdr.Memory(gpu, 16, readonly=True)
    interface = foreign.__cuda_array_interface__
    foreign_readonly = BorrowedBytes(interface["data"][0], 16, readonly=True)
    for destination in (readonly, foreign_readonly):
        for stream in (None, 0):
            with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
                ops.copy(destination, bytes(16), stream=stream)
    with pytest.raises(vkgdr.InvalidArgumentError, match="writable"):
        ops.copy(bytes(16), readonly)
    with pytest.raises(vkgdr.InvalidArgumentError, match="read-only"):
        ops.fill(readonly, b"a")
    ops.copy(bytearray(16), readonly)


def test_a_failure_of_the_driver_is_reported(mapped, simulated):
    with simulator.fail("cuMemcpyHtoDAsync", 1, 999), pytest.raises(vkgdr.VkgdrError, match="CUDA_ERROR_UNKNOWN"):
        ops.copy(mapped, DATA, stream=0)


# ---- order: streams and events, kept objects, and the choice of CPU or CUDA ------------------------------------------


def fill_and_change(pattern, to, _source, _host, **order):
    """Fill with a pattern that is changed at once."""
    changed = bytearray(pattern)
    event = ops.fill(to, changed, **order)
    changed[:] = b"?" * len(pattern)
    gc.collect()
    return event


def copy_rows(to, source, _host, **order):
    return ops.copy(to, source, region=(64, SIZE // 128), src_pitches=(128,), is_blocking=False, **order)


# What does not block, and what the memory contains after it.
ENQUEUED = {
    "a copy of host bytes": (lambda to, _, host, **order: ops.copy(to, host, is_blocking=False, **order), DATA),
    "a copy of memory": (lambda to, source, _, **order: ops.copy(to, source, is_blocking=False, **order), DATA),
    "a rectangle": (copy_rows, (bytes(range(64)) + bytes(range(128, 192))) * (SIZE // 256)),
    **{
        f"a fill by {len(pattern)} bytes": (partial(fill_and_change, pattern), pattern * (SIZE // len(pattern)))
        for pattern in (b"a", b"abcd", b"abcdefgh")
    },
}


@pytest.mark.parametrize("after", ["its stream", "the bound stream", "an event"])
@pytest.mark.parametrize(("enqueue", "contents"), ENQUEUED.values(), ids=ENQUEUED)
def test_what_does_not_block_comes_after_its_stream_or_event(cuda, gpu, memory, after, enqueue, contents):
    source, held = (vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(2))
    ops.copy(source, DATA)
    ops.fill(memory, b"\0", is_blocking=True)
    with Pinned(cuda, SIZE) as pinned, cuda.stream() as stream, cuda.stream() as other, cuda.hold(stream) as gate:
        pinned.bytes[:] = DATA
        order = {}
        if after == "its stream":
            order = {"stream": stream}
        elif after == "an event":
            order = {"stream": other, "wait_for": [ops.fill(held, b"1", stream=stream)]}
        else:
            memory.bind_to_stream(stream)
        event = enqueue(memory, source, pinned.bytes, **order)
        assert not event.is_complete
        assert cuda.is_done(0), "the default stream has nothing to do with it"
        assert device_bytes(cuda, memory) == bytes(SIZE)
        gate.open()
        event.synchronize()
        assert event.is_complete
        assert device_bytes(cuda, memory) == contents.ljust(SIZE, b"\0")
        memory.unbind_stream()


def test_the_stream_that_the_source_is_bound_to_copies_where_the_destination_has_none(cuda, gpu, memory):
    with cuda.stream() as stream:
        source = vkgdr.Memory(gpu, SIZE, kind="device", stream=stream)
        with cuda.hold(stream):
            assert not ops.copy(memory, source, is_blocking=False).is_complete
            assert cuda.is_done(0), "the default stream has nothing to do with it"
        source.unbind_stream()


def test_no_stream_waits_for_itself(cuda, gpu, simulated):
    a, b = (vkgdr.Memory(gpu, SIZE, kind="device") for _ in range(2))
    for handle, name in ((0, 1), (0, 0)):
        a.bind_to_stream(handle)
        before = simulator.calls("cuStreamWaitEvent")
        ops.copy(b, a, stream=name)
        ops.copy(b, a)
        assert simulator.calls("cuStreamWaitEvent") == before
    with cuda.stream() as stream:
        ops.copy(b, a, stream=stream)
        assert simulator.calls("cuStreamWaitEvent") == before + 1
        a.unbind_stream()
        a.bind_to_stream(stream)
        ops.copy(b, a)
        assert simulator.calls("cuStreamWaitEvent") == before + 1
        a.unbind_stream()


def test_the_cpu_waits_for_the_stream_that_an_interface_names(cuda, gpu):
    memory = vkgdr.Memory(gpu, SIZE, kind="host")
    back = bytearray(SIZE)
    with cuda.stream() as stream, cuda.hold(stream) as gate:
        cuda.fill(memory.device_ptr, 8, SIZE, stream)
        wait_at(gate, lambda: ops.copy(back, BorrowedBytes(memory.device_ptr, SIZE, stream)), cuda.current())
        assert back == b"\x08" * SIZE


def test_a_copy_whose_event_fails_has_ended_when_the_error_comes(cuda, gpu, simulated):
    memory = vkgdr.Memory(gpu, SIZE)
    with Pinned(cuda, SIZE) as pinned, cuda.stream() as stream, cuda.hold(stream) as gate:
        pinned.bytes[:] = DATA
        waits = simulator.calls("cuStreamSynchronize")
        returned = threading.Event()

        def open_once_it_is_waited_for():
            while simulator.calls("cuStreamSynchronize") == waits and not returned.wait(0.001):
                pass
            if not returned.is_set():
                gate.open()

        thread = threading.Thread(target=open_once_it_is_waited_for)
        thread.start()
        with simulator.fail("cuEventRecord", 1, 999), pytest.raises(vkgdr.VkgdrError, match="cuEventRecord"):
            ops.copy(memory, pinned.bytes, stream=stream, is_blocking=False)
        returned.set()
        thread.join()
        assert cuda.is_done(stream), "the host bytes were let go of while the copy was pending"
    assert memory.tobytes() == DATA


def test_events_of_other_libraries_are_waited_for(gpu, memory):
    event = mock.Mock(spec=["synchronize"])
    ops.copy(memory, DATA, wait_for=[event])
    ops.copy(memory, DATA, wait_for=iter([event]), is_blocking=False).synchronize()
    for is_blocking in (True, False):
        with pytest.raises(TypeError, match="1 is not an event"):
            ops.copy(memory, DATA, wait_for=[1], is_blocking=is_blocking)
    ops.fill(memory, b"a", wait_for=(event,)).synchronize()
    ops.fill(memory, b"abcdefgh", wait_for=(event,), is_blocking=True)
    assert event.synchronize.call_count == 4
    if memory.kind != "device":
        ops.map(memory, "r", 0, 4, "u1", wait_for=[event])
        array, _ = ops.map(memory, "r", 0, 4, "u1", wait_for=[event], is_blocking=False)
        array.base.release(wait_for=[event])
        assert event.synchronize.call_count == 7
    event.reset_mock()
    ops.migrate(memory, "device", wait_for=[event])
    assert event.synchronize.call_count == 1


def test_a_blocking_copy_comes_after_a_fill_on_the_same_default_stream(cuda, memory):
    legacy = 0
    back = bytearray(SIZE)
    with cuda.hold(legacy) as gate:
        ops.fill(memory, b"\3")
        wait_at(gate, lambda: ops.copy(back, memory))
    assert back == b"\3" * SIZE


def test_a_host_copy_without_a_stream_is_made_by_the_cpu(gpu, simulated):
    functions = ("cuMemcpyHtoD", "cuMemcpyHtoDAsync", "cuMemcpyDtoH", "cuMemcpyDtoHAsync")

    def copies():
        return sum(simulator.calls(function) for function in functions)

    for kind, by_cuda in (("mapped", 0), ("host", 0), ("device", 2)):
        memory = vkgdr.Memory(gpu, SIZE, kind=kind)
        before = copies()
        ops.copy(memory, DATA)
        ops.copy(bytearray(SIZE), memory)
        assert copies() == before + by_cuda, kind


def map_and_drop(memory, _device):
    array, _ = ops.map(memory, "rw", 0, 16, "u1")
    view = array[3:5]
    del array
    assert memory.map_count == 1
    del view
    gc.collect()
    assert memory.map_count == 0


def map_in_a_scope(memory, mode):
    before = simulator.vulkan.calls("vkFlushMappedMemoryRanges")
    with memory.map(mode) as array:
        assert array.flags.writeable == (mode == "rw")
        assert simulator.vulkan.calls("vkFlushMappedMemoryRanges") == before


# What an operation does, and how often it flushes and invalidates; None is any number.
CALLS = {
    "a copy from the host": (lambda memory, _: ops.copy(memory, DATA), 1, None),
    "a copy to the host": (lambda memory, _: ops.copy(bytearray(SIZE), memory), 0, 1),
    "a copy from a host array": (lambda memory, device: ops.copy(device, np.asarray(memory)), 1, None),
    "a copy to a host array": (lambda memory, device: ops.copy(np.asarray(memory), device), None, 1),
    "a flush of a part": (lambda memory, _: memory[1:3].flush(), 1, 0),
    "a flush of the last byte": (lambda memory, _: memory[SIZE - 1 :].flush(), 1, 0),
    "an invalidate of a part": (lambda memory, _: memory[5:9].invalidate(1, 2), 0, 1),
    "a map to read": (lambda memory, _: map_in_a_scope(memory, "r"), 0, 1),
    "a map": (lambda memory, _: map_in_a_scope(memory, "rw"), 1, 1),
    "a map whose array is dropped": (map_and_drop, 1, 1),
}


@pytest.mark.parametrize(("use", "flushes", "invalidates"), CALLS.values(), ids=CALLS)
def test_memory_that_is_not_coherent_is_flushed_and_invalidated(context, simulated, use, flushes, invalidates):
    gpu = vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    memory, device = vkgdr.Memory(gpu, SIZE), vkgdr.Memory(gpu, SIZE, kind="device")
    assert memory.non_coherent_atom_size > 1
    for name, count in (("vkFlushMappedMemoryRanges", flushes), ("vkInvalidateMappedMemoryRanges", invalidates)):
        before = simulator.vulkan.calls(name)
        use(memory, device)
        assert count is None or simulator.vulkan.calls(name) == before + count, name


# ---- rectangles, compared with slices of NumPy -----------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def image(gpu, request):
    return vkgdr.Memory(gpu, 1 << 16, kind=request.param)


class Layout:
    """The layout of a side: slices of rows, with gaps behind both, and a rectangle in it."""

    def __init__(self, random, region):
        width, height, depth = region
        self.origin = tuple(int(number) for number in random.integers(0, 4, 3))
        x, y, z = self.origin
        row = x + width + int(random.integers(0, 5))
        rows = y + height + int(random.integers(0, 3))
        self.box = (z + depth + int(random.integers(0, 2)), rows, row)
        self.pitches = (row, row * rows)
        self.nbytes = self.box[0] * self.box[1] * self.box[2]
        self.slices = (slice(z, z + depth), slice(y, y + height), slice(x, x + width))

    def of(self, contents):
        """Return the rectangle in `contents` as an array."""
        return np.frombuffer(contents, np.uint8, self.nbytes).reshape(self.box)[self.slices]


def side(random, gpu, what, nbytes):
    """Create a side with random bytes: the object, a function that reads it, and its contents."""
    contents = bytearray(random.bytes(nbytes))
    if what == "bytes":
        return contents, lambda: bytes(contents), bytes(contents)
    memory = vkgdr.Memory(gpu, nbytes + 3, kind=what)
    region = memory[3:]
    ops.copy(region, contents)
    return region, region.tobytes, bytes(contents)


def test_any_rectangle_is_the_slice_that_numpy_gives(gpu):
    kinds = [(to, source) for to in ("bytes", *KINDS) for source in ("bytes", *KINDS)]
    kinds.remove(("bytes", "bytes"))
    for seed in range(8 * len(kinds)):
        random = np.random.default_rng(seed)
        to_kind, from_kind = kinds[seed % len(kinds)]
        region = tuple(int(number) for number in random.integers(1, 9, 3))
        to_layout, from_layout = Layout(random, region), Layout(random, region)
        to, read_to, before = side(random, gpu, to_kind, to_layout.nbytes)
        source, _, contents = side(random, gpu, from_kind, from_layout.nbytes)
        expected = np.frombuffer(before, np.uint8).copy()
        expected.reshape(to_layout.box)[to_layout.slices] = from_layout.of(contents)
        ops.copy(
            to,
            source,
            region=region,
            dst_origin=to_layout.origin,
            src_origin=from_layout.origin,
            dst_pitches=to_layout.pitches,
            src_pitches=from_layout.pitches,
            is_blocking=bool(random.integers(0, 2)),
        ).synchronize()
        assert read_to() == expected.tobytes(), f"seed {seed}: {from_kind} to {to_kind}, {region}"


def test_overlap_within_one_memory_is_refused_whenever_bytes_are_shared(gpu):
    memory, made = vkgdr.Memory(gpu, 2000, kind="host"), 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        region, to, source = (tuple(random.integers(low, 5, 3).tolist()) for low in (1, 0, 0))
        row = region[0] + int(random.integers(0, 6))
        pitches = (row, row * (region[1] + int(random.integers(0, 3))))
        sides = {"dst_origin": to, "src_origin": source, "dst_pitches": pitches, "src_pitches": pitches}
        try:
            ops.copy(memory, memory, region=region, **sides)
        except vkgdr.InvalidArgumentError:
            # OpenCL's rule compares rows and slices separately, and refuses some that share no bytes.
            continue
        made += 1
        touched = [
            {np.dot((1, *pitches), np.add(origin, place)) for place in np.ndindex(region)} for origin in (to, source)
        ]
        assert not set.intersection(*touched), f"seed {seed}: {region}, {sides}"
    assert 50 < made < 250, "the random rectangles are too much of a kind"


def test_columns_that_lie_beside_each_other_do_not_overlap(image):
    ops.copy(image, bytes(range(64)))
    pitches = {"src_pitches": (8,), "dst_pitches": (8,)}
    ops.copy(image, image, region=(4, 8), dst_origin=(4, 0), **pitches)
    columns = np.frombuffer(image.tobytes()[:64], np.uint8).reshape(8, 8)
    assert (columns[:, :4] == columns[:, 4:]).all()
    with pytest.raises(vkgdr.InvalidArgumentError, match="overlap"):
        ops.copy(image, image, region=(4, 8), dst_origin=(3, 0), **pitches)


def test_pitches_that_are_left_out_leave_no_gaps(image):
    box = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    ops.copy(image, box, region=(4, 3, 2))
    assert image.tobytes()[:24] == box.tobytes()
    for pitches in ((), (0,), (0, 0), (4,), (0, 12), [4, 12]):
        back = np.zeros_like(box)
        ops.copy(back, image, region=(4, 3, 2), src_pitches=pitches)
        assert (back == box).all(), pitches
    # A given slice pitch, with contiguous rows.
    back = np.zeros_like(box)
    ops.copy(back, image, region=(4, 2, 2), src_pitches=(0, 12), dst_pitches=(0, 12))
    assert (back[:, :2] == box[:, :2]).all()
    assert not back[:, 2].any()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_region_has_bytes_first_and_may_leave_out_rows_and_slices(image, count):
    ops.fill(image, b".", is_blocking=True)
    ops.copy(image, b"abcdefghijkl", region=(2, 3, 2)[:count], dst_origin=(5, 0, 0)[:count])
    expected = {1: b"ab", 2: b"abcdef", 3: b"abcdefghijkl"}[count]
    assert image.tobytes()[5 : 5 + len(expected) + 1] == expected + b"."
    # Numbers of NumPy are numbers.
    ops.copy(image, b"abcdefgh", region=np.array([2, 2]), src_pitches=(np.int32(4),), src_origin=np.array([1, 0]))
    assert image.tobytes()[:4] == b"bcfg"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"region": ()}, "region has 0 components"),
        ({"region": (1, 1, 1, 1)}, "region has 4 components"),
        ({"region": (0, 1)}, r"region \(0, 1\) has 0 bytes"),
        ({"region": (1, 0)}, "has 0 rows"),
        ({"region": (1, 1, 0)}, "has 0 slices"),
        ({"region": (2, 2), "src_origin": (0, 0, 0, 0)}, "src_origin has 4 components"),
        ({"region": (8, 2), "src_pitches": (7,)}, "src_pitches: rows of 8 bytes do not fit the row pitch 7"),
        ({"region": (8, 3, 2), "dst_pitches": (10, 20)}, "dst_pitches: 3 rows .* need 30 bytes, more than .* 20"),
        ({"region": (8, 3, 2), "dst_pitches": (10, 35)}, "slice pitch 35 is not a multiple of the row pitch 10"),
        ({"region": (8, 3, 2), "dst_pitches": (10, 40, 80)}, "dst_pitches has 3 components"),
    ],
)
def test_an_invalid_rectangle_is_refused(image, arguments, text):
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        ops.copy(image, bytes(1024), **arguments)
    for region in ((8, 2.0), 8):
        with pytest.raises(TypeError):
            ops.copy(image, bytes(64), region=region)


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"region": (8, 1 << 14)}, ["131072 bytes", "65536"]),
        ({"region": (8, 2), "dst_origin": (0, 8191)}, ["16 bytes", "65528", "65536"]),
        ({"region": (8, 2), "src_pitches": (4096,)}, ["4104 bytes", "1024"]),
        ({"region": (8, 2, 2), "src_origin": (0, 0, 63)}, ["32 bytes", "1008", "1024"]),
        ({"region": (8, -1)}, ["row component", "-1"]),
        ({"region": (8, 2), "dst_origin": (-1, 0)}, ["byte component", "-1"]),
        ({"region": (8, 2), "dst_pitches": (-8,)}, ["row component", "-8"]),
        ({"region": (8, 1 << 62)}, ["dst_pitches"]),
        ({"region": (8, 2), "src_origin": (0, 1 << 62)}, ["src_origin"]),
    ],
)
def test_a_rectangle_beyond_the_end_is_refused_with_the_numbers(image, arguments, numbers):
    source = bytes(1 << 17) if arguments["region"] == (8, 1 << 14) else bytes(1024)
    with pytest.raises(vkgdr.OutOfRangeError) as error:
        ops.copy(image, source, **arguments)
    for number in numbers:
        assert number in str(error.value)
