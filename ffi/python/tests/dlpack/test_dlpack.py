"""DLPack: capsules of both kinds, on the device and on the host, and their consumers."""

import ctypes
import gc
import textwrap
import threading

import native
import numpy as np
import pytest
import simulator
import vkgdr
from capsules import CPU, CUDA, DELETER, IS_COPIED, READ_ONLY, VERSIONS, Device, Legacy, Taken, Tensor, versioned
from neighbours import ByDlpack, counter


@pytest.fixture
def memory(gpu):
    memory = vkgdr.Memory(gpu, 4096)
    np.asarray(memory)[:] = np.arange(4096) % 253
    return memory


@pytest.fixture
def invisible(gpu):
    memory = vkgdr.Memory(gpu, 4096, kind="device")
    memory.copy_from_host(bytes(range(256)) * 16)
    return memory


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("device", [None, (CUDA, 0), (CPU, 0)])
@pytest.mark.parametrize("copy", [None, False])
def test_the_tensor_on_each_side_is_the_memory_or_the_part(memory, version, device, copy):
    assert memory.__dlpack_device__() == (CUDA, 0)
    for part in (memory, memory[100:150]):
        taken = Taken(part.__dlpack__(max_version=version, dl_device=device, copy=copy))
        assert taken.versioned == (version is not None and version[0] >= 1)
        if taken.versioned:
            assert taken.managed.major == 1
        assert (taken.tensor.device.kind, taken.tensor.device.id) == (device or (CUDA, 0))
        assert (taken.tensor.code, taken.tensor.bits, taken.tensor.lanes) == (1, 8, 1)
        assert (taken.shape, taken.flags) == ((len(part),), 0)
        assert taken.strides in (None, (1,))
        address = part.host_ptr if device == (CPU, 0) else part.device_ptr
        assert taken.tensor.data + taken.tensor.byte_offset == address
        taken.end()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("device", [(2, 0), (1, 0)])
@pytest.mark.parametrize("end", ["a drop", "a free", "a forced free"])
@pytest.mark.parametrize("consumed", [False, True])
def test_a_capsule_or_the_tensor_that_was_taken_of_it_keeps_the_memory(gpu, version, device, end, consumed, simulated):
    before, memory = simulator.pages(), vkgdr.Memory(gpu, 64)
    capsule = memory.__dlpack__(max_version=version, dl_device=device)
    taken = Taken(capsule) if consumed else None
    if end != "a drop":
        memory.free(force=end == "a forced free")
    del memory
    gc.collect()
    kept = before + (end != "a forced free")
    assert simulator.pages() == kept
    del capsule
    if taken is not None:
        # The destructor of a used capsule leaves the tensor alone.
        assert simulator.pages() == kept
        assert end == "a forced free" or device != (1, 0) or len(taken.host_bytes()) == 64
        taken.managed.deleter(None)
        taken.end()
    assert simulator.pages() == before


@pytest.mark.parametrize("version", VERSIONS)
def test_the_deleter_runs_on_a_thread_that_python_does_not_know(primary, version, simulated):
    before = simulator.pages()
    for device in ((2, 0), (1, 0)):
        taken = Taken(vkgdr.Memory(primary, 64).__dlpack__(max_version=version, dl_device=device))
        gc.collect()
        assert simulator.pages() == before + 1
        native.call_on_thread(taken.deleter, taken.address)
        assert simulator.pages() == before
    # The next call lets go of the handle, which the memory kept.
    assert not primary.closed


@pytest.mark.parametrize("kind", ["pycuda", "primary", "stream"])
def test_the_deleter_runs_after_the_interpreters_end(run_python_to_its_end, kind):
    if kind == "pycuda":
        pytest.importorskip("pycuda", reason="pycuda is not installed")
    made = {
        "pycuda": """
            import pycuda.driver as drv
            drv.init(); context = drv.Device(0).make_context()
            import vkgdr.pycuda
            memory = vkgdr.pycuda.Memory(vkgdr.Vkgdr(0), 64)
            context.pop()
            del context
        """,
        "primary": "import vkgdr; memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 64)",
        "stream": """
            import vkgdr
            class Legacy:
                def __cuda_stream__(self): return 0, 1
            memory = vkgdr.Memory(vkgdr.Vkgdr.open_primary_context(0), 64, stream=Legacy())
        """,
    }[kind]
    code = textwrap.dedent(made) + textwrap.dedent("""
        import native
        from capsules import Taken
        taken = Taken(memory.__dlpack__(max_version=(1, 0), stream=-1))
        native.call_at_exit(taken.deleter, taken.address)
    """)
    done = run_python_to_its_end(code)
    if kind != "stream":
        # Memory that waits for a stream is released with the process.
        assert done.live.get("Vulkan memory", 0) == 0
        assert done.live.get("CUDA external", 0) == 0


