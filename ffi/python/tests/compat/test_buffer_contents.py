"""``vkgdr.compat.rmm.Buffer``: the contents of a new one, from RMM's ``ptr`` or pyopencl's ``hostbuf``."""

import numpy as np
import pytest
import vkgdr
from neighbours import KINDS, Foreign, every_kind, wait_at
from vkgdr.compat.rmm import Buffer

# ---- DeviceBuffer(ptr=0, size=0) ------------------------------------------------------------------------------------


@every_kind
def test_a_host_address_is_copied_from(gpu, kind):
    source = np.frombuffer(b"hello world", "u1")
    buffer = Buffer(ptr=source.ctypes.data, size=5, owner=gpu, kind=kind)
    assert buffer.tobytes() == b"hello"


@every_kind
def test_a_device_address_of_cuda_is_copied_from(cuda, gpu, kind):
    foreign = Foreign(cuda, b"hello world")
    buffer = Buffer(ptr=foreign.pointer + 6, size=5, owner=gpu, kind=kind)
    assert buffer.tobytes() == b"world"


@every_kind
@pytest.mark.parametrize("source_kind", KINDS)
def test_a_device_address_of_this_package_is_copied_from(gpu, kind, source_kind):
    source = vkgdr.Memory(gpu, 11, kind=source_kind)
    source.copy_from_host(b"hello world")
    buffer = Buffer(ptr=source.device_ptr + 6, size=5, owner=gpu, kind=kind)
    assert buffer.tobytes() == b"world"
    assert source.pending_views == 0


@every_kind
@pytest.mark.parametrize("source_kind", KINDS[:2])
def test_a_host_address_of_this_package_is_copied_from(gpu, kind, source_kind):
    source = vkgdr.Memory(gpu, 11, kind=source_kind)
    source.copy_from_host(b"hello world")
    buffer = Buffer(ptr=source.host_ptr + 6, size=5, owner=gpu, kind=kind)
    assert buffer.tobytes() == b"world"
    assert source.pending_views == 0


def test_pinned_memory_of_cuda_is_copied_from(pycuda_context):
    import pycuda.driver

    source = pycuda.driver.pagelocked_zeros(5, "u1")
    source[:] = 3
    assert Buffer(ptr=source.ctypes.data, size=5).tobytes() == b"\3" * 5


def test_an_address_is_copied_from_without_a_current_context(cuda, primary):
    cuda.push(cuda.retain_primary())
    foreign = Foreign(cuda, b"abc")
    cuda.pop()
    source = np.frombuffer(b"xyz", "u1")
    try:
        assert Buffer(primary, ptr=source.ctypes.data, size=3).tobytes() == b"xyz"
        assert Buffer(primary, ptr=foreign.pointer, size=3).tobytes() == b"abc"
    finally:
        del foreign
        cuda.release_primary()


@pytest.mark.parametrize("side", ["device_ptr", "host_ptr"])
def test_a_copy_from_bound_memory_waits_for_its_stream(cuda, gpu, side):
    with cuda.stream() as stream:
        source = vkgdr.Memory(gpu, 3, stream=stream)
        with cuda.hold(stream) as gate:
            cuda.fill(source.device_ptr, ord("n"), 3, stream)
            made = []
            wait_at(gate, lambda: made.append(Buffer(gpu, ptr=getattr(source, side), size=3).tobytes()), source.context)
        assert made == [b"nnn"]
        source.free()


def test_an_address_without_a_size_copies_nothing(gpu, live):
    assert len(Buffer(gpu, ptr=1)) == 0
    assert live() == 0


@pytest.mark.parametrize(
    ("ptr", "size"), [(-1, 0), (-1, 10), (1 << 64, 1), ((1 << 64) - 5, 6), (1 << 200, 1), ((1 << 64) - 1, 2)]
)
def test_an_address_out_of_range_is_refused(gpu, ptr, size, live):
    with pytest.raises(ValueError, match=rf"{size} bytes? at address"):
        Buffer(gpu, ptr=ptr, size=size)
    assert live() == 0


# ---- pyopencl: Buffer(context, flags, size=0, hostbuf=None) ---------------------------------------------------------


@every_kind
def test_hostbuf_is_copied(gpu, kind):
    source = bytearray(b"hello")
    buffer = Buffer(gpu, hostbuf=source, kind=kind)
    source[:] = b"-----"
    assert buffer.tobytes() == b"hello"
    assert buffer.reference_obj is None


@every_kind
def test_a_size_limits_what_is_copied_of_hostbuf(gpu, kind):
    assert Buffer(gpu, size=3, hostbuf=b"hello", kind=kind).tobytes() == b"hel"
    pairs = np.array([(1, 2), (3, 4)], [("a", "u1"), ("b", "u1")])
    assert Buffer(gpu, size=3, hostbuf=pairs, kind=kind).tobytes() == b"\1\2\3"


def test_a_size_larger_than_hostbuf_is_refused(gpu, live):
    with pytest.raises(ValueError, match=r"size 6 is larger than hostbuf.* 5 bytes"):
        Buffer(gpu, size=6, hostbuf=b"hello")
    with pytest.raises(ValueError, match="size 1 is larger than hostbuf"):
        Buffer(gpu, size=1, hostbuf=b"")
    assert live() == 0


def test_hostbuf_and_an_address_are_refused(gpu):
    with pytest.raises(ValueError, match="0x1000"):
        Buffer(gpu, hostbuf=b"hello", ptr=0x1000, size=5)


def test_hostbuf_must_be_contiguous_bytes(gpu):
    with pytest.raises(TypeError, match="int"):
        Buffer(gpu, hostbuf=5)
    with pytest.raises(ValueError, match="contiguous"):
        Buffer(gpu, hostbuf=np.zeros(10)[::2])


# ---- pycuda ---------------------------------------------------------------------------------------------------------


def test_a_gpuarray_is_copied_from_and_lies_over_a_buffer(pycuda_context):
    from pycuda import gpuarray

    array = gpuarray.to_gpu(np.arange(5, dtype="f4"))
    buffer = Buffer(size=20)
    buffer.copy_from_device(array)
    assert buffer.tobytes() == np.arange(5, dtype="f4").tobytes()
    view = gpuarray.GPUArray(5, "f4", gpudata=buffer.ptr, base=buffer)
    view.set(np.ones(5, "f4"))
    pycuda_context.synchronize()
    assert buffer.tobytes() == np.ones(5, "f4").tobytes()
    assert Buffer(ptr=array.ptr, size=array.nbytes).tobytes() == np.arange(5, dtype="f4").tobytes()
