"""Measures the kernels of the simulated driver against those of another build of it, in one process.

    python3 compare.py NEW/libsimcuda.so BASE/libsimcuda.so [ROUNDS [PART-OF-A-NAME]]

Both run the same launches in turns. Times are the process's CPU time, so one processor's; results must be the same
bits. The last column has the new driver's millions of PTX instructions a second, of all threads, where the kernel's
loop tells their number.
"""

import ctypes
import os
import pathlib
import random
import statistics
import struct
import sys
import time

KERNELS = pathlib.Path(__file__).with_name("kernels")


class Driver:
    """A build of the driver, with a context and the kernels."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(pathlib.Path(path).resolve()))
        context = ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.context = context
        self.enter()
        self.modules = {}

    def __call__(self, name, *arguments):
        """Call a function of the driver."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def enter(self):
        """Make the context current."""
        self("cuCtxSetCurrent", self.context)

    def kernel(self, file, name):
        """Return a kernel of a file."""
        if file not in self.modules:
            module = ctypes.c_void_p()
            self("cuModuleLoadData", ctypes.byref(module), (KERNELS / f"{file}.ptx").read_bytes() + b"\0")
            self.modules[file] = module
        function = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(function), self.modules[file], name.encode())
        return function

    def memory(self, data):
        """Allocate memory with these bytes."""
        address = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(data)))
        self.write(address.value, data)
        return address.value

    def write(self, address, data):
        """Copy bytes to the device."""
        self("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def read(self, address, length):
        """Copy bytes from the device."""
        data = ctypes.create_string_buffer(length)
        self("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(length))
        return data.raw

    def free(self, address):
        """Free memory."""
        self("cuMemFree_v2", ctypes.c_uint64(address))

    def launch(self, function, grid, block, arguments):
        """Launch a kernel and return the CPU time in seconds."""
        pointers = (ctypes.c_void_p * len(arguments))(
            *[ctypes.cast(ctypes.pointer(a), ctypes.c_void_p) for a in arguments]
        )
        start = time.process_time()
        self("cuLaunchKernel", function, *grid, *block, 0, None, pointers, None)
        self("cuCtxSynchronize")
        return time.process_time() - start


class Buffer:
    """Memory of a launch: its first bytes, and whether the launch's result is in it."""

    def __init__(self, data, *, result=False):
        self.data, self.result = data, result


def floats(count):
    """Make random values from -1 to 1."""
    source = random.Random(count)
    return struct.pack(f"{count}f", *[source.uniform(-1, 1) for _ in range(count)])


def integers(count, low, high):
    """Make random values of a range."""
    source = random.Random(count)
    return struct.pack(f"{count}i", *[source.randint(low, high) for _ in range(count)])


def array(buffer, *shape, item=4):
    """Make a numba array, as seven or five arguments."""
    u64, total = ctypes.c_uint64, 1
    for length in shape:
        total *= length
    strides = [item] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return [u64(0), u64(0), u64(total), u64(item), buffer, *map(u64, shape), *map(u64, strides)]


def cases():
    """Name, file, kernel, grid, block, arguments, and the number of instructions in the loops, of the results."""
    u64, i32, f32, f64 = ctypes.c_uint64, ctypes.c_int32, ctypes.c_float, ctypes.c_double
    n = 512
    image = array(Buffer(bytes(n * n), result=True), n, n, item=1)
    yield (
        "numba Mandelbrot 512x512",
        "numba_mandelbrot",
        "mandelbrot",
        (32, 32, 1),
        (16, 16, 1),
        [f64(-2.0), f64(-1.5), f64(3.0 / n), i32(200), *image],
        lambda results: 21 * sum(min(count + 1, 200) for count in results[0]),
    )
    n = 256
    a, b = (array(Buffer(floats(n * n + shift)[: 4 * n * n]), n, n) for shift in (0, 1))
    c = array(Buffer(bytes(4 * n * n), result=True), n, n)
    for name, count in ("product", n**3 * 87 // 4), ("tiled_product", n**3 * 78 // 16):
        matrices, threads = [*a, *b, *c], ((16, 16, 1), (16, 16, 1))
        yield f"numba {name} 256^3", f"numba_{name}", name, *threads, matrices, lambda _, count=count: count
    n = 1 << 20
    x, y = array(Buffer(floats(n)), n), array(Buffer(floats(n + 1)[: 4 * n], result=True), n)
    yield "numba saxpy 2^20", "numba_saxpy", "saxpy", (256, 1, 1), (256, 1, 1), [f32(2.5), *x, *y], None
    values, counts = array(Buffer(integers(n, 0, 1 << 30)), n), array(Buffer(bytes(1024), result=True), 256)
    yield "numba histogram 2^20", "numba_histogram", "histogram", (64, 1, 1), (256, 1, 1), [*values, *counts], None
    yield (
        "pycuda elementwise 2^20",
        "kernels",
        "elementwise",
        (512, 1, 1),
        (256, 1, 1),
        [f32(5), Buffer(floats(n)), f32(6), Buffer(floats(n)), Buffer(bytes(4 * n), result=True), u64(n)],
        None,
    )
    yield (
        "reduction 2^20",
        "kernels",
        "reduction",
        (64, 1, 1),
        (256, 1, 1),
        [Buffer(floats(n)), Buffer(bytes(4 * 64), result=True), i32(n)],
        None,
    )
    data = Buffer(integers(n, -1000, 1000))
    for name, grid in ("scan", 4096), ("cub_warp_reduce", 256), ("cub_block_scan", 256):
        result = Buffer(bytes(4 * n), result=True)
        size = [] if name == "scan" else [i32(n)]
        yield f"{name} 2^20", "kernels", name, (grid, 1, 1), (256, 1, 1), [data, result, *size], None
    n = 1 << 14
    result = Buffer(bytes(4 * n), result=True)
    yield "collatz 2^14", "kernels", "collatz", (64, 1, 1), (256, 1, 1), [Buffer(integers(n, 1, 100000)), result], None
    lock, count = Buffer(bytes(4)), Buffer(bytes(4), result=True)
    yield "spin lock 2^12", "kernels", "spin_lock", (32, 1, 1), (128, 1, 1), [lock, count], None
    one = [Buffer(floats(1 << 16)), Buffer(bytes(4), result=True), i32(1 << 16)]
    yield "one thread, 2^16 loops", "kernels", "reduction", (1, 1, 1), (1, 1, 1), one, None
    n = 1 << 15
    sum_ = [f32(5), Buffer(floats(n)), f32(6), Buffer(floats(n)), Buffer(bytes(4 * n), result=True), u64(n)]
    yield "2^15 blocks of a thread", "kernels", "elementwise", (n, 1, 1), (1, 1, 1), sum_, None
    n = 1 << 10
    numbers = [Buffer(integers(n, 1, 100000)), Buffer(bytes(4 * n), result=True)]
    yield "2^10 of a thread, collatz", "kernels", "collatz", (n, 1, 1), (1, 1, 1), numbers, None


def run(driver, file, name, grid, block, arguments):
    """Run a case and return its time and its results."""
    driver.enter()
    function = driver.kernel(file, name)
    memory = {argument: driver.memory(argument.data) for argument in arguments if isinstance(argument, Buffer)}
    values = [ctypes.c_uint64(memory[a]) if isinstance(a, Buffer) else a for a in arguments]
    seconds = driver.launch(function, grid, block, values)
    results = [driver.read(address, len(buffer.data)) for buffer, address in memory.items() if buffer.result]
    for address in memory.values():
        driver.free(address)
    return seconds, results


def main():
    """Print a table."""
    new, base = Driver(sys.argv[1]), Driver(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    only = sys.argv[4] if len(sys.argv) > 4 else ""
    print(f"{'kernel':26}{'base ms':>10}{'new ms':>10}{'least ratio':>13}{'median':>8}{'M/s':>7}")
    for title, file, name, grid, block, arguments, count in cases():
        if only not in title:
            continue
        times = ([], [])
        for _ in range(rounds):
            results = []
            for driver, of_driver in zip((base, new), times, strict=True):
                seconds, result = run(driver, file, name, grid, block, arguments)
                of_driver.append(seconds)
                results.append(result)
            if results[0] != results[1]:
                sys.exit(f"{title}: the results differ")
        ratios = [old / seconds for old, seconds in zip(*times, strict=True)]
        old, seconds = (min(of_driver) for of_driver in times)
        speed = f"{count(results[1]) / seconds / 1e6:.0f}" if count else "-"
        middle = statistics.median(ratios)
        print(
            f"{title:26}{1000 * old:10.2f}{1000 * seconds:10.2f}{min(ratios):13.2f}{middle:8.2f}{speed:>7}", flush=True
        )


if __name__ == "__main__":
    os.environ.setdefault("SIMCUDA_QUIET", "1")
    main()
