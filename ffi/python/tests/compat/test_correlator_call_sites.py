"""The package as the correlator and its libraries use it; the numbers are rows of the list of call sites."""

import ctypes
import gc
import importlib.abc
import importlib.machinery
import sys
import threading
import types

import native
import numpy as np
import pytest
import simulator
import vkgdr
from correlator import Context, DeviceArray, MappedArray, drv, gpuarray
from neighbours import open_with


@pytest.fixture
def context(no_context):
    context = Context()
    yield context
    gc.collect()
    context.close()


def open_coherent(context):
    """Open the GPU like the correlator, which never flushes."""
    assert hash(context.device) == 0
    return open_with(vkgdr.OpenFlags.REQUIRE_COHERENT_BIT)


@pytest.fixture
def handle(context):
    return open_coherent(context)


def test_row_1_a_handle_is_opened_with_no_context_and_a_flag(context, cuda):
    assert cuda.current() == 0
    handle = open_coherent(context)
    assert handle.device == 0
    assert cuda.current() == 0


def test_row_3_memory_of_pycuda_is_reached_by_a_bare_import(run_python):
    code = """
        import sys
        import vkgdr
        assert not any(name.split(".")[0] == "pycuda" for name in sys.modules)
        import pycuda.driver as drv
        drv.init(); context = drv.Device(0).make_context()
        handle = vkgdr.Vkgdr(hash(drv.Device(0)))
        memory = vkgdr.pycuda.Memory(handle, 100)
        print(len(memory))
        del memory
        context.pop()
    """
    assert run_python(code).stdout == "100\n"


def test_row_4_the_array_has_one_dimension_and_keeps_the_memory(handle, context, simulated):
    before = simulator.ledger()
    with context:
        memory = vkgdr.pycuda.Memory(handle, 4 * 6 * 8)
    flat = np.asarray(memory)
    assert (flat.ndim, flat.itemsize, flat.shape) == (1, 1, (192,))
    assert flat.flags.writeable
    assert flat.flags.c_contiguous
    assert flat.ctypes.data % 64 == 0
    view = flat.view(np.complex64).reshape(4, 6)[:3, :5]
    del flat, memory
    gc.collect()
    view[:] = 1j
    assert simulator.ledger() != before
    del view
    gc.collect()
    assert simulator.ledger() == before


def test_row_5_a_padded_device_array_lies_over_raw_memory(handle, context):
    array = MappedArray(handle, context, (5, 7), np.float32, (8, 16))
    assert array.host.shape == (5, 7)
    assert not array.host.flags.c_contiguous
    array.host[:] = np.arange(35).reshape(5, 7)
    assert (array.device.get() == np.arange(35).reshape(5, 7)).all()
    array.device.set(np.ones((5, 7), np.float32))
    assert (array.host == 1).all()
    with context:
        stream = drv.Stream()
    array.device.zero_async(stream)
    with context:
        stream.synchronize()
    assert (array.host == 0).all()
    assert int(array.device.buffer.gpudata) == array.device.buffer.ptr


def test_rows_7_and_8_many_tiny_arrays(handle, context, simulated):
    before = simulator.ledger()
    arrays = [MappedArray(handle, context, (4, 2), np.float32) for _ in range(200)]
    for number, array in enumerate(arrays):
        array.host[:] = number
    assert all((array.device.get() == number).all() for number, array in enumerate(arrays))
    del arrays, array
    gc.collect()
    assert simulator.ledger() == before


def test_row_9_strided_writes_need_no_flush(handle, context, cuda):
    array = MappedArray(handle, context, (6, 10), np.complex64, (8, 16))
    array.host[:] = 0
    array.host[::2, 3] = 5
    array.host[1, :] = np.arange(10)
    array.host[3:5][:, [1, 2]] = 2
    expected = np.zeros((6, 10), np.complex64)
    expected[::2, 3] = 5
    expected[1, :] = np.arange(10)
    expected[3:5][:, [1, 2]] = 2
    # Read from the device, without a flush in between.
    assert (array.device.get() == expected).all()


def test_row_10_receive_chunks_are_one_object_on_both_sides(handle, context):
    polarisations, stride = 2, 50 << 20
    with context:
        memory = vkgdr.pycuda.Memory(handle, polarisations * stride)
    buffer = np.array(memory, copy=False).view(np.uint8).reshape(polarisations, stride)
    array = DeviceArray(context, (polarisations, stride), np.uint8, raw=memory)
    assert buffer.ctypes.data == memory.host_ptr
    assert array.buffer.gpudata is memory
    buffer[1, -3:] = (1, 2, 3)
    with context:
        tail = np.empty(3, np.uint8)
        drv.memcpy_dtoh(tail, int(array.buffer.gpudata) + polarisations * stride - 3)
    assert tail.tolist() == [1, 2, 3]


def test_row_11_threads_of_c_write_through_the_array_while_python_runs(handle, context):
    library = native.library()
    with context:
        memory = vkgdr.pycuda.Memory(handle, 8 * 4096)
    array = np.array(memory, copy=False).view(np.uint8).reshape(8, 4096)
    view = memoryview(array)
    assert view.c_contiguous
    assert not view.readonly
    writers = library.start_writers(array.ctypes.data, 4096, 8, 200, None)
    # The program continues, with this memory and with other memory.
    for _ in range(50):
        memory.flush()
        assert memory.pending_views >= 1
        assert array[:, 0].max() <= 255
        with context:
            assert len(vkgdr.pycuda.Memory(handle, 64)) == 64
    library.join_writers(writers)
    for row in range(8):
        assert (array[row] == (row + 199) % 256).all()
    with context:
        assert (gpuarray.GPUArray((8, 4096), np.uint8, gpudata=memory).get() == array).all()


