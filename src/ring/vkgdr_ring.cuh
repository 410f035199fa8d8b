/* The kernel's end of vkgdr's ring: messages from the CPU, and answers to it.
 *
 *     extern "C" __global__ void serve(unsigned long long address)
 *     {
 *         struct vkgdr_device_ring ring;
 *         unsigned long long size;
 *         if (!vkgdr_device_ring_open(&ring, address))
 *             return;
 *         while (const unsigned char *message = vkgdr_device_ring_pop(&ring, &size)) {
 *             unsigned char *answer = vkgdr_device_ring_reserve(&ring, size);
 *             for (unsigned long long i = 0; answer && i < size; i++)
 *                 answer[i] = message[i];
 *         }
 *         vkgdr_device_ring_close(&ring);
 *     }
 *
 * One thread calls these functions. Other threads of its block may read messages and write answers between two
 * __syncthreads(). One is after the call that returned the pointer, one before the next call. Messages and answers lie
 * at multiples of 16, in one piece.
 *
 * Answers are sent, and the room of messages is returned, by vkgdr_device_ring_commit(): call it after an answer that
 * the CPU waits for. It also happens when there is nothing to read, no room for an answer, or a quarter of the ring was
 * read.
 *
 * Needs no include; for nvcc, NVRTC and clang, compute capability 6.0 and newer. The same file may include vkgdr.h.
 * docs/ring.md explains which load and store orders what.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef VKGDR_RING_CUH
#define VKGDR_RING_CUH

/* The layout, which the library shares. */
#define VKGDR_RING_CLOSED (1ull << 63)
#define VKGDR_RING_ABORTED (1ull << 62)
#define VKGDR_RING_POSITION (VKGDR_RING_ABORTED - 1)
#define VKGDR_RING_SKIP (1ull << 63)
#define VKGDR_RING_UNIT 16ull
#define VKGDR_RING_HEAD 256
/* The number of the next answer, for the next kernel. */
#define VKGDR_RING_NUMBER 264
#define VKGDR_RING_TAIL 512

