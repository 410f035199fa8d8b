// The kernel of the picture example. scripts/compile-ptx.py compiles it to flower.ptx.
struct Vertex {
    float x, y, red, green, blue;
};

// Triangle i of n: the florets of a sunflower, each turned by the golden angle from the one before.
extern "C" __global__ void flower(Vertex *vertices, unsigned int n)
{
    const float golden_turn = 0.38196601f, third_of_turn = 2.0943951f, turn = 6.2831853f;
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float share = (float)i / (float)n, radius = 0.95f * sqrtf(share), turns = golden_turn * (float)i;
    float angle = turn * (turns - floorf(turns)), size = 0.008f + 0.022f * share;
    float x = radius * __cosf(angle), y = radius * __sinf(angle);
    for (int corner = 0; corner < 3; corner++) {
        float towards = angle + third_of_turn * (float)corner;
        Vertex vertex;
        vertex.x = x + size * __cosf(towards);
        vertex.y = y + size * __sinf(towards);
        vertex.red = 0.5f + 0.5f * __cosf(turn * share);
        vertex.green = 0.5f + 0.5f * __cosf(turn * (share - 0.33f));
        vertex.blue = 0.5f + 0.5f * __cosf(turn * (share - 0.67f));
        vertices[3 * i + corner] = vertex;
    }
}
