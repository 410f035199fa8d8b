//! Arguments of calls, as the trace shows them. Handles are left out: they differ in each run.
#![expect(unsafe_code, reason = "reads structures that the application passes")]

use ash::vk::{self, StructureType};

use super::identity::Identity;
use crate::interface::{chain, extension_names, text};

/// # Safety
/// A valid create info.
pub(super) unsafe fn create_instance(identity: Identity, info: &vk::InstanceCreateInfo<'_>) {
    // SAFETY: the caller's promise: null or a valid structure.
    let application = unsafe { info.p_application_info.as_ref() };
    let version = application.map_or(0, |application| application.api_version);
    let (major, minor) = (vk::api_version_major(version), vk::api_version_minor(version));
    identity.trace(format_args!("apiVersion={major}.{minor}"));
}

/// # Safety
/// A valid create info.
pub(super) unsafe fn create_device(identity: Identity, info: &vk::DeviceCreateInfo<'_>) {
    // SAFETY: the caller's promise.
    let names = unsafe { extension_names(info.pp_enabled_extension_names, info.enabled_extension_count) };
    for name in names {
        // SAFETY: the names are terminated strings.
        let name = unsafe { text(name) }.unwrap_or_default();
        identity.trace(format_args!("extension={}", name.to_string_lossy()));
    }
    for index in 0..info.queue_create_info_count as usize {
        // SAFETY: within the array, by the caller's promise.
        let queue = unsafe { info.p_queue_create_infos.add(index) };
        // SAFETY: a valid structure, by the caller's promise.
        let queue = unsafe { &*queue };
        identity.trace(format_args!("queueFamilyIndex={} queueCount={}", queue.queue_family_index, queue.queue_count));
    }
}

/// # Safety
/// A valid structure.
pub(super) unsafe fn allocate_memory(identity: Identity, info: &vk::MemoryAllocateInfo<'_>) {
    let vk::MemoryAllocateInfo { allocation_size, memory_type_index, .. } = *info;
    identity.trace(format_args!("allocationSize={allocation_size} memoryTypeIndex={memory_type_index}"));
    // SAFETY: the caller's promise.
    for (kind, structure) in unsafe { chain(info.p_next) } {
        match kind {
            StructureType::EXPORT_MEMORY_ALLOCATE_INFO => {
                // SAFETY: the structure has this type.
                let export = unsafe { structure.cast::<vk::ExportMemoryAllocateInfo<'_>>().as_ref() };
                identity.trace(format_args!("export handleTypes={:#x}", export.handle_types.as_raw()));
            }
            StructureType::IMPORT_MEMORY_FD_INFO_KHR => {
                // SAFETY: the structure has this type.
                let import = unsafe { structure.cast::<vk::ImportMemoryFdInfoKHR<'_>>().as_ref() };
                identity.trace(format_args!("import handleType={:#x}", import.handle_type.as_raw()));
            }
            other => identity.trace(format_args!("structure {other:?}")),
        }
    }
}
