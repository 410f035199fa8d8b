"""Empty arrays: the device that DLPack tells."""

from pathlib import Path

import capsules

PRELUDE = f"""
import ctypes, sys
sys.path.insert(0, {str(Path(capsules.__file__).parent)!r})
import vkgdr, vkgdr.arrays
from capsules import Taken

def device_of(array):
    taken = Taken(array.__dlpack__(max_version=(1, 0)))
    device = taken.tensor.device.kind, taken.tensor.device.id
    taken.end()
    assert array.__dlpack_device__() == device
    return device[1]
"""


def test_an_empty_array_is_on_the_device_that_it_was_made_for(run_python, simulated):
    code = """
for device in (0, 1):
    gpu = vkgdr.Vkgdr.open_primary_context(device)
    array = vkgdr.arrays.to_device([1.0, 2.0], owner=gpu)
    empty = vkgdr.arrays.device_array((0, 3), owner=gpu)
    for each in (array[0:0], array[0:0][0:0], array[0:0].bind(0), array[2:].reshape(3, 0), empty, empty[:, 1:]):
        assert device_of(each) == device, (device, each)
"""
    run_python(PRELUDE + code, VKGDR_TEST_PROFILE="two-gpus")


def test_an_empty_array_without_a_handle_is_on_the_current_device(run_python, simulated):
    code = """
empty = vkgdr.arrays.device_array(0)
assert device_of(empty) == 0
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)
cuda.cuCtxPushCurrent_v2(context)
assert device_of(empty) == 1
"""
    run_python(PRELUDE + code, VKGDR_TEST_PROFILE="two-gpus")
