// The kernel of the receive_packets example. scripts/compile-ptx.py compiles it to receive_packets.ptx.

// Adds up the bytes of each packet. Packets lie `stride` bytes apart; a thread takes one of them.
extern "C" __global__ void add_up(const unsigned char *packets, const unsigned int *lengths, unsigned long long *sums,
                                  unsigned int stride, unsigned int count)
{
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    unsigned long long sum = 0;
    for (unsigned int at = 0; at < lengths[i]; at++)
        sum += packets[(unsigned long long)i * stride + at];
    sums[i] = sum;
}
