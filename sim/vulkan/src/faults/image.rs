//! Images.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use ash::vk;

use super::device::DEVICES;
use super::passing::{counted, passed_on};

counted! {
    create_image = "vkCreateImage", destroy_image = "vkDestroyImage" of Image: vk::Image, vk::ImageCreateInfo<'_>, DEVICES;
}

passed_on! {
    bind_image_memory = "vkBindImageMemory"(
        device: vk::Device, image: vk::Image, memory: vk::DeviceMemory, offset: vk::DeviceSize
    ) of DEVICES else ERROR_DEVICE_LOST => |kept| kept.next.fp_v1_0().bind_image_memory;
}
