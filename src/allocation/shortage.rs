//! Errors for a shortage of memory, with the sizes.
//!
//! If the driver's budget shows room that it refuses, also with the free bytes and the other kinds.
#![forbid(unsafe_code)]

use ash::vk;

use crate::device::MemoryType;
use crate::driver::descriptor;
use crate::error::Call;
use crate::{Error, MemoryKind, Vkgdr};

/// [`with_sizes`]; an error of the BAR also gets the budget and the other kinds of memory. The BAR is full or
/// fragmented if the driver places no memory although the budget has room for it.
#[cold]
pub(super) fn explain(owner: &Vkgdr, error: Error, kind: MemoryKind, len: usize, memory_type: MemoryType) -> Error {
    let code = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    let is_placement = matches!(error, Error::Vulkan { call: Call::AllocateMemory, code: found, .. } if found == code);
    // Cached memory belongs to an integrated GPU, or one whose memory is coherent with the CPU's: without a BAR.
    let is_bar = is_placement && kind == MemoryKind::Mapped && !memory_type.cached;
    let mut error = with_sizes(error, kind, len, memory_type);
    // A driver that keeps memory in files (Mesa's lavapipe) returns this code also without a free descriptor.
    if !is_bar || descriptor::are_short() {
        return error;
    }
    let vulkan = owner.vulkan().expect("a call of its device has failed");
    if let Error::Allocation { asked, free, others, .. } = &mut error
        && let Some(budget) = vulkan.device().heap_budget(memory_type.info.heap)
        && budget.available >= *asked
    {
        *free = Some(budget.available);
        others.extend(MemoryKind::ALL.into_iter().filter(|other| *other != kind && may_work(owner, *other)));
    }
    error
}

/// Whether a kind of memory may be allocated, as far as is known without trying.
fn may_work(owner: &Vkgdr, kind: MemoryKind) -> bool {
    let refused =
        |memory_type| owner.gpu().trial_results().result(kind, &memory_type).is_some_and(|result| result.is_err());
    owner.memory_type(kind).is_ok_and(|memory_type| !refused(memory_type))
}

/// The error for a shortage: of the Vulkan call `operation`, or without a call.
#[cold]
pub(super) fn shortage(
    operation: Option<&'static str>,
    code: vk::Result,
    kind: MemoryKind,
    len: usize,
    memory_type: MemoryType,
) -> Error {
    let (asked, heap) = (len as u64, memory_type.info.heap_size);
    Error::Allocation { operation, code, kind, asked, heap, free: None, others: Vec::new(), still_used: 0 }
}

/// Adds the sizes to a Vulkan error that means a shortage of memory or address space, not of descriptors.
#[cold]
pub(super) fn with_sizes(error: Error, kind: MemoryKind, len: usize, memory_type: MemoryType) -> Error {
    match error {
        Error::Vulkan { operation, code, call } if call != Call::ExportMemory && error.is_exhaustion() => {
            shortage(Some(operation), code, kind, len, memory_type)
        }
        other => other,
    }
}