def test_row_11_the_last_reference_is_dropped_on_a_thread_of_c(handle, context, simulated):
    library = native.library()
    before = simulator.ledger()
    for _ in range(20):
        with context:
            memory = vkgdr.pycuda.Memory(handle, 4096)
        array = np.array(memory, copy=False)
        reference = ctypes.py_object(array)
        ctypes.pythonapi.Py_IncRef(reference)
        address = id(array)
        del array, memory, reference
        gc.collect()
        assert simulator.ledger() != before
        assert library.drop_on_thread(address) == 0
        assert simulator.ledger() == before


def test_row_11_the_writers_drop_what_they_have_written(handle, context, simulated):
    library = native.library()
    before = simulator.ledger()
    with context:
        memory = vkgdr.pycuda.Memory(handle, 8 * 4096)
    array = np.array(memory, copy=False)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
    writers = library.start_writers(array.ctypes.data, 4096, 8, 50, id(array))
    del array, memory
    # Joins without the GIL, which the last writer needs.
    library.join_writers(writers)
    assert simulator.ledger() == before


def test_row_12_regions_are_copied_between_two_device_arrays(handle, context):
    source = MappedArray(handle, context, (8, 10), np.uint16, (8, 32))
    target = MappedArray(handle, context, (8, 10), np.uint16, (8, 16))
    source.host[:] = np.arange(80).reshape(8, 10)
    target.host[:] = 0
    with context:
        stream = drv.Stream()
        event = drv.Event()
    source.device.copy_region(stream, target.device, slice(2, 5), 1)
    with context:
        event.record(stream)
        event.synchronize()
    expected = np.zeros((8, 10), np.uint16)
    expected[1:4] = source.host[2:5]
    assert (target.host == expected).all()


def test_row_12_chunks_are_used_again_after_their_events(handle, context):
    with context:
        stream = drv.Stream()
        chunks = [vkgdr.pycuda.Memory(handle, 1024) for _ in range(4)]
        target = drv.mem_alloc(1024)
    back = np.empty(1024, np.uint8)
    for number in range(40):
        chunk = chunks[number % 4]
        np.asarray(chunk)[:] = number
        with context:
            drv.memcpy_dtod_async(target, chunk, 1024, stream)
            event = drv.Event()
            event.record(stream)
            event.synchronize()
            drv.memcpy_dtoh(back, target)
        assert (back == number).all()
    del target
    chunks.clear()


def test_row_13_the_buffer_of_the_device_address_is_inherited(handle, context):
    with context:
        memory = vkgdr.pycuda.Memory(handle, 1024)
    array = DeviceArray(context, (1024,), np.uint8, raw=memory)
    view = array.buffer.gpudata.as_buffer(1024)
    assert np.frombuffer(view, np.uint8).ctypes.data == memory.device_ptr
    with context:
        plain = drv.mem_alloc(64)
    assert plain.as_buffer(64).nbytes == 64


def test_row_14_handles_are_made_and_dropped_again_and_again(context):
    for _ in range(200):
        handle = open_coherent(context)
        with context:
            assert len(vkgdr.pycuda.Memory(handle, 8)) == 8


def test_row_14_the_drivers_are_never_unloaded(context, simulated):
    def libraries():
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return {line.split()[-1] for line in maps if "libvulkan" in line or "libcuda" in line}

    vkgdr.Vkgdr(0)
    before = libraries()
    gc.collect()
    assert before
    assert libraries() == before
    assert len(libraries()) >= 2


def test_row_16_a_mock_of_the_package_is_taken_for_it():
    """Import the package with mocks like autodoc's, whose finder invents packages with a ``__path__``."""

    class Mock(types.ModuleType):
        __path__: list[str] = []  # noqa: RUF012

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"__module__": self.__name__})

    class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, fullname, path=None, target=None):
            if fullname.split(".")[0] != "vkgdr":
                return None
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

        def create_module(self, spec):
            return Mock(spec.name)

        def exec_module(self, module):
            pass

    finder = Finder()
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "vkgdr"}
    sys.meta_path.insert(0, finder)
    try:
        namespace: dict[str, object] = {}
        exec("import vkgdr\nimport vkgdr.pycuda\ndef f(x: vkgdr.Vkgdr) -> vkgdr.pycuda.Memory: ...", namespace)
        assert namespace["f"].__annotations__["x"].__name__ == "Vkgdr"
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "vkgdr"]:
            del sys.modules[name]
        sys.modules.update(kept)


def test_a_pipeline_of_threads_as_the_correlator_runs_one(handle, context, simulated):
    before = simulator.ledger()
    errors = []

    def engine(number):
        try:
            for _ in range(10):
                with context:
                    pass
                chunk = MappedArray(handle, context, (16, 16), np.uint16, (16, 32))
                chunk.host[:] = number
                assert (chunk.device.get() == number).all()
        except Exception as error:  # noqa: BLE001 - all that comes is reported
            errors.append(error)

    threads = [threading.Thread(target=engine, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    del threads
    gc.collect()
    assert simulator.ledger() == before
