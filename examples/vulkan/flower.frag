// Fills triangles. Compiled by: glslangValidator -V --target-env vulkan1.1 flower.frag -o flower.frag.spv
#version 450
layout(location = 0) in vec3 shade;
layout(location = 0) out vec4 pixel;

void main() {
    pixel = vec4(shade, 1.0);
}
