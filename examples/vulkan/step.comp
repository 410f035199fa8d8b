// numbers[i] = 2 * numbers[i]. Compiled by: glslangValidator -V --target-env vulkan1.1 step.comp -o step.spv
#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) buffer Numbers { float numbers[]; };
layout(push_constant) uniform Arguments { uint count; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < count)
        numbers[i] = 2.0 * numbers[i];
}
