"""Makes numba.ptx: kernels as programs with numba have them. Needs numba-cuda with nvvm, and no GPU."""

import pathlib

from numba import cuda, float32, float64, int32, uint8, void


def mandelbrot(low_x, low_y, step, iterations, image):
    """Count the steps until each point's orbit leaves a circle."""
    x, y = cuda.grid(2)
    if y < image.shape[0] and x < image.shape[1]:
        c = complex(low_x + x * step, low_y + y * step)
        z = 0j
        count = iterations
        for i in range(iterations):
            z = z * z + c
            if z.real * z.real + z.imag * z.imag >= 4:
                count = i
                break
        image[y, x] = count & 255


def product(a, b, c):
    """Multiply matrices."""
    row, column = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total


def tiled_product(a, b, c):
    """Multiply matrices by tiles in shared memory."""
    tile_a = cuda.shared.array((16, 16), float32)
    tile_b = cuda.shared.array((16, 16), float32)
    row, column = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range(cuda.gridDim.x):
        tile_a[x, y] = a[row, y + tile * 16]
        tile_b[x, y] = b[x + tile * 16, column]
        cuda.syncthreads()
        for k in range(16):
            total += tile_a[x, k] * tile_b[k, y]
        cuda.syncthreads()
    c[row, column] = total


def saxpy(a, x, y):
    """Compute `y = a * x + y`."""
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        y[i] = a * x[i] + y[i]


def histogram(values, counts):
    """Count the values' low bytes."""
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(counts, values[i] & 255, 1)


KERNELS = {
    mandelbrot: void(float64, float64, float64, int32, uint8[:, ::1]),
    product: void(float32[:, ::1], float32[:, ::1], float32[:, ::1]),
    tiled_product: void(float32[:, ::1], float32[:, ::1], float32[:, ::1]),
    saxpy: void(float32, float32[::1], float32[::1]),
    histogram: void(int32[::1], int32[::1]),
}

for kernel, signature in KERNELS.items():
    text, _ = cuda.compile_ptx(kernel, signature, cc=(8, 0), abi_info={"abi_name": kernel.__name__})
    pathlib.Path(__file__).with_name(f"numba_{kernel.__name__}.ptx").write_text(text)
