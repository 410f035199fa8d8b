"""Every method and attribute of freed and unfinished memory, closed handles and released mappings."""

import sys
from functools import partial

import numpy as np
import pytest
import vkgdr
from everything import SIZE, members, refused
from vkgdr.compat import dpctl, pyopencl, rmm

# ---- freed memory

# Attributes of the object, not of its bytes: usable after a free.
STILL = {
    "flags",
    "freed",
    "gpudata",
    "map_count",
    "name",
    "owner",
    "parent",
    "pending_views",
    "reference_count",
    "reference_obj",
}

# Methods that do nothing once the memory is freed.
QUIET = {"free", "release"}

ARGUMENTS = {
    "as_buffer": (5,),
    "bind_to_stream": (0,),
    "copy_from_host": (b"x",),
    "free_async": (0,),
    "get_info": ("size",),
    "get_sub_region": (0, 1),
    "migrate": ("host",),
    "record_stream": (0,),
    "reserve": (2 * SIZE,),
    "resize": (10,),
}


def used(thing, name, is_method, arguments):
    """Get an attribute, or call a method."""
    value = getattr(thing, name)
    return value(*arguments) if is_method else value


def test_every_method_and_attribute_of_freed_memory_raises(anything):
    other = vkgdr.Memory(anything.owner, 10)
    anything.free()
    for name, is_method in members(anything):
        if name in STILL:
            getattr(anything, name)
        elif name in QUIET:
            getattr(anything, name)()
        else:
            arguments = (other,) if name == "copy_from_device" else ARGUMENTS.get(name, ())
            refused(partial(used, anything, name, is_method, arguments), vkgdr.FreedError, "freed", name)


def check_protocols(memory, gpu):
    """Check that every protocol of memory raises, and that it can be shown and compared."""
    assert "freed" in repr(memory)
    assert isinstance(hash(memory), int)
    assert isinstance(sys.getsizeof(memory), int)
    assert memory == memory
    assert memory.pending_views == 0
    uses = {
        "len": len,
        "bool": bool,
        "bytes": bytes,
        "bytearray": bytearray,
        "memoryview": memoryview,
        "asarray": np.asarray,
        "frombuffer": np.frombuffer,
        "from_dlpack": lambda m: np.from_dlpack(m, device="cpu"),
        "slice": lambda m: m[:1],
        "array interface": lambda m: m.__array_interface__,
        "cuda array interface": lambda m: m.__cuda_array_interface__,
        "dlpack": lambda m: m.__dlpack__(),
        "dlpack device": lambda m: m.__dlpack_device__(),
        "reduce": lambda m: m.__reduce__(),
        "map": lambda m: m.map(),
        "source": lambda m: vkgdr.Memory(gpu, SIZE).copy_from_device(m),
        "ops source": lambda m: pyopencl.copy(vkgdr.Memory(gpu, SIZE), m),
        "ops target": lambda m: pyopencl.copy(m, vkgdr.Memory(gpu, SIZE)),
        "ops fill": lambda m: pyopencl.fill(m, b"x"),
        "host view": vkgdr.host_view,
        "dpctl": dpctl.as_memory,
        "device pointer": lambda m: m.device_ptr,
    }
    for name, use in uses.items():
        refused(partial(use, memory), vkgdr.FreedError, "freed", name)


def test_every_protocol_of_freed_memory_raises(anything):
    gpu = anything.owner
    anything.free()
    check_protocols(anything, gpu)


UNFINISHED = [vkgdr.Memory, vkgdr.RawMemory, vkgdr.MemoryObject, rmm.Buffer]
UNFINISHED += [dpctl.MemoryShared, dpctl.MemoryHost, dpctl.MemoryDevice]


@pytest.mark.parametrize("cls", UNFINISHED)
def test_memory_whose_init_did_not_run_is_freed_memory(gpu, cls):
    class Careless(cls):
        def __init__(self):
            pass

        def __del__(self):
            self.free()

    check_protocols(Careless(), gpu)
    assert Careless() != Careless()


def test_freed_memory_is_freed_again_in_every_way(anything):
    for _ in range(2):
        anything.free()
        anything.free(force=True)
    with anything:
        pass
    assert anything.freed


# ---- handles, maps and events that are closed


def test_every_method_and_attribute_of_a_closed_handle_raises(gpu):
    gpu.close()
    arguments = {
        "supports": ("mapped",),
        "memory_type_of": ("mapped",),
        "with_vulkan_queue": (print,),
        "set_shortage_timeout": (1,),
    }
    for name, is_method in members(gpu):
        if name in ("close", "closed"):
            continue
        refused(partial(used, gpu, name, is_method, arguments.get(name, ())), vkgdr.FreedError, "closed", name)
    for make in (vkgdr.Memory, vkgdr.RawMemory):
        with pytest.raises(vkgdr.FreedError, match="closed"):
            make(gpu, 5)
    with pytest.raises(vkgdr.FreedError, match="closed"):
        vkgdr.Memory.pitched(gpu, 1, 1, 1)


def test_a_handle_or_a_map_without_init_has_a_repr():
    for unfinished in (vkgdr.Vkgdr.__new__(vkgdr.Vkgdr), vkgdr.Map.__new__(vkgdr.Map)):
        assert "vkgdr" in repr(unfinished)
    handle = vkgdr.Vkgdr.__new__(vkgdr.Vkgdr)
    assert handle.closed
    handle.close()
    with pytest.raises(vkgdr.FreedError):
        vkgdr.Memory(handle, 5)


def test_a_released_map_is_released_again_quietly_and_gives_nothing(gpu):
    mapping = vkgdr.Memory(gpu, SIZE).map()
    mapping.release()
    mapping.release()
    mapping.wait()
    assert mapping.released
    assert mapping.event.is_complete
    for use in (lambda m: m.array, np.asarray, lambda m: m.__array_interface__, lambda m: m.__enter__()):
        with pytest.raises(vkgdr.FreedError, match="released"):
            use(mapping)