def test_read_only_memory_has_the_flag_and_cannot_be_a_legacy_capsule(gpu):
    memory = vkgdr.Memory(gpu, 64, readonly=True)
    for device in (None, (1, 0)):
        taken = Taken(memory.__dlpack__(max_version=(1, 0), dl_device=device))
        assert taken.flags == READ_ONLY
        taken.end()
    assert not np.from_dlpack(memory, device="cpu").flags.writeable
    gc.collect()
    for version in (None, (0, 8)):
        with pytest.raises(BufferError, match="read-only"):
            memory.__dlpack__(max_version=version)
    assert memory.pending_views == 0


@pytest.mark.parametrize("kind", ["mapped", "device"])
def test_a_copy_of_empty_memory_is_empty(gpu, no_context, kind):
    from vkgdr.arrays import device_array

    for empty in (
        device_array((0, 3), kind=kind, owner=gpu),
        vkgdr.compat.rmm.Buffer(gpu, kind=kind),
        vkgdr.compat.rmm.Buffer(gpu),
    ):
        assert np.from_dlpack(empty, device="cpu", copy=True).size == 0
        for device in (None, empty.__dlpack_device__(), (1, 0)):
            taken = Taken(empty.__dlpack__(max_version=(1, 0), dl_device=device, copy=True))
            assert taken.flags & IS_COPIED
            assert taken.tensor.shape[0] == 0
            assert not taken.tensor.data
            taken.end()
            empty.__dlpack__(dl_device=device, copy=True)


@pytest.mark.parametrize("device", [None, (2, 0), (1, 0)])
def test_a_copy_is_marked_and_is_one(memory, cuda, device, simulated):
    before = memory.tobytes()
    taken = Taken(memory.__dlpack__(max_version=(1, 0), dl_device=device, copy=True))
    assert taken.flags & IS_COPIED
    assert memory.pending_views == 0
    memory.memset(0)
    address = taken.tensor.data + taken.tensor.byte_offset
    copied = taken.host_bytes() if device == (1, 0) else cuda.read(address, 4096)
    assert copied == before
    taken.end()


@pytest.mark.parametrize("copy", [None, True])
def test_device_memory_on_the_host_is_a_copy_or_refused(invisible, copy):
    for version in (None, (1, 0)):
        taken = Taken(invisible.__dlpack__(max_version=version, dl_device=(1, 0), copy=copy))
        assert taken.host_bytes() == bytes(range(256)) * 16
        assert taken.flags == (IS_COPIED if version else 0)
        taken.end()
    with pytest.raises(BufferError, match="device"):
        invisible.__dlpack__(max_version=(1, 0), dl_device=(1, 0), copy=False)
    assert invisible.pending_views == 0


@pytest.mark.parametrize("device", [(2, 1), (3, 0), (13, 0), (7, 0), (1, 1), (0, 0), (-1, 0), (99, 99)])
def test_another_device_is_refused(memory, device):
    with pytest.raises(BufferError) as caught:
        memory.__dlpack__(dl_device=device)
    assert f"({device[0]}, {device[1]})" in str(caught.value)


@pytest.mark.parametrize("stream", [0, -2, -(2**40)])
def test_a_stream_that_dlpack_does_not_have_is_refused(memory, stream):
    # Nor by an array with a stream of its own.
    for exporter in (memory, vkgdr.arrays.as_cuda_array(memory).bind(1)):
        with pytest.raises(ValueError, match=str(stream)):
            exporter.__dlpack__(stream=stream)


@pytest.mark.parametrize("stream", [None, -1, 0, 1, 2, 77])
def test_the_host_has_no_streams_and_takes_any(memory, stream):
    for exporter in (memory, vkgdr.arrays.as_cuda_array(memory)):
        taken = Taken(exporter.__dlpack__(stream=stream, dl_device=(1, 0), max_version=(1, 0)))
        assert taken.tensor.data == memory.host_ptr
        taken.end()
    for wrong in ("1", 1.5):
        with pytest.raises(TypeError, match="integer"):
            exporter.__dlpack__(stream=wrong, dl_device=(1, 0))


@pytest.mark.parametrize(
    "arguments",
    [{"stream": "x"}, {"stream": 1.5}, {"max_version": 1}, {"max_version": ("1", 0)}, {"dl_device": 1}, {"nothing": 1}],
)
def test_arguments_of_other_types_are_refused(memory, arguments):
    with pytest.raises(TypeError):
        memory.__dlpack__(**arguments)


@pytest.mark.parametrize("kind", ["mapped", "host"])
def test_numpy_shares_the_hosts_view(gpu, kind):
    memory = vkgdr.Memory(gpu, 4096, kind=kind)
    array = np.from_dlpack(memory, device="cpu")
    assert array.dtype == np.uint8
    assert array.ctypes.data == memory.host_ptr
    assert array.flags.writeable
    array[:] = 7
    memory.flush()
    assert memory.tobytes() == b"\7" * 4096
    assert np.from_dlpack(memory, device="cpu", copy=False).ctypes.data == memory.host_ptr
    assert np.from_dlpack(memory, device="cpu", copy=True).ctypes.data != memory.host_ptr


