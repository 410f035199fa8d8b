//! [`vkgdr_memory_t`]: a box with a [`Memory`], and what it is to the C program.
#![expect(unsafe_code, reason = "turns C pointers into references and owners")]

use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;

use vkgdr_rs::{Error, Memory, memory_of};

use crate::CUdeviceptr;
use crate::boundary::handle;
use crate::errors::{Failure, Outcome};

/// Memory that the CPU and the device share, or a region of it.
#[derive(Debug)]
pub struct vkgdr_memory {
    pub(crate) memory: Memory,
    role: Role,
}

/// What a handle is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Memory that was allocated or received by the program.
    Owner,
    /// A region of such memory.
    Region,
    /// Another reference to memory, which was found by its address: the owner's promises do not cover its uses.
    Found,
    /// A region of found memory, or memory that others allocated.
    FoundRegion,
}

/// Memory, or a region of it.
pub type vkgdr_memory_t = *mut vkgdr_memory;

fn into_handle(memory: Memory, role: Role) -> vkgdr_memory_t {
    Box::into_raw(Box::new(vkgdr_memory { memory, role }))
}

/// A handle of new memory.
pub(crate) fn owned(memory: Memory) -> vkgdr_memory_t {
    let handle = into_handle(memory, Role::Owner);
    // SAFETY: just made, and not freed yet.
    unsafe { &*handle }.memory.c_handle().store(handle.expose_provenance(), Ordering::Release);
    handle
}

/// A handle of memory that was found by its address.
pub(crate) fn found(memory: Memory) -> vkgdr_memory_t {
    into_handle(memory, Role::Found)
}

/// A handle of memory that others allocated.
pub(crate) fn existing(memory: Memory) -> vkgdr_memory_t {
    into_handle(memory, Role::FoundRegion)
}

/// A handle of a range of a handle's memory.
pub(crate) fn region(mem: &vkgdr_memory, offset: usize, size: usize) -> Outcome<vkgdr_memory_t> {
    let vkgdr_memory { memory, role } = mem;
    let role = match role {
        Role::Owner | Role::Region => Role::Region,
        Role::Found | Role::FoundRegion => Role::FoundRegion,
    };
    Ok(into_handle(memory.slice(range(memory, offset, size)?)?, role))
}

/// The handle of memory that begins at a device address and was allocated by this library's C functions.
pub(crate) fn handle_at(ptr: CUdeviceptr) -> Option<vkgdr_memory_t> {
    // SAFETY: the alias only tells what it is.
    let (memory, _) = unsafe { memory_of(ptr) }?;
    // Memory is found by its host addresses, too.
    let handle = if memory.device_ptr() == ptr { memory.c_handle().load(Ordering::Acquire) } else { 0 };
    (handle != 0).then(|| ptr::with_exposed_provenance_mut(handle))
}

/// The memory of a handle; an error for a region, and for memory that others allocated.
///
/// # Safety
///
/// `mem` must be null or live.
pub(crate) unsafe fn whole<'a>(mem: vkgdr_memory_t) -> Outcome<&'a Memory> {
    // SAFETY: by this function's contract.
    let vkgdr_memory { memory, role } = unsafe { handle(mem) }?;
    match role {
        Role::Owner | Role::Found => Ok(memory),
        Role::Region | Role::FoundRegion => Err(Failure::NotWhole),
    }
}

/// The range of `size` bytes at `offset`, checked without overflow to be within the memory.
#[inline]
pub(crate) fn range(memory: &Memory, offset: usize, size: usize) -> Outcome<Range<usize>> {
    match offset.checked_add(size) {
        Some(end) if end <= memory.len() => Ok(offset..end),
        _ => Err(Error::OutOfRange { offset, len: size, size: memory.len() }.into()),
    }
}

/// Frees a handle's reference to memory: without a wait, as vkgdr 0.1 does, unless it is bound to a stream or was found.
///
/// # Safety
///
/// `mem` must be live and not be used afterwards, and the device must have finished with it unless it is bound to a
/// stream.
pub(crate) unsafe fn free(mem: vkgdr_memory_t) -> Outcome {
    // SAFETY: from `into_handle`, and not used again.
    let vkgdr_memory { memory, role } = *unsafe { Box::from_raw(mem) };
    if role == Role::Owner {
        // Regions may keep the memory alive.
        memory.c_handle().store(0, Ordering::Relaxed);
    }
    Ok(match role {
        Role::Found | Role::FoundRegion => memory.free(),
        // SAFETY: the device has finished with memory that is not bound, by this function's contract.
        Role::Owner | Role::Region => unsafe { memory.free_unless_bound() },
    }?)
}