struct vkgdr_device_ring {
    /* Messages: the records, and the CPU's word in the same memory. The tail is in host memory. */
    const unsigned char *messages;
    unsigned long long message_capacity;
    const unsigned long long *message_head;
    unsigned long long *message_tail;
    /* The current record and its length, up to where the CPU has written, and what was returned. */
    unsigned long long position, offset, length, seen, returned;
    /* Answers: the records and the head in host memory. The tail is the CPU's word, in GPU memory. */
    unsigned char *answers;
    unsigned long long answer_capacity;
    unsigned long long *answer_head;
    const unsigned long long *answer_tail;
    /* After the last record, up to where the CPU was told, and what it has returned. */
    unsigned long long answer_position, answer_offset, answer_sent, answer_returned, answer_number;
    int ended;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
#define VKGDR_RING_PEEK "ld.relaxed.sys.u64 %0, [%1];"
#define VKGDR_RING_ACQUIRE "ld.acquire.sys.u64 %0, [%1];"
#define VKGDR_RING_FENCE "fence.acq_rel.sys;"
#define VKGDR_RING_PUT "st.relaxed.sys.u64 [%0], %1;"
#else
#define VKGDR_RING_PEEK "ld.volatile.u64 %0, [%1];"
#define VKGDR_RING_ACQUIRE "ld.volatile.u64 %0, [%1];\n\tmembar.sys;"
#define VKGDR_RING_FENCE "membar.sys;"
#define VKGDR_RING_PUT "st.volatile.u64 [%0], %1;"
#endif

/* A load that sees the CPU's latest store, but orders nothing. */
static __device__ __forceinline__ unsigned long long vkgdr_device_ring_peek(const unsigned long long *word)
{
    unsigned long long value;
    asm volatile(VKGDR_RING_PEEK : "=l"(value) : "l"(word) : "memory");
    return value;
}

/* A load before all later ones: what the CPU stored before the value is seen. */
static __device__ __forceinline__ unsigned long long vkgdr_device_ring_acquire(const unsigned long long *word)
{
    unsigned long long value;
    asm volatile(VKGDR_RING_ACQUIRE : "=l"(value) : "l"(word) : "memory");
    return value;
}

/* A store that the CPU sees whole, behind a fence. */
static __device__ __forceinline__ void vkgdr_device_ring_put(unsigned long long *word, unsigned long long value)
{
    asm volatile(VKGDR_RING_PUT : : "l"(word), "l"(value) : "memory");
}

/* Opens the ring at an address, which is vkgdr_ring_get_device_ptr() or Ring::device_ptr(). Goes on where an earlier
 * kernel has ended. Returns 0 if this header and the CPU's library have different versions: then the ring cannot be used. */
static __device__ inline int vkgdr_device_ring_open(struct vkgdr_device_ring *ring, unsigned long long address)
{
    const unsigned long long *control = (const unsigned long long *)address;
    unsigned char *device = (unsigned char *)address, *host = (unsigned char *)control[5];
    if (control[0] != 1)
        return 0;
    ring->ended = 0;
    ring->messages = (const unsigned char *)control[1];
    ring->message_capacity = control[2];
    ring->message_head = (const unsigned long long *)(device + VKGDR_RING_HEAD);
    ring->message_tail = (unsigned long long *)(host + VKGDR_RING_TAIL);
    ring->answers = (unsigned char *)control[3];
    ring->answer_capacity = control[4];
    ring->answer_head = (unsigned long long *)(host + VKGDR_RING_HEAD);
    ring->answer_tail = (const unsigned long long *)(device + VKGDR_RING_TAIL);

    ring->position = vkgdr_device_ring_acquire(ring->message_tail) & VKGDR_RING_POSITION;
    ring->seen = ring->returned = ring->position;
    ring->offset = ring->position % ring->message_capacity;
    ring->length = 0;
    ring->answer_position = vkgdr_device_ring_acquire(ring->answer_head) & VKGDR_RING_POSITION;
    ring->answer_sent = ring->answer_position;
    ring->answer_offset = ring->answer_position % ring->answer_capacity;
    ring->answer_number = vkgdr_device_ring_acquire((const unsigned long long *)(host + VKGDR_RING_NUMBER));
    ring->answer_returned = vkgdr_device_ring_acquire(ring->answer_tail) & VKGDR_RING_POSITION;
    return 1;
}

/* Sends the answers that were reserved, which must be complete, and returns the room of the messages before the current
 * one, all behind one fence. */
static __device__ inline void vkgdr_device_ring_commit(struct vkgdr_device_ring *ring)
{
    int sends = ring->answer_position != ring->answer_sent, returns = ring->position != ring->returned;
    if (!sends && !returns)
        return;
    if (sends)
        vkgdr_device_ring_put(ring->answer_head + 1, ring->answer_number);
    /* All earlier loads and stores before all later stores, as the CPU sees them. */
    asm volatile(VKGDR_RING_FENCE : : : "memory");
    if (sends) {
        ring->answer_sent = ring->answer_position;
        vkgdr_device_ring_put(ring->answer_head, ring->answer_position);
    }
    if (returns) {
        ring->returned = ring->position;
        vkgdr_device_ring_put(ring->message_tail, ring->position);
    }
}

/* Ends the current record. */
static __device__ __forceinline__ void vkgdr_device_ring_advance(struct vkgdr_device_ring *ring)
{
    ring->position += ring->length;
    ring->offset += ring->length;
    if (ring->offset == ring->message_capacity)
        ring->offset = 0;
    ring->length = 0;
}

/* The next message and its size, or null: there is none yet, or vkgdr_device_ring_ended(). The message before it may no
 * longer be used. */
static __device__ inline const unsigned char *vkgdr_device_ring_try_pop(struct vkgdr_device_ring *ring,
                                                                        unsigned long long *size)
{
    if (ring->ended)
        return 0;
    vkgdr_device_ring_advance(ring);
    for (;;) {
        /* Each time, so that an abort ends a long queue, too. */
        unsigned long long word = vkgdr_device_ring_peek(ring->message_head);
        if (word & VKGDR_RING_ABORTED) {
            ring->ended = 1;
            return 0;
        }
        if (ring->position == ring->seen) {
            if ((word & VKGDR_RING_POSITION) == ring->seen) {
                vkgdr_device_ring_commit(ring);
                ring->ended = (word & VKGDR_RING_CLOSED) != 0;
                return 0;
            }
            ring->seen = vkgdr_device_ring_acquire(ring->message_head) & VKGDR_RING_POSITION;
        }
        if (ring->position - ring->returned >= ring->message_capacity / 4)
            vkgdr_device_ring_commit(ring);
        const unsigned long long *header = (const unsigned long long *)(ring->messages + ring->offset);
        unsigned long long first = header[0];
        if (first != VKGDR_RING_SKIP) {
            ring->length = (first + 2 * VKGDR_RING_UNIT - 1) & ~(VKGDR_RING_UNIT - 1);
            *size = first;
            return (const unsigned char *)(header + 2);
        }
        ring->length = ring->message_capacity - ring->offset;
        vkgdr_device_ring_advance(ring);
    }
}

/* Whether a call has found that there will be no more messages. Then the CPU has aborted the ring, or closed it and all
 * messages were read. */
static __device__ __forceinline__ int vkgdr_device_ring_ended(const struct vkgdr_device_ring *ring)
{
    return ring->ended;
}

/* Waits for the next message. Null once the ring has ended: then the kernel should end, too. */
static __device__ inline const unsigned char *vkgdr_device_ring_pop(struct vkgdr_device_ring *ring,
                                                                    unsigned long long *size)
{
    const unsigned char *message;
    do
        message = vkgdr_device_ring_try_pop(ring, size);
    while (!message && !ring->ended);
    return message;
}

/* The number of the current message, from 0. */
static __device__ __forceinline__ unsigned long long vkgdr_device_ring_number(const struct vkgdr_device_ring *ring)
{
    return ((const unsigned long long *)(ring->messages + ring->offset))[1];
}

/* Waits until the CPU has returned so much room for answers, unless it has aborted the ring. */
static __device__ inline int vkgdr_device_ring_wait(struct vkgdr_device_ring *ring, unsigned long long room)
{
    for (;;) {
        unsigned long long word = vkgdr_device_ring_peek(ring->answer_tail);
        if (word & VKGDR_RING_ABORTED) {
            ring->ended = 1;
            return 0;
        }
        if (ring->answer_position + room - ring->answer_returned <= ring->answer_capacity)
            return 1;
        if ((word & VKGDR_RING_POSITION) == ring->answer_returned)
            vkgdr_device_ring_commit(ring);
        else
            ring->answer_returned = vkgdr_device_ring_acquire(ring->answer_tail) & VKGDR_RING_POSITION;
    }
}

/* Waits for room for an answer of this size, which the caller then writes. The CPU returns that of an answer when it pops
 * again. Null if it is longer than the ring, or if the CPU has aborted the ring. Answers that were reserved before must be
 * complete: they may be sent here. */
static __device__ inline unsigned char *vkgdr_device_ring_reserve(struct vkgdr_device_ring *ring,
                                                                  unsigned long long size)
{
    unsigned long long record = (size + 2 * VKGDR_RING_UNIT - 1) & ~(VKGDR_RING_UNIT - 1);
    unsigned long long rest = ring->answer_capacity - ring->answer_offset;
    unsigned long long *header = (unsigned long long *)(ring->answers + ring->answer_offset);
    if (size > ring->answer_capacity || record > ring->answer_capacity)
        return 0;
    if (rest < record) {
        if (!vkgdr_device_ring_wait(ring, rest))
            return 0;
        header[0] = VKGDR_RING_SKIP;
        ring->answer_position += rest;
        ring->answer_offset = 0;
        header = (unsigned long long *)ring->answers;
    }
    if (!vkgdr_device_ring_wait(ring, record))
        return 0;
    header[0] = size;
    header[1] = ring->answer_number++;
    ring->answer_position += record;
    ring->answer_offset += record;
    if (ring->answer_offset == ring->answer_capacity)
        ring->answer_offset = 0;
    return (unsigned char *)(header + 2);
}

/* As vkgdr_device_ring_commit(), and returns the room of the current message, too, which may no longer be used. A kernel
 * that ends before the ring does calls this last: another one goes on with the next message. */
static __device__ inline void vkgdr_device_ring_release(struct vkgdr_device_ring *ring)
{
    vkgdr_device_ring_advance(ring);
    vkgdr_device_ring_commit(ring);
}

/* As vkgdr_device_ring_release(), and tells the CPU that there will be no more answers. */
static __device__ inline void vkgdr_device_ring_close(struct vkgdr_device_ring *ring)
{
    vkgdr_device_ring_release(ring);
    vkgdr_device_ring_put(ring->answer_head, ring->answer_position | VKGDR_RING_CLOSED);
}

#endif
