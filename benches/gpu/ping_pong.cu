// The kernel of the ping-pong in ping_pong.rs. ping_pong.ptx is made from it by scripts/compile-ptx.py.

// Nanoseconds, the same on every multiprocessor.
static __device__ unsigned long long now()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

// For round = 1 to rounds: waits until *flag is round, then *reply = round. Gives up `patience` nanoseconds after it
// began, so that no mistake of the CPU's side leaves the GPU busy for ever.
extern "C" __global__ void answer(const volatile unsigned int *flag, volatile unsigned int *reply, unsigned int rounds,
                                  unsigned long long patience)
{
    unsigned long long begin = now();
    for (unsigned int round = 1; round <= rounds; round++) {
        unsigned int looks = 0;
        while (*flag != round)
            // The clock is slow to read beside the flag.
            if (++looks % 256 == 0 && now() - begin > patience)
                return;
        *reply = round;
    }
}
