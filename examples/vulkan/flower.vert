// Passes vertices on. Compiled by: glslangValidator -V --target-env vulkan1.1 flower.vert -o flower.vert.spv
#version 450
layout(location = 0) in vec2 position;
layout(location = 1) in vec3 colour;
layout(location = 0) out vec3 shade;

void main() {
    gl_Position = vec4(position, 0.0, 1.0);
    shade = colour;
}
