// words[i] = 3 * words[i] + addend. Compiled by: glslangValidator -V --target-env vulkan1.1 step.comp -o step.spv
#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Words { uint words[]; };
layout(push_constant) uniform Arguments { uint count; uint addend; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count)
        words[i] = 3 * words[i] + addend;
}
