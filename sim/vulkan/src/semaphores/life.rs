//! Creation and destruction of semaphores.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::ffi::c_void;

use ash::vk::{self, ExternalSemaphoreHandleTypeFlags as HandleTypes};

use super::device::{DEVICES, Device, Known};
use super::shared::Shared;
use crate::interface::chain;
use simcommon::payload::{Kind, Payload};

/// The parts of a create info that are in its chain.
struct Wishes {
    kind: Kind,
    value: u64,
    export: HandleTypes,
}

impl Wishes {
    /// # Safety
    /// The chain is that of a valid `VkSemaphoreCreateInfo`.
    unsafe fn of(p_next: *const c_void) -> Self {
        let mut wishes = Self { kind: Kind::Binary, value: 0, export: HandleTypes::empty() };
        // SAFETY: the caller's promise.
        for (kind, node) in unsafe { chain(p_next) } {
            match kind {
                vk::StructureType::SEMAPHORE_TYPE_CREATE_INFO => {
                    // SAFETY: the type says what it is.
                    let info = unsafe { node.cast::<vk::SemaphoreTypeCreateInfo<'_>>().as_ref() };
                    if info.semaphore_type == vk::SemaphoreType::TIMELINE {
                        (wishes.kind, wishes.value) = (Kind::Timeline, info.initial_value);
                    }
                }
                vk::StructureType::EXPORT_SEMAPHORE_CREATE_INFO => {
                    // SAFETY: the type says what it is.
                    wishes.export = unsafe { node.cast::<vk::ExportSemaphoreCreateInfo<'_>>().as_ref() }.handle_types;
                }
                _ => {}
            }
        }
        wishes
    }
}

/// Creates a semaphore of the driver's that cannot be exported. The value is for timelines only.
///
/// # Safety
/// The allocator is null or the caller's of Vulkan.
pub(super) unsafe fn create_plain(
    device: &Device,
    kind: Kind,
    value: u64,
    allocator: *const vk::AllocationCallbacks<'_>,
    semaphore: *mut vk::Semaphore,
) -> vk::Result {
    let mut timeline =
        vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE).initial_value(value);
    let info = vk::SemaphoreCreateInfo::default();
    let info = if kind == Kind::Timeline { info.push_next(&mut timeline) } else { info };
    let create = device.next.fp_v1_0().create_semaphore;
    // SAFETY: a live device, and structures that live during the call.
    unsafe { create(device.next.handle, &raw const info, allocator, semaphore) }
}

pub(super) unsafe extern "system" fn create_semaphore(
    device: vk::Device,
    info: *const vk::SemaphoreCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    semaphore: *mut vk::Semaphore,
) -> vk::Result {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return vk::Result::ERROR_DEVICE_LOST };
    // SAFETY: Vulkan asks for a valid structure.
    let p_next = unsafe { (*info).p_next };
    // SAFETY: the chain of the caller's structure.
    let Wishes { kind, value, export } = unsafe { Wishes::of(p_next) };
    if export != HandleTypes::OPAQUE_FD || !known.enabled {
        let result = if export == HandleTypes::OPAQUE_FD {
            // Without the extension no one can export it, and the driver would refuse to create it.
            // SAFETY: the caller's allocator and output.
            unsafe { create_plain(&known, kind, value, allocator, semaphore) }
        } else {
            // SAFETY: the caller's arguments, passed on.
            unsafe { (known.next.fp_v1_0().create_semaphore)(device, info, allocator, semaphore) }
        };
        if result == vk::Result::SUCCESS {
            // SAFETY: success means that it was written.
            known.insert(unsafe { *semaphore }, Known::Plain(kind));
        }
        return result;
    }
    let Ok(payload) = Payload::create(kind, value) else { return vk::Result::ERROR_OUT_OF_HOST_MEMORY };
    // SAFETY: the caller's allocator and output.
    let result = unsafe { create_plain(&known, Kind::Timeline, value, allocator, semaphore) };
    if result == vk::Result::SUCCESS {
        // SAFETY: success means that it was written.
        let handle = unsafe { *semaphore };
        known.insert(handle, Known::Shared(known.new_shared(handle, kind, payload)));
    }
    result
}

pub(super) unsafe extern "system" fn destroy_semaphore(
    device: vk::Device,
    semaphore: vk::Semaphore,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: a live device of the caller's.
    let Some(known) = (unsafe { DEVICES.get(device) }) else { return };
    // Removed before the call, since afterwards the handle may belong to another semaphore.
    if let Some(shared) = known.remove(semaphore) {
        // SAFETY: the semaphore is not used any more.
        unsafe { release(&known, semaphore, &shared) };
    }
    // SAFETY: the caller's arguments, passed on.
    unsafe { (known.next.fp_v1_0().destroy_semaphore)(device, semaphore, allocator) };
}

/// Ends what was shared under the application's handle.
///
/// # Safety
/// No work uses the semaphore any more.
pub(super) unsafe fn release(device: &Device, handle: vk::Semaphore, shared: &Shared) {
    shared.stop();
    if shared.driver != handle {
        // SAFETY: made by this layer for an import, without an allocator; the threads have ended.
        unsafe { (device.next.fp_v1_0().destroy_semaphore)(device.next.handle, shared.driver, std::ptr::null()) };
    }
}
