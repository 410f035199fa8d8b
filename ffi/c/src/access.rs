//! Exports: flush, invalidate, write, read and fill.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_void;
use std::ops::Range;
use std::slice;

use vkgdr_rs::Memory;

use crate::boundary::{self, handle};
use crate::errors::{Failure, Outcome};
use crate::memory_handle::{range, vkgdr_memory, vkgdr_memory_t};

/// Makes the CPU's writes to a range visible to the device. The range may start and end anywhere within the memory,
/// and is rounded outwards to whole atoms. A range that is not within the memory is ignored.
///
/// @param mem     The memory, or a region of it.
/// @param offset  The first byte.
/// @param size    Bytes; SIZE_MAX, which is Vulkan's VK_WHOLE_SIZE, for all up to the end.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_flush(mem: vkgdr_memory_t, offset: usize, size: usize) {
    // SAFETY: by this function's contract.
    boundary::value((), || flush(unsafe { handle(mem) }?, offset, size));
}

/// As vkgdr_memory_flush(), and returns errors.
///
/// @param mem     The memory, or a region of it.
/// @param offset  The first byte.
/// @param size    Bytes, as of vkgdr_memory_flush().
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_flush_checked(mem: vkgdr_memory_t, offset: usize, size: usize) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::with(mem, |mem| flush(mem, offset, size)) }
}

#[inline]
fn flush(mem: &vkgdr_memory, offset: usize, size: usize) -> Outcome {
    Ok(mem.memory.flush(range_or_rest(&mem.memory, offset, size))?)
}

/// Makes the device's writes to a range visible to the CPU. The range may start and end anywhere within the memory,
/// and is rounded outwards to whole atoms. A range that is not within the memory is ignored.
///
/// @param mem     The memory, or a region of it.
/// @param offset  The first byte.
/// @param size    Bytes; SIZE_MAX, which is Vulkan's VK_WHOLE_SIZE, for all up to the end.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_invalidate(mem: vkgdr_memory_t, offset: usize, size: usize) {
    // SAFETY: by this function's contract.
    boundary::value((), || invalidate(unsafe { handle(mem) }?, offset, size));
}

/// As vkgdr_memory_invalidate(), and returns errors.
///
/// @param mem     The memory, or a region of it.
/// @param offset  The first byte.
/// @param size    Bytes, as of vkgdr_memory_invalidate().
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_invalidate_checked(mem: vkgdr_memory_t, offset: usize, size: usize) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::with(mem, |mem| invalidate(mem, offset, size)) }
}

#[inline]
fn invalidate(mem: &vkgdr_memory, offset: usize, size: usize) -> Outcome {
    Ok(mem.memory.invalidate(range_or_rest(&mem.memory, offset, size))?)
}

/// The range of a flush: `usize::MAX` bytes are those up to the end of the memory, as `VK_WHOLE_SIZE` is in Vulkan, which
/// vkgdr 0.1 hands its arguments to.
#[inline]
fn range_or_rest(memory: &Memory, offset: usize, size: usize) -> Range<usize> {
    let end = if size == usize::MAX { memory.len().max(offset) } else { offset.saturating_add(size) };
    offset..end
}

/// Copies `size` bytes to the memory by the CPU. Calls no driver, and does not flush. vkgdr_copy_write() chooses who copies.
///
/// @param mem     The memory, or a region of it.
/// @param offset  The first byte in the memory.
/// @param source  The bytes to copy; may be NULL if `size` is 0.
/// @param size    Bytes.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `source` good for reading `size` bytes that are not written meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_write(
    mem: vkgdr_memory_t,
    offset: usize,
    source: *const c_void,
    size: usize,
) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let memory = &unsafe { handle(mem) }?.memory;
        let range = range(memory, offset, size)?;
        // SAFETY: by this function's contract.
        Ok(memory.write(range.start, unsafe { bytes(source, size, "source") }?)?)
    })
}

/// Copies `size` bytes from the memory by the CPU. Calls no driver, and does not invalidate. vkgdr_copy_read() chooses who copies.
///
/// @param mem     The memory, or a region of it.
/// @param offset  The first byte in the memory.
/// @param target  Where the bytes go; may be NULL if `size` is 0.
/// @param size    Bytes.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `target` good for writing `size` bytes that are not used otherwise meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_read(
    mem: vkgdr_memory_t,
    offset: usize,
    target: *mut c_void,
    size: usize,
) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let memory = &unsafe { handle(mem) }?.memory;
        let range = range(memory, offset, size)?;
        // SAFETY: by this function's contract.
        Ok(memory.read(range.start, unsafe { bytes_mut(target, size, "target") }?)?)
    })
}

/// Fills a range with a repeated pattern by the CPU. Does not flush.
///
/// @param mem           The memory, or a region of it.
/// @param offset        The first byte.
/// @param size          Bytes; a multiple of `pattern_size`.
/// @param pattern       The pattern.
/// @param pattern_size  Bytes of the pattern, more than 0.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `mem` must be NULL or live, `pattern` good for reading `pattern_size` bytes that are not written meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_fill(
    mem: vkgdr_memory_t,
    offset: usize,
    size: usize,
    pattern: *const c_void,
    pattern_size: usize,
) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let memory = &unsafe { handle(mem) }?.memory;
        let range = range(memory, offset, size)?;
        // SAFETY: by this function's contract.
        let pattern = unsafe { bytes(pattern, pattern_size, "pattern") }?;
        if pattern.is_empty() {
            return Err(Failure::Empty("pattern"));
        }
        Ok(memory.fill_pattern(range, pattern)?)
    })
}

/// The caller's bytes, to read, the argument `name`.
///
/// # Safety
///
/// `pointer` must be null or good for reading `size` bytes that are not written meanwhile.
pub(crate) unsafe fn bytes<'a>(pointer: *const c_void, size: usize, name: &'static str) -> Outcome<&'a [u8]> {
    check_len(size)?;
    // SAFETY: by this function's contract.
    unsafe { elements(pointer.cast(), size, name) }
}

/// An array of the caller's, the argument `name`.
///
/// # Safety
///
/// `pointer` must be null or good for reading `count` elements.
pub(crate) unsafe fn elements<'a, T>(pointer: *const T, count: usize, name: &'static str) -> Outcome<&'a [T]> {
    check_len(count.saturating_mul(size_of::<T>()))?;
    match (pointer.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::Null(name)),
        // SAFETY: by this function's contract.
        (false, _) => Ok(unsafe { slice::from_raw_parts(pointer, count) }),
    }
}

/// The caller's bytes, to write, the argument `name`.
///
/// # Safety
///
/// `pointer` must be null or good for writing `size` bytes that are not used otherwise meanwhile.
pub(crate) unsafe fn bytes_mut<'a>(pointer: *mut c_void, size: usize, name: &'static str) -> Outcome<&'a mut [u8]> {
    check_len(size)?;
    match (pointer.is_null(), size) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::Null(name)),
        // SAFETY: by this function's contract.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(pointer.cast::<u8>(), size) }),
    }
}

/// No object is larger than `isize::MAX`, and Rust's slices rely on it.
fn check_len(len: usize) -> Outcome {
    if isize::try_from(len).is_ok() { Ok(()) } else { Err(Failure::TooLong(len)) }
}
