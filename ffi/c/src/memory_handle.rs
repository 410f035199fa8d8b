//! [`vkgdr_memory_t`]: a box, or a pool's memory as a tagged pointer.
#![expect(unsafe_code, reason = "turns C pointers into references and owners")]
#![expect(non_camel_case_types, reason = "C's spelling")]

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};

use vkgdr_rs::{Error, Mapping, Memory, PoolMemory, Region, memory_of};

use crate::CUdeviceptr;
use crate::boundary::handle;
use crate::failure::{Failure, Outcome};
use crate::handle_table;

/// Memory that the CPU and the device share, or a region of it.
#[derive(Debug)]
pub struct vkgdr_memory {
    inner: Contents,
}

#[derive(Debug)]
enum Contents {
    Whole(Memory),
    /// Another reference to memory, which was found by its address.
    Found(Memory),
    Region(Region),
    Existing(Mapping),
}

/// The lowest bit of a handle of a pool's memory. Such a handle is no [`vkgdr_memory`] but a [`PoolMemory`] as a raw
/// pointer: a box around it would take as long as the pool does.
const POOLED: usize = 1;
const _: () = assert!(align_of::<vkgdr_memory>() > POOLED);

/// Memory, or a region of it.
pub type vkgdr_memory_t = *mut vkgdr_memory;

impl Contents {
    #[inline]
    fn region(&self) -> &Region {
        match self {
            Self::Whole(memory) | Self::Found(memory) => memory,
            Self::Region(region) => region,
            Self::Existing(mapping) => mapping,
        }
    }

    fn into_handle(self) -> vkgdr_memory_t {
        Box::into_raw(Box::new(vkgdr_memory { inner: self }))
    }
}

/// A handle of a pool's memory.
#[inline]
pub(crate) fn pooled(memory: PoolMemory) -> vkgdr_memory_t {
    memory.into_raw().cast::<vkgdr_memory>().map_addr(|address| address | POOLED)
}

/// The raw pointer in a handle of a pool's memory; none for others.
#[inline]
fn find_pooled(mem: vkgdr_memory_t) -> Option<*mut c_void> {
    if mem.addr() & POOLED == 0 { None } else { Some(mem.map_addr(|address| address & !POOLED).cast()) }
}

/// A handle of a region.
pub(crate) fn part(region: Region) -> vkgdr_memory_t {
    Contents::Region(region).into_handle()
}

/// A handle of existing memory.
pub(crate) fn existing(mapping: Mapping) -> vkgdr_memory_t {
    Contents::Existing(mapping).into_handle()
}

/// The handle of memory that begins at a device address and was allocated by this library's C functions.
pub(crate) fn handle_at(ptr: CUdeviceptr) -> Option<vkgdr_memory_t> {
    if let Some(handle) = handle_table::find(ptr) {
        return Some(std::ptr::with_exposed_provenance_mut(handle));
    }
    // Memory is found by its host addresses, too.
    let (memory, _) = memory_of(ptr).filter(|(memory, _)| memory.device_ptr() == ptr)?;
    // A handle of a pool's memory is made of the address of its chunk.
    let raw = PoolMemory::raw_of(&memory)?;
    Some(raw.cast::<vkgdr_memory>().map_addr(|address| address | POOLED))
}

/// A handle of memory that is not of a pool.
pub(crate) fn whole(memory: Memory) -> vkgdr_memory_t {
    let device_ptr = memory.device_ptr();
    let handle = Contents::Whole(memory).into_handle();
    handle_table::add(device_ptr, handle.expose_provenance());
    handle
}

/// A handle of memory that was found by its address.
pub(crate) fn found(memory: Memory) -> vkgdr_memory_t {
    Contents::Found(memory).into_handle()
}

/// The memory of a handle, for the length of a call.
pub(crate) enum Borrowed<'a> {
    Whole(&'a Memory),
    Region(&'a Region),
    Existing(&'a Mapping),
    /// Never dropped: the caller keeps the handle.
    Pooled(ManuallyDrop<PoolMemory>),
}

impl Borrowed<'_> {
    /// All of an allocation or of a pool's chunk; an error for a region.
    pub(crate) fn memory(&self) -> Outcome<&Memory> {
        match self {
            Self::Whole(memory) => Ok(memory),
            Self::Region(_) | Self::Existing(_) => Err(Failure::Region),
            Self::Pooled(memory) => Ok(memory),
        }
    }
}

impl Deref for Borrowed<'_> {
    type Target = Region;

    #[inline]
    fn deref(&self) -> &Region {
        match self {
            Self::Whole(memory) => memory,
            Self::Region(region) => region,
            Self::Existing(mapping) => mapping,
            Self::Pooled(memory) => memory,
        }
    }
}

