//! `vkgdr_ring_t`: messages to a running kernel and answers from it.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_void;
use std::time::Duration;

use vkgdr_rs::Error;
use vkgdr_rs::ring::Ring;

use crate::access::{bytes, bytes_mut, elements};
use crate::boundary::{self, handle, put, required};
use crate::handle::vkgdr_t;
use crate::{CUdeviceptr, CUstream};

/// Messages to a kernel that keeps running, and its answers. The kernel's end is in `vkgdr_ring.cuh`.
#[derive(Debug)]
pub struct vkgdr_ring {
    inner: Ring,
}

/// A handle of a ring.
pub type vkgdr_ring_t = *mut vkgdr_ring;

/// What has passed through a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct vkgdr_ring_stats {
    /// Messages that were pushed.
    pub pushed: u64,
    /// Their bytes.
    pub pushed_bytes: u64,
    /// Batches in which they were pushed, each with one fence. Skipping the rest before the ring's end counts as one.
    pub publications: u64,
    /// Pushes that found too little room, each try of a waiting one included.
    pub full: u64,
    /// Bytes that are in use, headers included. A message counts until the kernel has read it and given its room back.
    pub unread_bytes: u64,
    /// Answers that were popped.
    pub popped: u64,
    /// Their bytes.
    pub popped_bytes: u64,
    /// Stores that returned the room of answers to the kernel.
    pub returns: u64,
    /// Pops that found no answer, each try of a waiting one included.
    pub empty: u64,
}

/// Allocates a ring. The memory belongs to the context of vkgdr_memory_alloc(); afterwards any context may be current, on any
/// thread.
///
/// Messages are in mapped memory, or in host memory where the GPU has none, or none left. Allocate before a kernel runs
/// that waits for the CPU: an allocation may wait for it.
///
/// @param g         The GPU. It may be closed before the ring.
/// @param messages  The size of the longest message in bytes, more than 0. There is room for one such message, or for several
///                  shorter ones. Each takes its size, rounded up to a multiple of 16, and 16 bytes. A message lies in one
///                  piece: to push while no kernel runs, ask for twice the rounded size. Even an empty ring may have no room
///                  for a long one, until a running kernel has passed the rest before the ring's end.
/// @param answers   The same for answers. A kernel's answer may be this size rounded up to a multiple of 16.
/// @param out       Where the ring is written; for vkgdr_ring_free().
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_create(g: vkgdr_t, messages: usize, answers: usize, out: *mut vkgdr_ring_t) -> i32 {
    let make = || {
        // SAFETY: by this function's contract.
        let inner = Ring::new(&unsafe { handle(g) }?.inner, messages, answers)?;
        Ok(Box::into_raw(Box::new(vkgdr_ring { inner })))
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::making(out, make) }
}

/// Aborts the kernel as vkgdr_ring_abort(), and frees the ring. NULL is allowed. The memory of rings is freed with the last
/// ring of their context, which waits until the context has ended its work. Free the ring before the kernel's module is unloaded,
/// which waits for the kernel.
///
/// @param ring  The ring, which must not be used afterwards.
///
/// # Safety
///
/// `ring` must be NULL or a ring that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_free(ring: vkgdr_ring_t) {
    // SAFETY: from `vkgdr_ring_create`, and not used again.
    unsafe { boundary::close(ring) };
}

/// Binds a ring to the stream of its kernel. If no other ring of its context has lived beside it, vkgdr_ring_free() then returns
/// at once, and the memory is freed after that kernel.
///
/// @param ring    The ring.
/// @param stream  A stream of the ring's context; NULL is its legacy default stream.
/// @return A `vkgdr_status`, as of vkgdr_memory_bind_stream().
///
/// # Safety
///
/// `ring` must be NULL or live. The stream must stay alive until the ring is freed, or bound to another stream. It must
/// also stay alive until calls for the ring that other threads began before have returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_bind_stream(ring: vkgdr_ring_t, stream: CUstream) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let ring = &unsafe { handle(ring) }?.inner;
        // SAFETY: by this function's contract.
        Ok(unsafe { ring.bind_raw_stream(stream.cast()) }?)
    })
}

/// The kernel's argument: the device address of a ring, for vkgdr_device_ring_open() in `vkgdr_ring.cuh`.
///
/// @param ring  The ring.
/// @return The address; 0 for NULL.
///
/// # Safety
///
/// `ring` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_get_device_ptr(ring: vkgdr_ring_t) -> CUdeviceptr {
    // SAFETY: by this function's contract.
    boundary::value(0, || Ok(unsafe { handle(ring) }?.inner.device_ptr()))
}

/// Pushes a message, and waits for room. The wait keeps the CPU busy.
///
/// @param ring     The ring.
/// @param message  The bytes; may be NULL if `size` is 0.
/// @param size     Bytes.
/// @param timeout  The longest wait in nanoseconds: 0 for none; UINT64_MAX is 584 years.
/// @return A `vkgdr_status`: VKGDR_ERROR_TIMEOUT if there was no room, VKGDR_ERROR_CLOSED after vkgdr_ring_close() and
///         vkgdr_ring_abort(), VKGDR_ERROR_OUT_OF_RANGE for a message that is longer than the ring.
///
/// # Safety
///
/// `ring` must be NULL or live, `message` good for reading `size` bytes that are not written meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_push(ring: vkgdr_ring_t, message: *const c_void, size: usize, timeout: u64) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let ring = &unsafe { handle(ring) }?.inner;
        // SAFETY: by this function's contract.
        let message = unsafe { bytes(message, size, "message") }?;
        Ok(ring.push(message, Duration::from_nanos(timeout))?)
    })
}

