//! Devices.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ash::ext::{external_memory_host, memory_budget};
use ash::khr::external_memory_fd;
use ash::vk;

use super::catalog::{Identity, profile};
use super::instance::Instance;
use super::memory::Memory;
use super::physical::is_hidden;
use crate::dispatch::DeviceState;
use crate::interface::{extension_names, text};
use crate::next::{CreateDevice, NextDevice};
use crate::tables::Tables;
use simcommon::label::FOREIGN;

/// All devices of the process.
pub(super) static DEVICES: Tables<Device> = Tables::new();

/// The layer's state of a device.
pub(super) struct Device {
    /// As its instance.
    pub(super) passive: bool,
    /// The index of its physical device in Vulkan's list.
    pub(super) place: usize,
    /// The driver's memory type from which all memory is actually allocated.
    pub(super) driver_type: u32,
    pub(super) next: NextDevice,
    pub(super) external_memory_fd: external_memory_fd::DeviceFn,
    pub(super) external_memory_host: external_memory_host::DeviceFn,
    memories: Mutex<BTreeMap<vk::DeviceMemory, Memory>>,
}

impl Device {
    /// Its number in labels.
    pub(super) fn number(&self) -> u8 {
        profile().devices.get(self.place).map_or(FOREIGN, Identity::number)
    }

    /// Its live memory.
    pub(super) fn memories(&self) -> MutexGuard<'_, BTreeMap<vk::DeviceMemory, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceState for Device {
    type Instance = Instance;

    fn all() -> &'static Tables<Self> {
        &DEVICES
    }

    unsafe fn create(instance: &Instance, call: &CreateDevice<'_>) -> Result<Self, vk::Result> {
        let passive = instance.passive;
        let next = if passive {
            // SAFETY: the caller's promise.
            unsafe { call.pass_on(call.info) }
        } else {
            // SAFETY: the caller's create info.
            let names = unsafe { extensions(call.info) }.ok_or(vk::Result::ERROR_EXTENSION_NOT_PRESENT)?;
            // SAFETY: the caller's promise; the fewer extensions are alive during the call.
            unsafe { call.pass_on(&call.info.enabled_extension_names(&names)) }
        }?;
        Ok(Self {
            passive,
            place: if passive { 0 } else { instance.place(call.physical).unwrap_or_default() },
            // SAFETY: the caller's promise.
            driver_type: unsafe { host_visible_type(instance, call.physical) },
            // SAFETY: a live device: it was just created.
            external_memory_fd: external_memory_fd::DeviceFn::load(|name| unsafe { next.find(name) }),
            // SAFETY: as above.
            external_memory_host: external_memory_host::DeviceFn::load(|name| unsafe { next.find(name) }),
            next,
            memories: Mutex::default(),
        })
    }

    fn next(&self) -> &NextDevice {
        &self.next
    }

    fn is_passive(&self) -> bool {
        self.passive
    }
}

/// The extensions that the application enables without the one that is this layer's own; `None` when one of
/// them is hidden.
///
/// # Safety
/// `info` is a valid create info.
unsafe fn extensions(info: &vk::DeviceCreateInfo<'_>) -> Option<Vec<*const c_char>> {
    // SAFETY: the caller's promise.
    let mut names = unsafe { extension_names(info.pp_enabled_extension_names, info.enabled_extension_count) };
    // SAFETY: the names are terminated strings.
    let name = |name: *const c_char| unsafe { text(name) }.unwrap_or_default();
    if names.iter().any(|&pointer| is_hidden(name(pointer))) {
        return None;
    }
    names.retain(|&pointer| name(pointer) != memory_budget::NAME);
    Some(names)
}

/// The driver's first memory type that the CPU can see.
///
/// # Safety
/// `physical` is the instance's.
unsafe fn host_visible_type(instance: &Instance, physical: vk::PhysicalDevice) -> u32 {
    // SAFETY: the caller's promise.
    let memory = unsafe { instance.next.get_physical_device_memory_properties(physical) };
    let visible = |kind: &vk::MemoryType| kind.property_flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
    let place = memory.memory_types_as_slice().iter().position(visible);
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or_default()
}
