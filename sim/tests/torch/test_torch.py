"""PyTorch's CUDA wheel on the simulated GPU: everything but kernels, which the wheel has as machine code only.

``nox -s torch`` makes the environment and runs it.
"""

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.cuda.memory import CUDAPluggableAllocator

CUDA = torch.device("cuda")
MIB = 1 << 20


def numbers(count: int = 1000) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32)


def test_there_is_a_device() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() >= 1
    assert torch.cuda.get_device_capability() == (8, 0)
    properties = torch.cuda.get_device_properties(0)
    assert "Simulated" in properties.name
    assert properties.total_memory > 0
    assert properties.multi_processor_count == 108
    assert torch.cuda.get_device_name() == properties.name


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64]
)
def test_tensors_go_to_the_device_and_back(dtype: torch.dtype) -> None:
    host = torch.arange(1000).to(dtype)
    there = host.cuda()
    assert there.is_cuda
    assert there.device.index == 0
    assert torch.equal(there.cpu(), host)
    assert torch.equal(there.clone().cpu(), host)
    assert torch.equal(there[100:200].cpu(), host[100:200])
    there.zero_()
    assert torch.count_nonzero(there.cpu()) == 0


def test_copies_between_tensors() -> None:
    host = numbers()
    first, second = torch.empty(1000, device=CUDA), torch.zeros(1000, device=CUDA)
    first.copy_(host)
    second.copy_(first)
    assert torch.equal(second.cpu(), host)
    assert torch.equal(first.view(10, 100)[3].cpu(), host[300:400])
    assert first.tolist() == host.tolist()
    assert first[5].item() == 5.0


def test_pinned_memory_is_copied_without_blocking() -> None:
    pinned = numbers().pin_memory()
    assert pinned.is_pinned()
    assert not numbers().is_pinned()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        there = pinned.to(CUDA, non_blocking=True)
        back = torch.empty(1000, pin_memory=True)
        back.copy_(there, non_blocking=True)
    stream.synchronize()
    assert stream.query()
    assert torch.equal(back, pinned)


def test_streams_and_events() -> None:
    first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    host = numbers()
    with torch.cuda.stream(first):
        begin.record()
        there = host.cuda()
        end.record()
    second.wait_event(end)
    with torch.cuda.stream(second):
        there.record_stream(second)
        copy = there.clone()
    torch.cuda.synchronize()
    assert begin.query()
    assert end.query()
    assert begin.elapsed_time(end) >= 0
    assert torch.equal(copy.cpu(), host)
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_statistics_of_the_allocator() -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    big = torch.empty(64 * MIB, dtype=torch.uint8, device=CUDA)
    assert torch.cuda.memory_allocated() == before + 64 * MIB
    reserved = torch.cuda.memory_reserved()
    free, total = torch.cuda.mem_get_info()
    assert reserved >= 64 * MIB
    assert 0 < free <= total - reserved
    del big
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.memory_reserved() == reserved, "kept for the next tensor"
    assert torch.cuda.max_memory_allocated() == before + 64 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < reserved
    assert torch.cuda.mem_get_info()[0] >= free + 64 * MIB
    assert torch.cuda.memory_snapshot() is not None


def test_too_much_memory_is_an_error_that_can_be_handled() -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device=CUDA)
    assert torch.equal(numbers().cuda().cpu(), numbers())


def test_kernels_are_an_error_that_says_so() -> None:
    there = numbers().cuda()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no kernel image is available"):
            there + 1
    assert torch.equal(there.cpu(), numbers()), "the context still works"


def test_copies_are_captured_in_a_graph() -> None:
    source, target = numbers().cuda(), torch.zeros(1000, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        target.copy_(source)
        copy = target.clone()
    assert torch.count_nonzero(target.cpu()) == 0, "nothing is done yet"
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(target.cpu(), numbers())
    assert torch.equal(copy.cpu(), numbers())
    source.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.count_nonzero(copy.cpu()) == 0


def test_threads_have_devices_and_streams_of_their_own() -> None:
    failures = []

    def work(value: int) -> None:
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for _ in range(20):
                    host = torch.full((1000,), value)
                    assert torch.equal(host.cuda().cpu(), host)
        except BaseException as failure:  # noqa: BLE001 - handed to the test's thread
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_arrays_of_others_are_shared() -> None:
    there = numbers().cuda()
    interface = there.__cuda_array_interface__
    assert interface["data"][0] == there.data_ptr()
    again = torch.from_dlpack(there)
    assert again.data_ptr() == there.data_ptr()
    assert torch.equal(again.cpu(), numbers())


ALLOCATOR = r"""
#include <stddef.h>
#include <stdint.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
static int live, total;
void *allocate(ptrdiff_t size, int device, void *stream) {
    void *pointer = NULL;
    (void)device, (void)stream;
    if (cudaMalloc(&pointer, (size_t)size) != 0) return NULL;
    live++, total++;
    return pointer;
}
void release(void *pointer, size_t size, int device, void *stream) {
    (void)size, (void)device, (void)stream;
    cudaFree(pointer);
    live--;
}
int live_blocks(void) { return live; }
int all_blocks(void) { return total; }
"""


def test_a_pool_takes_its_memory_from_a_pluggable_allocator(compiled) -> None:
    library = compiled(ALLOCATOR)
    counts = ctypes.CDLL(library)
    allocator = CUDAPluggableAllocator(library, "allocate", "release")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        there = torch.empty(1000, device=CUDA)
    there.copy_(numbers())
    assert counts.live_blocks() == 1
    assert torch.equal(there.cpu(), numbers())
    del there, pool
    torch.cuda.empty_cache()
    assert (counts.live_blocks(), counts.all_blocks()) == (0, 1)


# PyTorch asks NVML, which the simulator lacks, whether memory can be shared over a fabric: 3 is "not supported".
NVML = """
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, const char **device) { *device = id; return 0; }
int nvmlDeviceGetGpuFabricInfoV(void) { return 3; }
int nvmlDeviceGetNvLinkRemoteDeviceType(void) { return 3; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void) { return 3; }
int nvmlDeviceGetComputeRunningProcesses(void) { return 3; }
int nvmlSystemGetCudaDriverVersion_v2(void) { return 3; }
"""


def test_expandable_segments_grow_in_place(compiled: Callable[[str], str]) -> None:
    library = Path(compiled(NVML))
    library.rename(library.with_name("libnvidia-ml.so.1"))
    program = (
        "import torch\n"
        "parts = [torch.full((8 << 20,), value, dtype=torch.uint8).cuda() for value in range(10)]\n"
        "assert all(part.cpu().eq(value).all() for value, part in enumerate(parts))\n"
        "segments = torch.cuda.memory_snapshot()\n"
        "assert len(segments) == 1 and segments[0]['is_expandable'], segments\n"
        "large = torch.ones(100 << 20, dtype=torch.uint8).cuda()\n"
        "assert large.cpu().eq(1).all()\n"
        "del parts, large\n"
        "torch.cuda.empty_cache()\n"
        "assert torch.cuda.memory_reserved() == 0\n"
    )
    paths = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {
        **os.environ,
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
    }
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=300)
