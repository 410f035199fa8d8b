"""Compatibility of the module with vkgdr 0.1: flags, errors and handle."""

import enum
import gc
from functools import partial

import numpy as np
import pytest
import vkgdr
from everything import refused
from neighbours import Number

# ---- OpenFlags


def test_open_flags_have_the_names_and_values_of_0_1():
    assert {flag.name: flag.value for flag in vkgdr.OpenFlags} == {
        "CURRENT_CONTEXT_BIT": 1,
        "FORCE_NON_COHERENT_BIT": 2,
        "REQUIRE_COHERENT_BIT": 4,
    }


def test_open_flags_are_ints_and_stay_so_when_combined():
    assert issubclass(vkgdr.OpenFlags, int)
    assert issubclass(vkgdr.OpenFlags, enum.Enum)
    both = vkgdr.OpenFlags.CURRENT_CONTEXT_BIT | vkgdr.OpenFlags.REQUIRE_COHERENT_BIT
    assert isinstance(both, int)
    assert both == 5
    assert vkgdr.OpenFlags.REQUIRE_COHERENT_BIT | 1 == 5


# ---- VkgdrError


def test_a_vkgdr_error_is_a_runtime_error_with_the_drivers_code(no_context):
    with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_DEVICE") as caught:
        vkgdr.Vkgdr(-1)
    assert type(caught.value) is vkgdr.VkgdrError
    assert caught.value.cu_result == 101
    assert caught.value.vk_result is None
    assert caught.value.operation is not None
    assert caught.value.operation.startswith("cu")


def test_a_vkgdr_error_can_be_raised_by_a_program():
    error = vkgdr.VkgdrError("mine")
    assert (str(error), error.operation, error.cu_result, error.vk_result) == ("mine", None, None, None)


def test_every_vkgdr_error_is_also_the_builtin_one():
    for error, builtin in (
        (vkgdr.AllocationError, MemoryError),
        (vkgdr.FreedError, ValueError),
        (vkgdr.InvalidArgumentError, ValueError),
        (vkgdr.NoHostViewError, BufferError),
        (vkgdr.OutOfRangeError, ValueError),
    ):
        assert issubclass(error, vkgdr.VkgdrError)
        assert issubclass(error, builtin)


# ---- Vkgdr(device, flags=0)


def test_vkgdr_takes_every_kind_of_integer_by_position_and_by_name_without_a_context(no_context, cuda):
    for zero in (0, np.int32(0), np.uint8(0), False, Number(0)):
        gpu = vkgdr.Vkgdr(zero, zero)
        assert (gpu.device, gpu.flags) == (0, 0)
    assert vkgdr.Vkgdr(0, vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT).flags == 2
    assert vkgdr.Vkgdr(device=0, flags=2).flags == 2
    assert cuda.current() == 0


def test_vkgdr_refuses_what_is_not_there(no_context):
    for device in (-1, -2, 99, 2**31 - 1, -(2**31)):
        refused(partial(vkgdr.Vkgdr, device), vkgdr.VkgdrError, "CUDA_ERROR_INVALID_DEVICE", f"the device {device}")
    for arguments in (("0",), (0.0,), (None,), (0, "1"), (0, 1.0), (0, None), ([],)):
        refused(partial(vkgdr.Vkgdr, *arguments), TypeError, "integer", arguments)
    for arguments in ((2**31,), (-(2**31) - 1,), (2**70,), (0, -1), (0, 2**32), (0, 2**70)):
        refused(partial(vkgdr.Vkgdr, *arguments), OverflowError, str(arguments[-1]), arguments)
    for flags in (8, 15, 2**31):
        refused(partial(vkgdr.Vkgdr, 0, flags), vkgdr.InvalidArgumentError, f"{flags & ~7:#x}", f"the flags {flags}")


def test_vkgdr_may_go_before_its_memory(gpu):
    memory = vkgdr.Memory(gpu, 64)
    del gpu
    gc.collect()
    memory.memset(3)
    assert memory.tobytes() == b"\3" * 64


def test_vkgdr_is_closed_by_close_and_by_with(gpu):
    memory = vkgdr.Memory(gpu, 64)
    with gpu as same:
        assert same is gpu
    assert gpu.closed
    gpu.close()
    with pytest.raises(vkgdr.FreedError, match="closed"):
        vkgdr.Memory(gpu, 64)
    with pytest.raises(vkgdr.FreedError, match="closed"):
        _ = gpu.device
    assert "closed" in repr(gpu)
    assert len(memory) == 64


def test_vkgdr_knows_its_memory(gpu):
    for kind in ("mapped", "host", "device"):
        assert gpu.supports(kind)
        info = gpu.memory_info(kind)
        assert 0 < info.free <= info.total
    assert gpu.uuid.int != 0
    before = gpu.stats()["live_bytes"]
    memory = vkgdr.Memory(gpu, 1000)
    assert gpu.stats()["live_bytes"] == before + 1000
    memory.free()
    assert gpu.stats()["live_bytes"] == before


def test_vkgdr_can_be_subclassed_with_arguments_of_its_own(context):
    class Mine(vkgdr.Vkgdr):
        def __init__(self, device, flags=0):
            super().__init__(device, flags)
            self.label = "mine"

    gpu = Mine.open_current_context()
    assert type(gpu) is Mine
    assert gpu.label == "mine"
    assert len(vkgdr.Memory(gpu, 8)) == 8


# ---- Vkgdr.open_current_context(flags=0)


def test_open_current_context_without_a_context_says_so(no_context):
    with pytest.raises(vkgdr.VkgdrError, match="CUDA_ERROR_INVALID_CONTEXT") as caught:
        vkgdr.Vkgdr.open_current_context()
    assert caught.value.cu_result == 201


def test_open_current_context_passes_the_flags_on(context):
    gpu = vkgdr.Vkgdr.open_current_context(vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    assert gpu.device == 0
    assert gpu.flags & 2
    assert type(gpu) is vkgdr.Vkgdr
    for flags in ("1", 1.0, None):
        with pytest.raises(TypeError):
            vkgdr.Vkgdr.open_current_context(flags)