def test_torch_shares_the_hosts_view(memory):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
    tensor = torch.from_dlpack(memory.host)
    assert tensor.data_ptr() == memory.host_ptr
    assert tensor.dtype == torch.uint8
    tensor[:] = 5
    memory.flush()
    assert memory.tobytes() == b"\5" * 4096
    memory.free()
    tensor += 1
    assert int(tensor.sum()) == 6 * 4096


class Producer:
    """A tensor on the GPU whose capsule a function makes."""

    def __init__(self, capsule):
        self.__dlpack__ = capsule

    def __dlpack_device__(self):
        return CUDA, 0


@pytest.mark.parametrize("version", ["before versions", *VERSIONS])
def test_a_tensor_of_this_packages_memory_is_copied_from(gpu, memory, version):
    if version == "before versions":
        producer = Producer(lambda stream=None: memory.__dlpack__(stream=stream))
    else:
        producer = Producer(lambda stream, **_: memory.__dlpack__(stream=stream, max_version=version))
    target = vkgdr.Memory(gpu, 4096)
    target.copy_from_device(producer)
    assert target.tobytes() == memory.tobytes()
    gc.collect()
    assert memory.pending_views == 0


def test_a_tensor_on_the_host_is_refused_as_device_memory(gpu, memory):
    with pytest.raises(vkgdr.InvalidArgumentError, match="1, 0"):
        vkgdr.Memory(gpu, 4096).copy_from_device(ByDlpack(memory.host))
    with pytest.raises(vkgdr.InvalidArgumentError):
        vkgdr.Memory(gpu, 4096).copy_from_device(np.zeros(10))


def test_a_capsule_that_was_taken_before_is_refused(gpu, memory):
    capsule = memory.__dlpack__()
    taken = Taken(capsule)
    with pytest.raises(TypeError, match="capsule"):
        vkgdr.Memory(gpu, 4096).copy_from_device(Producer(lambda **_: capsule))
    taken.end()


NEW_CAPSULE = ctypes.pythonapi.PyCapsule_New
NEW_CAPSULE.argtypes, NEW_CAPSULE.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object


@pytest.mark.parametrize(("bits", "flags", "nbytes"), [(4, 0, 32), (4, 4, 64), (6, 0, 48), (6, 4, 64), (8, 4, 64)])
def test_elements_of_less_than_a_byte_may_be_padded(gpu, bits, flags, nbytes):
    memory = vkgdr.Memory(gpu, 64)
    capsule = memory.__dlpack__(max_version=(1, 1))
    managed = versioned(capsule)
    managed.tensor.bits, managed.flags = bits, flags
    assert vkgdr.Memory.from_capsule(capsule).nbytes == nbytes


def test_padded_vectors_are_refused(gpu):
    capsule = vkgdr.Memory(gpu, 64).__dlpack__(max_version=(1, 1))
    managed = versioned(capsule)
    managed.tensor.bits, managed.tensor.lanes, managed.flags = 4, 2, 4
    with pytest.raises(BufferError, match="2 lanes of 4 bits"):
        vkgdr.Memory.from_capsule(capsule)


def test_a_tensor_in_memory_of_this_package_is_kept_by_all_views(gpu):
    memory, deleted = vkgdr.Memory(gpu, 64), []
    shape = (ctypes.c_int64 * 1)(64)
    tensor = Tensor(memory.device_ptr, Device(CUDA, 0), 1, 1, 8, 1, shape, None, 0)
    managed = Legacy(tensor, None, DELETER(deleted.append))
    imported = vkgdr.Memory.from_capsule(NEW_CAPSULE(ctypes.addressof(managed), b"dltensor", None))
    host, part, exported = imported.host, imported[8:16], imported.__dlpack__()
    del imported
    for last in ("host", "part", "exported"):
        gc.collect()
        assert not deleted, last
        if last == "host":
            del host
        elif last == "part":
            del part
    del exported
    gc.collect()
    assert len(deleted) == 1


def test_a_view_drops_a_tensor_whose_library_lets_go_of_the_interpreter(run_python):
    # As PyTorch and Warp do: ctypes calls the deleter without the interpreter's lock.
    code = """
        import vkgdr
        from capsules import Taken

        class Tensor:
            def __init__(self, memory):
                self.__cuda_array_interface__ = memory.__cuda_array_interface__
                self.taken = Taken(memory.__dlpack__())

            def __del__(self):
                self.taken.end()

        gpu = vkgdr.Vkgdr.open_primary_context(0)
        view = vkgdr.host_view(Tensor(vkgdr.Memory(gpu, 4096)))
        del view
        print(gpu.stats()["live_allocations"])
        kept = vkgdr.host_view(Tensor(vkgdr.Memory(gpu, 4096)))  # until the interpreter's end
    """
    assert run_python(code).stdout == "0\n"


def test_memory_goes_with_the_state_of_a_thread_that_another_library_made(primary):
    local, live = threading.local(), counter(primary)

    @DELETER
    def body(_):
        local.memory = vkgdr.Memory(primary, 4096)

    for _ in range(3):
        native.call_on_thread(body)
    assert live() == 0
