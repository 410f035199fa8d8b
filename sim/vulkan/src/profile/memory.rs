//! Live memory and its mapping.
#![expect(unsafe_code, reason = "takes the driver's mapping as a pointer")]

use std::ffi::c_void;
use std::ptr::NonNull;

use ash::vk;

use super::books::Taken;
use super::catalog::Type;
use super::range::Mapped;
use super::shadow::Shadow;
use simcommon::label::Label;

/// Live memory.
pub(super) struct Memory {
    pub(super) size: vk::DeviceSize,
    pub(super) memory_type: &'static Type,
    pub(super) mapping: Option<Mapping>,
    /// The label of its descriptors; none where it cannot be exported.
    pub(super) export: Option<Label>,
    /// None for imported memory.
    _taken: Option<Taken>,
}

impl Memory {
    /// Memory that is not mapped. `taken` is none for imported memory.
    pub(super) fn new(
        size: vk::DeviceSize,
        memory_type: &'static Type,
        export: Option<Label>,
        taken: Option<Taken>,
    ) -> Self {
        Self { size, memory_type, mapping: None, export, _taken: taken }
    }
}

/// The host's mapping of some memory.
pub(super) struct Mapping {
    pub(super) mapped: Mapped,
    /// None where it is coherent.
    pub(super) shadow: Option<Shadow>,
}

/// # Safety
/// `device_view` has all bytes of the mapping and outlives the result.
pub(super) unsafe fn shadow_of(device_view: *mut c_void, mapped: &Mapped) -> Option<Shadow> {
    let offset = usize::try_from(mapped.offset).ok()?;
    let len = usize::try_from(mapped.end - mapped.offset).ok()?;
    // SAFETY: the caller's promise.
    unsafe { Shadow::new(NonNull::new(device_view.cast())?, offset, len) }
}
