"""Arguments that are not numbers, are negative or too large, for every method that takes a number."""

import math
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from everything import SIZE, refused
from neighbours import Number
from vkgdr.arrays import device_array

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
def test_every_kind_of_integer_is_a_number_and_its_index_may_raise_or_free_the_memory(gpu, call, simulated):
    class Bad(Number):
        def __index__(self):
            if self._value is None:
                raise KeyError("mine")
            memory.free(force=True)
            return self._value

    before = simulator.ledger()
    memory = vkgdr.Memory(gpu, SIZE)
    for value in (np.int8(2), np.uint64(2), Number(2), True):
        TAKES_NUMBERS[call](memory, value)
    with pytest.raises(KeyError, match="mine"):
        TAKES_NUMBERS[call](memory, Bad(None))
    with pytest.raises(vkgdr.FreedError):
        TAKES_NUMBERS[call](memory, Bad(1))
    assert simulator.ledger() == before


# ---- arithmetic of NumPy's integers, and of subclasses of int -------------------------------------------------------


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
