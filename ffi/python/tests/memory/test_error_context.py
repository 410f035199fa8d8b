"""Errors that are raised while another one is handled have it as their context, as those of Python code."""

import pytest
import vkgdr

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
