"""Rectangles of ``vkgdr.compat.pyopencl.copy``, compared with NumPy slices."""

import numpy as np
import pytest
import vkgdr
from neighbours import KINDS
from vkgdr.compat import pyopencl as ops


@pytest.fixture(params=KINDS)
def memory(gpu, request):
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


def test_columns_that_lie_beside_each_other_do_not_overlap(memory):
    ops.copy(memory, bytes(range(64)))
    pitches = {"src_pitches": (8,), "dst_pitches": (8,)}
    ops.copy(memory, memory, region=(4, 8), dst_origin=(4, 0), **pitches)
    columns = np.frombuffer(memory.tobytes()[:64], np.uint8).reshape(8, 8)
    assert (columns[:, :4] == columns[:, 4:]).all()
    with pytest.raises(vkgdr.InvalidArgumentError, match="overlap"):
        ops.copy(memory, memory, region=(4, 8), dst_origin=(3, 0), **pitches)


def test_pitches_that_are_left_out_leave_no_gaps(memory):
    box = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    ops.copy(memory, box, region=(4, 3, 2))
    assert memory.tobytes()[:24] == box.tobytes()
    for pitches in ((), (0,), (0, 0), (4,), (0, 12), [4, 12]):
        back = np.zeros_like(box)
        ops.copy(back, memory, region=(4, 3, 2), src_pitches=pitches)
        assert (back == box).all(), pitches
    # A given slice pitch, with contiguous rows.
    back = np.zeros_like(box)
    ops.copy(back, memory, region=(4, 2, 2), src_pitches=(0, 12), dst_pitches=(0, 12))
    assert (back[:, :2] == box[:, :2]).all()
    assert not back[:, 2].any()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_region_has_bytes_first_and_may_leave_out_rows_and_slices(memory, count):
    ops.fill(memory, b".", is_blocking=True)
    ops.copy(memory, b"abcdefghijkl", region=(2, 3, 2)[:count], dst_origin=(5, 0, 0)[:count])
    expected = {1: b"ab", 2: b"abcdef", 3: b"abcdefghijkl"}[count]
    assert memory.tobytes()[5 : 5 + len(expected) + 1] == expected + b"."
    # Numbers of NumPy are numbers.
    ops.copy(memory, b"abcdefgh", region=np.array([2, 2]), src_pitches=(np.int32(4),), src_origin=np.array([1, 0]))
    assert memory.tobytes()[:4] == b"bcfg"


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
def test_an_invalid_rectangle_is_refused(memory, arguments, text):
    with pytest.raises(vkgdr.InvalidArgumentError, match=text):
        ops.copy(memory, bytes(1024), **arguments)
    for region in ((8, 2.0), 8):
        with pytest.raises(TypeError):
            ops.copy(memory, bytes(64), region=region)


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
def test_a_rectangle_beyond_the_end_is_refused_with_the_numbers(memory, arguments, numbers):
    source = bytes(1 << 17) if arguments["region"] == (8, 1 << 14) else bytes(1024)
    with pytest.raises(vkgdr.OutOfRangeError) as error:
        ops.copy(memory, source, **arguments)
    for number in numbers:
        assert number in str(error.value)
