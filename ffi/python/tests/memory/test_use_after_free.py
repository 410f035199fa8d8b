"""Every method and attribute of freed memory, closed handles and released mappings."""

from functools import partial

import numpy as np
import pytest
import vkgdr
import vkgdr.compat.dpctl
import vkgdr.compat.pyopencl
from everything import members, refused

SIZE = 4096


@pytest.fixture
def memory(gpu):
    return vkgdr.Memory(gpu, SIZE)


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


def test_every_protocol_of_freed_memory_raises(anything):
    gpu = anything.owner
    anything.free()
    assert "freed" in repr(anything)
    assert isinstance(hash(anything), int)
    assert anything == anything
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
        "map": vkgdr.Map,
        "source": lambda m: vkgdr.Memory(gpu, SIZE).copy_from_device(m),
        "ops source": lambda m: vkgdr.compat.pyopencl.copy(vkgdr.Memory(gpu, SIZE), m),
        "ops target": lambda m: vkgdr.compat.pyopencl.copy(m, vkgdr.Memory(gpu, SIZE)),
        "ops fill": lambda m: vkgdr.compat.pyopencl.fill(m, b"x"),
        "host view": vkgdr.host_view,
    }
    for name, use in uses.items():
        refused(partial(use, anything), vkgdr.FreedError, "freed", name)


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


def test_a_released_map_is_released_again_quietly_and_gives_nothing(memory):
    mapping = memory.map()
    mapping.release()
    mapping.release()
    mapping.wait()
    assert mapping.released
    assert mapping.event.is_complete
    for use in (lambda m: m.array, np.asarray, lambda m: m.__array_interface__, lambda m: m.__enter__()):
        with pytest.raises(vkgdr.FreedError, match="released"):
            use(mapping)