/// The memory of a handle.
///
/// # Safety
///
/// `mem` must be null or live.
#[inline]
pub(crate) unsafe fn region<'a>(mem: vkgdr_memory_t) -> Outcome<Borrowed<'a>> {
    if let Some(pooled) = find_pooled(mem) {
        // SAFETY: from `pooled`, and live by this function's contract.
        let memory = unsafe { PoolMemory::borrow_raw(pooled) };
        return memory.map(Borrowed::Pooled).ok_or_else(|| Error::Freed.into());
    }
    // SAFETY: by this function's contract.
    Ok(match &unsafe { handle(mem) }?.inner {
        Contents::Whole(memory) | Contents::Found(memory) => Borrowed::Whole(memory),
        Contents::Region(region) => Borrowed::Region(region),
        Contents::Existing(mapping) => Borrowed::Existing(mapping),
    })
}

/// Calls `work` with the region of a handle.
///
/// A pool's memory is borrowed in another function, so that callers need no stack for other memory.
///
/// # Safety
///
/// `mem` must be null or live.
#[inline]
pub(crate) unsafe fn with<T>(mem: vkgdr_memory_t, work: impl FnOnce(&Region) -> Outcome<T>) -> Outcome<T> {
    match find_pooled(mem) {
        // SAFETY: by this function's contract.
        Some(_) => unsafe { with_pooled(mem, work) },
        // SAFETY: by this function's contract.
        None => work(unsafe { handle(mem) }?.inner.region()),
    }
}

/// # Safety
///
/// As of [`with`].
#[inline(never)]
unsafe fn with_pooled<T>(mem: vkgdr_memory_t, work: impl FnOnce(&Region) -> Outcome<T>) -> Outcome<T> {
    // SAFETY: by this function's contract.
    work(&*unsafe { region(mem) }?)
}

/// The range of `size` bytes at `offset`, checked without overflow to be within the memory.
#[inline]
pub(crate) fn range(whole: &Region, offset: usize, size: usize) -> Outcome<Range<usize>> {
    match offset.checked_add(size) {
        Some(end) if end <= whole.len() => Ok(offset..end),
        _ => Err(Error::OutOfRange { offset, len: size, size: whole.len() }.into()),
    }
}

/// Frees the memory of a handle: immediately, as vkgdr 0.1 does, unless it is bound to a stream.
///
/// # Safety
///
/// `mem` must be live and not be used afterwards, and the device must have finished with it unless it is bound to a
/// stream.
#[inline]
pub(crate) unsafe fn free(mem: vkgdr_memory_t) -> Outcome {
    match find_pooled(mem) {
        // SAFETY: from `pooled`, and not used again; the rest by this function's contract.
        Some(pooled) => Ok(unsafe { PoolMemory::free_raw(pooled) }?),
        // SAFETY: by this function's contract.
        None => unsafe { free_boxed(mem) },
    }
}

/// As [`free`], for memory that is not from a pool.
///
/// # Safety
///
/// As of [`free`].
#[inline(never)]
unsafe fn free_boxed(mem: vkgdr_memory_t) -> Outcome {
    let handle = mem.addr();
    // SAFETY: from `into_handle`, and not used again.
    let mem = unsafe { Box::from_raw(mem) };
    match mem.inner {
        Contents::Region(region) => region.free()?,
        Contents::Existing(mapping) => mapping.unmap()?,
        // Of the owner's memory, for which the device need not have finished.
        Contents::Found(memory) => memory.free_found()?,
        Contents::Whole(memory) => {
            handle_table::remove(memory.device_ptr(), handle);
            if memory.bound_stream().is_some() {
                memory.free()?;
            } else {
                // SAFETY: the device has finished with the memory, by this function's contract.
                unsafe { memory.free_idle() }?;
            }
        }
    }
    Ok(())
}
