//! Errors of mapped memory that the driver refuses although its budget shows room.
#![forbid(unsafe_code)]

use ash::vk;

use crate::driver::descriptor;
use crate::{Error, MemoryKind, Vkgdr};

/// Adds to an error what the budget shows and which other kinds there are, where the BAR is the cause: it is full or
/// fragmented, since the driver places no memory although there is room for it.
#[cold]
pub(super) fn explain(owner: &Vkgdr, mut error: Error) -> Error {
    let Error::Allocation { operation: Some("vkAllocateMemory"), code, kind, asked, free, others, .. } = &mut error
    else {
        return error;
    };
    let (Ok(memory_type), MemoryKind::Mapped) = (owner.memory_type(*kind), *kind) else { return error };
    // Cached memory belongs to an integrated GPU, or one whose memory is coherent with the CPU's: without a BAR.
    let is_bar = *code == vk::Result::ERROR_OUT_OF_DEVICE_MEMORY && !memory_type.cached;
    // A driver that keeps memory in files (Mesa's lavapipe) returns this code also without a free descriptor.
    if !is_bar || descriptor::are_short() {
        return error;
    }
    let budget = owner.vulkan().ok().and_then(|gpu| gpu.device().heap_budget(memory_type.info.heap));
    if let Some(budget) = budget.filter(|budget| budget.available >= *asked) {
        *free = Some(budget.available);
        others.extend(MemoryKind::ALL.into_iter().filter(|other| other != kind && owner.memory_type(*other).is_ok()));
    }
    error
}