/// Pushes messages while there is room, all under one fence. Does not wait.
///
/// @param ring      The ring.
/// @param messages  The address of each message.
/// @param sizes     The bytes of each message.
/// @param count     Messages; `messages` and `sizes` may be NULL if it is 0.
/// @param pushed    Where the number of messages that were pushed is written; the first ones.
/// @return A `vkgdr_status`: VKGDR_SUCCESS also if there was no room, with 0 in `pushed`; otherwise as of vkgdr_ring_push() for
///         the first message. A later one that is too long, or NULL with a size, ends the batch, and those before it are
///         pushed.
///
/// # Safety
///
/// `ring` must be NULL or live, `messages` and `sizes` good for reading `count` elements, each message for its bytes,
/// `pushed` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_push_all(
    ring: vkgdr_ring_t,
    messages: *const *const c_void,
    sizes: *const usize,
    count: usize,
    pushed: *mut usize,
) -> i32 {
    boundary::status(|| {
        required(pushed)?;
        // SAFETY: by this function's contract.
        let ring = &unsafe { handle(ring) }?.inner;
        // SAFETY: by this function's contract.
        let messages = unsafe { elements(messages, count, "messages") }?;
        // No more than there may be room for, so that a batch that finds none costs nothing: each takes 16 bytes at least.
        let messages = &messages[..count.min(ring.max_message() / 16 + 2)];
        // SAFETY: by this function's contract.
        let sizes = unsafe { elements(sizes, count, "sizes") }?;
        let mut all = Vec::with_capacity(messages.len());
        for (message, size) in messages.iter().zip(sizes) {
            // SAFETY: by this function's contract.
            match unsafe { bytes(*message, *size, "a message") } {
                Ok(message) => all.push(message),
                Err(failure) if all.is_empty() => return Err(failure),
                // As one that is too long for the ring: it fails as the first of the next batch.
                Err(_) => break,
            }
        }
        let count = ring.try_push_all(&all)?;
        // SAFETY: by this function's contract.
        unsafe { put(pushed, count) }
    })
}

/// Pops an answer, and waits for one. The wait keeps the CPU busy.
///
/// @param ring      The ring.
/// @param buffer    Where the answer goes; may be NULL if `capacity` is 0.
/// @param capacity  Bytes of the buffer.
/// @param size      Where the answer's length in bytes is written, also if the buffer is too short.
/// @param timeout   The longest wait in nanoseconds: 0 for none; UINT64_MAX is 584 years.
/// @return A `vkgdr_status`: VKGDR_ERROR_TIMEOUT if there was no answer, VKGDR_ERROR_CLOSED if there will be none: the kernel
///         closed its end or the ring was aborted. VKGDR_ERROR_OUT_OF_RANGE if the buffer is too short: then the answer stays
///         in the ring.
///
/// # Safety
///
/// `ring` must be NULL or live, `buffer` good for writing `capacity` bytes, `size` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_pop(
    ring: vkgdr_ring_t,
    buffer: *mut c_void,
    capacity: usize,
    size: *mut usize,
    timeout: u64,
) -> i32 {
    boundary::status(|| {
        required(size)?;
        // SAFETY: by this function's contract.
        let ring = &unsafe { handle(ring) }?.inner;
        // SAFETY: by this function's contract.
        let buffer = unsafe { bytes_mut(buffer, capacity, "buffer") }?;
        let popped = ring.pop_into(buffer, Duration::from_nanos(timeout));
        if let Ok(len) | Err(Error::MessageTooLong { len, .. }) = popped {
            // SAFETY: by this function's contract.
            unsafe { put(size, len) }?;
        }
        Ok(popped.map(drop)?)
    })
}

/// Ends the messages: the kernel's pops return NULL once it has read all of them.
///
/// @param ring  The ring.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `ring` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_close(ring: vkgdr_ring_t) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::with(ring, |ring| Ok(ring.inner.close()?)) }
}

/// Ends the kernel's waits and its reading at once, and all pushes and pops. What is on its way is lost.
///
/// @param ring  The ring.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `ring` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_abort(ring: vkgdr_ring_t) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::with(ring, |ring| Ok(ring.inner.abort()?)) }
}

/// What has passed through a ring.
///
/// @param ring  The ring.
/// @param out   Where the numbers are written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `ring` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_ring_get_stats(ring: vkgdr_ring_t, out: *mut vkgdr_ring_stats) -> i32 {
    let stats = |ring: &vkgdr_ring| {
        let stats = ring.inner.stats()?;
        Ok(vkgdr_ring_stats {
            pushed: stats.pushed,
            pushed_bytes: stats.pushed_bytes,
            publications: stats.publications,
            full: stats.full,
            unread_bytes: stats.unread_bytes,
            popped: stats.popped,
            popped_bytes: stats.popped_bytes,
            returns: stats.returns,
            empty: stats.empty,
        })
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(ring, out, stats) }
}
