"""Compatibility with vkgdr 0.1: flags, errors, the handle and ``RawMemory``."""

import enum
import gc
import inspect
from functools import partial

import numpy as np
import pytest
import simulator
import vkgdr
from everything import refused
from neighbours import Number, open_with


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


def test_without_a_context_open_current_context_and_raw_memory_say_so(no_context):
    for use in (vkgdr.Vkgdr.open_current_context, lambda: vkgdr.RawMemory(vkgdr.Vkgdr(0), 123)):
        with pytest.raises(vkgdr.VkgdrError, match="CUDA_ERROR_INVALID_CONTEXT") as caught:
            use()
        assert caught.value.cu_result == 201


def test_open_current_context_passes_the_flags_on(context):
    gpu = vkgdr.Vkgdr.open_current_context(vkgdr.OpenFlags.FORCE_NON_COHERENT_BIT)
    assert gpu.device == 0
    assert gpu.flags & 2
    assert type(gpu) is vkgdr.Vkgdr
    for flags in ("1", 1.0, None):
        with pytest.raises(TypeError):
            vkgdr.Vkgdr.open_current_context(flags)


ALL_FLAGS = list(range(0, 8, 2))


@pytest.fixture
def raw(gpu):
    memory = vkgdr.RawMemory(gpu, 4097)
    yield memory
    memory.free()


def test_raw_memory_has_the_signature_of_0_1():
    parameters = inspect.signature(vkgdr.RawMemory).parameters.values()
    positional = [(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    assert positional == [("owner", inspect.Parameter.empty), ("size", inspect.Parameter.empty), ("flags", 0)]
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} == {"kind", "alignment", "name"}


def test_raw_memory_that_is_not_freed_leaks(run_python_to_its_end, simulated):
    code = """
        import gc, libcuda, vkgdr
        cuda = libcuda.Cuda(); context = cuda.create_context()
        gpu = vkgdr.Vkgdr(0)
        memory, cycle = vkgdr.RawMemory(gpu, 8), vkgdr.Memory(gpu, 8).release_raw()
        cycle.itself = cycle
        del memory, cycle; gc.collect()
    """
    live = run_python_to_its_end(code).live
    assert live["CUDA external"] == 2
    assert live["CUDA mapped"] == 2


def test_raw_memory_of_every_kind_has_the_pointers_of_it(gpu):
    for kind in ("mapped", "host", "device"):
        memory = vkgdr.RawMemory(gpu, 100, 0, kind=kind, alignment=64, name="n")
        assert memory.kind == kind
        assert memory.device_ptr % 64 == 0
        assert (memory.host_ptr is None) == (kind == "device")
        assert "'n'" in repr(memory)
        assert kind in repr(memory)
        assert memory.owner is gpu
        memory.free()
        assert memory.owner is None


def test_free_with_another_context_current_works(gpu, cuda, context):
    memory = vkgdr.RawMemory(gpu, 8)
    other = cuda.create_context()
    memory.free()
    assert cuda.current() == other.handle
    other.destroy()
    assert cuda.current() in (0, context.handle)
    if cuda.current() == 0:
        cuda.push(context.handle)


@pytest.mark.parametrize("size", [np.int64(64), np.uint8(64), Number(64)], ids=repr)
def test_len_may_be_any_kind_of_integer(gpu, size):
    memory = vkgdr.RawMemory(gpu, size)
    assert len(memory) == 64
    memory.free()


@pytest.mark.parametrize("flags", ALL_FLAGS)
def test_memory_is_coherent_as_the_flags_want_and_its_atoms_are_then_of_1_byte(context, flags):
    memory = vkgdr.Memory(open_with(flags), 10)
    assert type(memory.is_coherent) is bool
    if flags & 2:
        assert not memory.is_coherent
    elif flags & 4:
        assert memory.is_coherent
    atom = memory.non_coherent_atom_size
    assert atom >= 1
    assert atom & (atom - 1) == 0
    if memory.is_coherent:
        assert atom == 1


@pytest.mark.parametrize("flags", ALL_FLAGS)
def test_flush_and_invalidate_of_all_4097_bytes_and_of_any_part_under_each_flag(context, cuda, flags):
    memory = vkgdr.Memory(open_with(flags), 4097)
    array = np.asarray(memory)
    array[:] = np.arange(4097) % 251
    memory.flush(0, 4097)
    assert cuda.read(memory.device_ptr, 4097) == bytes(array)
    cuda.fill(memory.device_ptr, 77, 4097)
    memory.invalidate(0, 4097)
    assert (array == 77).all()
    for call in (memory.flush, memory.invalidate):
        for arguments in [(), (1,), (1, 1), (4096, 1), (4097, 0), (0, 0), (63, 2), (np.int64(3), np.uint8(5))]:
            call(*arguments)
        call(offset=5, size=7)
        call(size=4097)


@pytest.mark.parametrize("method", ["flush", "invalidate"])
@pytest.mark.parametrize(("flags", "calls"), [(4, 0), (2, 1)])
def test_flush_and_invalidate_reach_the_driver_only_where_they_must(context, simulated, method, flags, calls):
    function = {"flush": "vkFlushMappedMemoryRanges", "invalidate": "vkInvalidateMappedMemoryRanges"}[method]
    memory = vkgdr.Memory(open_with(flags), 4097)
    before = simulator.vulkan.calls(function)
    getattr(memory, method)(0, 4097)
    assert simulator.vulkan.calls(function) - before == calls


@pytest.mark.parametrize("method", ["flush", "invalidate"])
@pytest.mark.parametrize(
    "arguments", [(0, 4098), (4097, 1), (4098, 0), (4098,), (2**64 - 1, 2), (2, 2**64 - 1), (2**64 - 1, 2**64 - 1)]
)
def test_flush_of_a_range_that_cannot_be_is_refused_with_the_numbers(raw, method, arguments):
    with pytest.raises(vkgdr.OutOfRangeError) as caught:
        getattr(raw, method)(*arguments)
    for number in (*arguments, 4097):
        assert str(number) in str(caught.value)


def test_flush_says_what_the_driver_says(context, simulated):
    memory = vkgdr.Memory(vkgdr.Vkgdr(0, 2), 64)
    with simulator.vulkan.fail("vkFlushMappedMemoryRanges", 1, -1), pytest.raises(vkgdr.VkgdrError) as caught:
        memory.flush(0, 64)
    assert "VK_ERROR_OUT_OF_HOST_MEMORY" in str(caught.value)
    assert caught.value.vk_result == -1


def test_memory_is_no_number_but_its_device_address(gpu):
    memory = vkgdr.Memory(gpu, 16)
    memory.copy_from_host(b"123             ")
    assert int(memory) == memory.device_ptr
    with pytest.raises(TypeError, match="device_ptr"):
        float(memory)
