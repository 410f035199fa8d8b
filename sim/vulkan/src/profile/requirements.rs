//! The memory types that suit buffers, images and imported memory: all of the profile's if the driver's own type does.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::{c_int, c_void};

use ash::vk;

use super::catalog::{Type, profile};
use super::device::{DEVICES, Device};

impl Device {
    /// The profile's types in place of the driver's.
    fn types(&self, of_driver: u32) -> u32 {
        let suits = of_driver & (1 << self.driver_type) != 0;
        if suits { (1 << profile().types.len()) - 1 } else { 0 }
    }
}

/// The profile's types for imported memory of the program's: the CPU's, or where all memory is the GPU's those that it
/// can see.
fn types_of_host_memory() -> u32 {
    let of = |suits: fn(&Type) -> bool| {
        let suiting = profile().types.iter().enumerate().filter(|(_, kind)| kind.is_visible() && suits(kind));
        suiting.fold(0, |bits, (index, _)| bits | 1 << index)
    };
    match of(Type::is_system_memory) {
        0 => of(|_| true),
        bits => bits,
    }
}

/// Defines Vulkan functions that call the next layer and then replace the memory types in its answer.
macro_rules! requirements {
    ($($name:ident($version:ident.$field:ident, $argument:ty, $output:ty) => $($bits:ident).+;)+) => {
        $(
            pub(super) unsafe extern "system" fn $name(device: vk::Device, of: $argument, output: *mut $output) {
                // SAFETY: a live device of the caller's.
                let Some(known) = (unsafe { DEVICES.get(device) }) else { return };
                // SAFETY: the caller's arguments, passed on.
                unsafe { (known.next.$version().$field)(device, of, output) };
                // SAFETY: the caller's output, which was written.
                let output = unsafe { &mut *output };
                output.$($bits).+ = known.types(output.$($bits).+);
            }
        )+
    };
}

requirements! {
    buffer(fp_v1_0.get_buffer_memory_requirements, vk::Buffer, vk::MemoryRequirements) => memory_type_bits;
    image(fp_v1_0.get_image_memory_requirements, vk::Image, vk::MemoryRequirements) => memory_type_bits;
    buffer2(
        fp_v1_1.get_buffer_memory_requirements2,
        *const vk::BufferMemoryRequirementsInfo2<'_>,
        vk::MemoryRequirements2<'_>
    ) => memory_requirements.memory_type_bits;
    image2(
        fp_v1_1.get_image_memory_requirements2,
        *const vk::ImageMemoryRequirementsInfo2<'_>,
        vk::MemoryRequirements2<'_>
    ) => memory_requirements.memory_type_bits;
    device_buffer(
        fp_v1_3.get_device_buffer_memory_requirements,
        *const vk::DeviceBufferMemoryRequirements<'_>,
        vk::MemoryRequirements2<'_>
    ) => memory_requirements.memory_type_bits;
    device_image(
        fp_v1_3.get_device_image_memory_requirements,
        *const vk::DeviceImageMemoryRequirements<'_>,
        vk::MemoryRequirements2<'_>
    ) => memory_requirements.memory_type_bits;
}

pub(super) unsafe extern "system" fn memory_fd_properties(
    device: vk::Device,
    handle_type: vk::ExternalMemoryHandleTypeFlags,
    fd: c_int,
    properties: *mut vk::MemoryFdPropertiesKHR<'_>,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    let next = known.external_memory_fd.get_memory_fd_properties_khr;
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { next(device, handle_type, fd, properties) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the caller's output, which was written.
        let properties = unsafe { &mut *properties };
        properties.memory_type_bits = known.types(properties.memory_type_bits);
    }
    result
}

pub(super) unsafe extern "system" fn memory_host_pointer_properties(
    device: vk::Device,
    handle_type: vk::ExternalMemoryHandleTypeFlags,
    pointer: *const c_void,
    properties: *mut vk::MemoryHostPointerPropertiesEXT<'_>,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    let next = known.external_memory_host.get_memory_host_pointer_properties_ext;
    // SAFETY: the caller's arguments, passed on.
    let result = unsafe { next(device, handle_type, pointer, properties) };
    if result == vk::Result::SUCCESS {
        // SAFETY: the caller's output, which was written.
        let properties = unsafe { &mut *properties };
        properties.memory_type_bits = known.types(properties.memory_type_bits) & types_of_host_memory();
    }
    result
}
