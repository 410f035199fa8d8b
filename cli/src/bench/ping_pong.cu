// The kernel of ping_pong.rs. scripts/compile-ptx.py compiles it to ping_pong.ptx.

// Nanoseconds, the same on every multiprocessor.
static __device__ unsigned long long now()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// For round = 1 to rounds: waits until *flag is round, then *reply = round. Times out `timeout` nanoseconds after its
// start, so that a defect of the CPU's side cannot leave the GPU busy for ever.
extern "C" __global__ void answer(const volatile unsigned int *flag, volatile unsigned int *reply, unsigned int rounds,
                                  unsigned long long timeout)
{
    unsigned long long begin = now();
    for (unsigned int round = 1; round <= rounds; round++) {
        unsigned int looks = 0;
        while (*flag != round)
            // The clock is slow to read beside the flag.
            if (++looks % 256 == 0 && now() - begin > timeout)
                return;
        *reply = round;
    }
}
