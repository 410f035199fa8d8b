// The kernels of these tests. scripts/compile-ptx.py --option=-Isrc/ring --arch compute_75 compiles them to kernels.ptx, with the
// loads and stores of GPUs from Volta on.
#include "vkgdr_ring.cuh"

typedef unsigned long long u64;

// Nanoseconds.
static __device__ u64 now()
{
    u64 time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// The byte at an offset of a message.
static __device__ unsigned char byte_of(u64 number, u64 size, u64 at)
{
    return (unsigned char)(number * 31 + at * 7 + size);
}

// Reads messages until the ring ends, and answers the number of those that were wrong, of all, and of their bytes. Stops after
// `most` messages without closing. Spends `time` nanoseconds with each, or less if the next one comes `early`.
extern "C" __global__ void check(u64 address, u64 most, u64 early, u64 time)
{
    struct vkgdr_device_ring ring;
    u64 size, wrong = 0, count = 0, bytes = 0;
    if (!vkgdr_device_ring_open(&ring, address))
        return;
    while (count < most) {
        const unsigned char *message = vkgdr_device_ring_pop(&ring, &size);
        if (!message)
            break;
        u64 number = vkgdr_device_ring_number(&ring);
        bool right = ((u64)message & 15) == 0;
#pragma unroll 1
        for (u64 at = 0; at < size; at++)
            right &= message[at] == byte_of(number, size, at);
        wrong += !right;
        bytes += size;
        count++;
        for (u64 begin = now(); time && now() - begin < time;)
            if (early && (vkgdr_device_ring_peek(ring.message_head) & VKGDR_RING_POSITION) != ring.seen)
                break;
    }
    u64 *answer = (u64 *)vkgdr_device_ring_reserve(&ring, 24);
    if (answer) {
        answer[0] = wrong;
        answer[1] = count;
        answer[2] = bytes;
    }
    if (count < most)
        vkgdr_device_ring_close(&ring);
    else
        vkgdr_device_ring_release(&ring);
}

// Sends answers of 0 to `longest` bytes until it has sent `most` or the CPU aborts the ring. If there is a `time`, each is sent at
// once, and that many nanoseconds pass after it.
extern "C" __global__ void produce(u64 address, u64 most, u64 longest, u64 time)
{
    struct vkgdr_device_ring ring;
    if (!vkgdr_device_ring_open(&ring, address))
        return;
    for (u64 number = 0; number < most; number++) {
        u64 size = (number * 2654435761u >> 7) % (longest + 1);
        unsigned char *answer = vkgdr_device_ring_reserve(&ring, size);
        if (!answer)
            return;
#pragma unroll 1
        for (u64 at = 0; at < size; at++)
            answer[at] = byte_of(number, size, at);
        if (time)
            vkgdr_device_ring_commit(&ring);
        for (u64 begin = now(); time && now() - begin < time;)
            ;
    }
    vkgdr_device_ring_close(&ring);
}
