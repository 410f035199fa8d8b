"""``memory.host``: the host's interfaces alone, for libraries that would take the device view."""

import gc

import numpy as np
import pytest
import vkgdr
from capsules import CPU, READ_ONLY, Taken
from neighbours import every_visible_kind

INTERFACES = ("__cuda_array_interface__", "__array_interface__", "__dlpack__", "__dlpack_device__")


@every_visible_kind
def test_it_has_the_interfaces_of_the_host_only(gpu, kind):
    memory = vkgdr.Memory(gpu, 100, kind=kind)
    host = memory.host
    assert isinstance(host, vkgdr.HostView)
    assert [hasattr(host, name) for name in INTERFACES] == [False, True, True, True]
    assert len(host) == host.nbytes == 100
    assert host.__array_interface__ == memory.__array_interface__
    assert host.__dlpack_device__() == (CPU, 0)
    assert repr(host) == f"<vkgdr.HostView: 100 bytes at {memory.host_ptr:#x}>"


@every_visible_kind
@pytest.mark.parametrize("convert", [np.asarray, np.from_dlpack, memoryview], ids=["asarray", "from_dlpack", "buffer"])
def test_it_is_the_same_bytes(gpu, kind, convert):
    memory = vkgdr.Memory(gpu, 100, kind=kind)
    for view, size, offset in ((memory.host, 100, 0), (memory[10:20].host, 10, 10)):
        array = np.asarray(convert(view))
        assert (array.dtype, array.shape) == (np.uint8, (size,))
        assert array.__array_interface__["data"] == (memory.host_ptr + offset, False)


def test_it_counts_as_a_view_and_keeps_the_memory(gpu, live):
    memory = vkgdr.Memory(gpu, 100)
    memory.memset(7)
    host = memory.host
    assert memory.pending_views == 1
    memory.free()
    assert bytes(host) == b"\7" * 100
    assert live() == 1
    del host
    gc.collect()
    assert live() == 0


def test_after_a_forced_free_it_is_freed(gpu):
    memory = vkgdr.Memory(gpu, 100)
    host = memory.host
    memory.free(force=True)
    for use in (lambda: len(host), lambda: host.nbytes, lambda: memoryview(host), lambda: host.__dlpack__()):
        with pytest.raises(vkgdr.FreedError, match="freed"):
            use()
    assert repr(host) == "<vkgdr.HostView: freed>"


def test_read_only_memory_has_a_read_only_one(gpu):
    host = vkgdr.Memory(gpu, 100, readonly=True).host
    assert memoryview(host).readonly
    assert not np.asarray(host).flags.writeable
    tensor = Taken(host.__dlpack__(max_version=(1, 0)))
    assert tensor.flags & READ_ONLY
    tensor.end()


def test_its_tensors_are_on_the_cpu(gpu):
    memory = vkgdr.Memory(gpu, 100)
    for arguments in ({}, {"dl_device": (1, 0)}, {"max_version": (1, 0), "copy": False}):
        tensor = Taken(memory.host.__dlpack__(**arguments))
        assert tensor.tensor.device.kind == CPU
        assert tensor.tensor.data == memory.host_ptr
        tensor.end()
    with pytest.raises(BufferError, match="CPU"):
        memory.host.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError, match="stream"):
        memory.host.__dlpack__(stream=1)


def test_pytorch_takes_it_for_a_cpu_tensor(gpu):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    memory = vkgdr.Memory(gpu, 100)
    tensor = torch.as_tensor(memory.host, device="cpu")
    assert tensor.data_ptr() == memory.host_ptr
    assert tensor.shape == (100,)
