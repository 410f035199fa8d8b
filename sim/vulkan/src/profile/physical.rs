//! The reported properties of a physical device: identity and limits, memory, extensions.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::{CStr, c_char, c_void};

use ash::ext::memory_budget;
use ash::khr::map_memory2;
use ash::vk::{self, UUID_SIZE};

use super::books;
use super::catalog::{Identity, profile};
use super::instance::{INSTANCES, Instance};
use crate::interface::chain;

/// The newest Vulkan version that this layer supports: 1.4 has another function to map memory.
const API_VERSION: u32 = vk::API_VERSION_1_3;

/// Whether the device lacks an extension of the driver's: the profile hides it, or it would bypass `vkMapMemory`.
pub(super) fn is_hidden(extension: &CStr) -> bool {
    extension == map_memory2::NAME || profile().hidden.contains(&extension)
}

pub(super) unsafe extern "system" fn get_physical_device_properties(
    device: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties,
) {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(device) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (instance.next.fp_v1_0().get_physical_device_properties)(device, properties) };
    // SAFETY: the caller's output, which was written.
    change(unsafe { &mut *properties });
}

fn change(properties: &mut vk::PhysicalDeviceProperties) {
    properties.device_type = profile().device_type;
    properties.api_version = properties.api_version.min(API_VERSION);
    properties.limits.non_coherent_atom_size = profile().atom;
}

pub(super) unsafe extern "system" fn get_physical_device_properties2(
    device: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(device) }) else { return };
    // SAFETY: the caller's arguments, passed on.
    unsafe { (instance.next.fp_v1_1().get_physical_device_properties2)(device, properties) };
    // SAFETY: the caller's output, which was written.
    let properties = unsafe { &mut *properties };
    change(&mut properties.properties);
    let Some(identity) = instance.place(device).and_then(|place| profile().devices.get(place)) else { return };
    // SAFETY: the chain that was just written.
    unsafe { identify(properties.p_next, identity) };
}

/// Replaces the UUID in every structure of a chain that has one.
///
/// # Safety
/// The chain is one that Vulkan has written.
unsafe fn identify(p_next: *mut c_void, identity: &Identity) {
    // SAFETY: the caller's promise.
    if let Some(id) = unsafe { find::<vk::PhysicalDeviceIDProperties<'_>>(p_next) } {
        id.device_uuid = identity.uuid(id.device_uuid);
    }
    // SAFETY: the caller's promise.
    if let Some(known) = unsafe { find::<vk::PhysicalDeviceVulkan11Properties<'_>>(p_next) } {
        let uuid: [u8; UUID_SIZE] = known.device_uuid;
        known.device_uuid = identity.uuid(uuid);
    }
}

/// The structure of a type in a chain.
///
/// # Safety
/// Every structure of the chain is valid for as long as the result is used.
pub(super) unsafe fn find<'a, T: vk::TaggedStructure>(p_next: *mut c_void) -> Option<&'a mut T> {
    // SAFETY: the caller's promise.
    let (_, node) = unsafe { chain(p_next) }.find(|(kind, _)| *kind == T::STRUCTURE_TYPE)?;
    // SAFETY: the type says what it is.
    Some(unsafe { node.cast().as_mut() })
}

pub(super) unsafe extern "system" fn get_physical_device_memory_properties(
    _device: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceMemoryProperties,
) {
    // SAFETY: the caller's output.
    unsafe { properties.write(memory()) };
}

pub(super) unsafe extern "system" fn get_physical_device_memory_properties2(
    device: vk::PhysicalDevice,
    properties: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    // SAFETY: a live physical device of the caller's.
    let place = unsafe { INSTANCES.get(device) }.and_then(|instance| instance.place(device));
    // SAFETY: the caller's structure.
    let properties = unsafe { &mut *properties };
    properties.memory_properties = memory();
    // SAFETY: the chain of the caller's structure.
    let budget = unsafe { find::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>(properties.p_next) };
    if let (Some(place), Some(budget)) = (place, budget) {
        // Vulkan asks for zeros beyond the heaps.
        (budget.heap_budget, budget.heap_usage) = Default::default();
        for (index, heap) in profile().heaps.iter().enumerate() {
            budget.heap_budget[index] = books::budget(heap);
            budget.heap_usage[index] = books::usage(place, index, heap);
        }
    }
}

/// The profile's types and heaps.
fn memory() -> vk::PhysicalDeviceMemoryProperties {
    let (types, heaps) = (profile().types, profile().heaps);
    let mut memory = vk::PhysicalDeviceMemoryProperties::default();
    for (to, from) in memory.memory_types.iter_mut().zip(types) {
        let heap_index = u32::try_from(from.heap).unwrap_or_default();
        *to = vk::MemoryType { property_flags: from.flags, heap_index };
        memory.memory_type_count += 1;
    }
    for (to, from) in memory.memory_heaps.iter_mut().zip(heaps) {
        let local = if from.device_local { vk::MemoryHeapFlags::DEVICE_LOCAL } else { vk::MemoryHeapFlags::empty() };
        *to = vk::MemoryHeap { size: from.size, flags: local };
        memory.memory_heap_count += 1;
    }
    memory
}

pub(super) unsafe extern "system" fn enumerate_device_extension_properties(
    device: vk::PhysicalDevice,
    layer: *const c_char,
    count: *mut u32,
    properties: *mut vk::ExtensionProperties,
) -> vk::Result {
    // SAFETY: a live physical device of the caller's.
    let Some(instance) = (unsafe { INSTANCES.get(device) }) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: a live physical device of the caller's.
    let own = || unsafe { extensions(&instance, device) };
    // SAFETY: the caller's arguments.
    unsafe { instance.next.answer_extensions(device, layer, count, properties, own) }
}

/// The driver's extensions without those that are hidden, and with `VK_EXT_memory_budget`.
///
/// # Safety
/// `device` is a live physical device of the instance.
unsafe fn extensions(
    instance: &Instance,
    device: vk::PhysicalDevice,
) -> Result<Vec<vk::ExtensionProperties>, vk::Result> {
    // SAFETY: the caller's promise.
    let mut all = unsafe { instance.next.enumerate_device_extension_properties(device) }?;
    all.retain(|extension| {
        let name = extension.extension_name_as_c_str().unwrap_or_default();
        name != memory_budget::NAME && !is_hidden(name)
    });
    let budget = vk::ExtensionProperties::default().spec_version(memory_budget::SPEC_VERSION);
    all.extend(budget.extension_name(memory_budget::NAME));
    Ok(all)
}
