"""Compatibility of ``vkgdr.RawMemory`` with vkgdr 0.1."""

import inspect

import numpy as np
import pytest
import simulator
import vkgdr
from neighbours import Number, open_with

ALL_FLAGS = list(range(0, 8, 2))


@pytest.fixture
def raw(gpu):
    memory = vkgdr.RawMemory(gpu, 4097)
    yield memory
    memory.free()


# ---- RawMemory(owner, size, flags=0)


def test_raw_memory_has_the_signature_of_0_1():
    parameters = inspect.signature(vkgdr.RawMemory).parameters.values()
    positional = [(p.name, p.default) for p in parameters if p.kind is not p.KEYWORD_ONLY]
    assert positional == [("owner", inspect.Parameter.empty), ("size", inspect.Parameter.empty), ("flags", 0)]
    assert {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} == {"kind", "alignment", "name"}


def test_raw_memory_without_a_context_says_so(no_context):
    with pytest.raises(vkgdr.VkgdrError, match="CUDA_ERROR_INVALID_CONTEXT"):
        vkgdr.RawMemory(vkgdr.Vkgdr(0), 123)


def test_raw_memory_that_is_not_freed_leaks(run_python_to_its_end, simulated):
    code = """
        import gc, libcuda, vkgdr
        cuda = libcuda.Cuda(); context = cuda.create_context()
        memory = vkgdr.RawMemory(vkgdr.Vkgdr(0), 8)
        del memory; gc.collect()
    """
    live = run_python_to_its_end(code).live
    assert live["CUDA external"] == 1
    assert live["CUDA mapped"] == 1


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


# ---- free, device_ptr, len


def test_free_with_another_context_current_works(gpu, cuda, context):
    memory = vkgdr.RawMemory(gpu, 8)
    other = cuda.create_context()
    memory.free()
    assert cuda.current() == other.handle
    other.destroy()
    assert cuda.current() in (0, context.handle)
    if cuda.current() == 0:
        cuda.push(context.handle)


def test_device_ptr_is_what_cuda_uses(raw, cuda):
    assert type(raw.device_ptr) is int
    cuda.fill(raw.device_ptr, 9, 4097)
    cuda.synchronize()
    raw.invalidate(0, 4097)
    assert bytes(np.asarray(raw)) == b"\t" * 4097
    np.asarray(raw)[4096] = 3
    raw.flush(0, 4097)
    assert cuda.read(raw.device_ptr + 4096, 1) == b"\3"


@pytest.mark.parametrize("size", [np.int64(64), np.uint8(64), Number(64)], ids=repr)
def test_len_may_be_any_kind_of_integer(gpu, size):
    memory = vkgdr.RawMemory(gpu, size)
    assert len(memory) == 64
    memory.free()


# ---- is_coherent, non_coherent_atom_size


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


# ---- flush, invalidate


@pytest.mark.parametrize("flags", ALL_FLAGS)
def test_flush_of_all_4097_bytes_under_each_flag(context, cuda, flags):
    memory = vkgdr.Memory(open_with(flags), 4097)
    array = np.asarray(memory)
    array[:] = np.arange(4097) % 251
    memory.flush(0, 4097)
    assert cuda.read(memory.device_ptr, 4097) == bytes(array)
    cuda.fill(memory.device_ptr, 77, 4097)
    cuda.synchronize()
    memory.invalidate(0, 4097)
    assert (array == 77).all()


@pytest.mark.parametrize("method", ["flush", "invalidate"])
@pytest.mark.parametrize(("flags", "calls"), [(4, 0), (2, 1)])
def test_flush_and_invalidate_reach_the_driver_only_where_they_must(context, simulated, method, flags, calls):
    function = {"flush": "vkFlushMappedMemoryRanges", "invalidate": "vkInvalidateMappedMemoryRanges"}[method]
    memory = vkgdr.Memory(open_with(flags), 4097)
    before = simulator.vulkan.calls(function)
    getattr(memory, method)(0, 4097)
    assert simulator.vulkan.calls(function) - before == calls


@pytest.mark.parametrize("method", ["flush", "invalidate"])
@pytest.mark.parametrize("flags", ALL_FLAGS)
def test_flush_of_any_range_is_rounded_outwards(context, method, flags):
    memory = vkgdr.Memory(open_with(flags), 4097)
    call = getattr(memory, method)
    for arguments in [(), (1,), (1, 1), (4096, 1), (4097, 0), (0, 0), (63, 2), (np.int64(3), np.uint8(5))]:
        call(*arguments)
    call(offset=5, size=7)
    call(size=4097)


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


# ---- additions since 0.1


def test_memory_is_no_number_but_its_device_address(gpu):
    memory = vkgdr.Memory(gpu, 16)
    memory.copy_from_host(b"123             ")
    assert int(memory) == memory.device_ptr
    with pytest.raises(TypeError, match="device_ptr"):
        float(memory)
