//! `vkgdr_pool_t`: small memory without driver calls, from blocks that were allocated before.
//!
//! Memory of a pool is a `vkgdr_memory_t` like any other: `memory`, `access` and `copy` have its functions.
#![expect(unsafe_code, reason = "exports C symbols")]

use vkgdr_rs::{Pool, PoolOptions};

use crate::CUstream;
use crate::boundary::{self, handle};
use crate::errors::{Failure, Outcome};
use crate::handle::vkgdr_t;
use crate::kind::kind;
use crate::memory_handle::{owned, vkgdr_memory_t};

/// Allocates small memory in nanoseconds, without a driver call.
#[derive(Debug)]
pub struct vkgdr_pool {
    inner: Pool,
}

/// A handle of a pool.
pub type vkgdr_pool_t = *mut vkgdr_pool;

/// The options of a pool. Set all members to 0, then `size`: 0 selects the default of each of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct vkgdr_pool_options {
    /// `sizeof(struct vkgdr_pool_options)`: a later version may have more members.
    pub size: usize,
    /// The size of the blocks that the pool allocates, in bytes, from 64 KiB to 128 GiB; 32 MiB by default. Less than
    /// 4 MiB requires a smaller `largest_chunk`, too.
    pub block_len: usize,
    /// The largest chunk of a block, in bytes, from 256 to the smaller of a block and 1 GiB; 4 MiB by default. Larger
    /// requests get an allocation of their own.
    pub largest_chunk: usize,
    /// The alignment of addresses on both sides, in bytes: a power of two from 64 to 4096; 64 by default. On the host
    /// it is at most the alignment of Vulkan's mapping, and on the device that of CUDA's allocations, where Vulkan is missing.
    pub alignment: usize,
    /// The kind of memory, of `enum vkgdr_memory_flags`; VKGDR_MEMORY_MAPPED by default.
    pub kind: u32,
    /// The number of size classes for each doubling of the size: a power of two from 1 to 64; 4 by default. A size is
    /// rounded up to that of its class.
    pub classes_per_doubling: u32,
}

/// The state of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct vkgdr_pool_stats {
    /// Free chunks, including those that wait for the device.
    pub free_chunks: usize,
    /// Memory in use: chunks, and allocations of their own.
    pub used_chunks: usize,
    /// Bytes of the pool's blocks and of its allocations of their own: in use, free, or lost between chunks.
    pub managed_bytes: usize,
    /// Requested bytes of the memory in use.
    pub active_bytes: usize,
}

/// The crate's options.
fn options(given: &vkgdr_pool_options) -> Outcome<PoolOptions> {
    type Set = fn(PoolOptions, usize) -> PoolOptions;
    let members: [(usize, Set); 3] = [
        (given.block_len, PoolOptions::block_len),
        (given.largest_chunk, PoolOptions::largest_chunk),
        (given.alignment, PoolOptions::alignment),
    ];
    let options = PoolOptions::new(kind(given.kind)?);
    let options =
        members.into_iter().filter(|(value, _)| *value != 0).fold(options, |all, (value, set)| set(all, value));
    Ok(match given.classes_per_doubling {
        0 => options,
        classes => options.classes_per_doubling(classes),
    })
}

/// The crate's options, from the struct of the caller's version of the header.
///
/// # Safety
///
/// `pointer` must be null or good for reading its first member, and as many bytes as that says.
unsafe fn read_options(pointer: *const vkgdr_pool_options) -> Outcome<PoolOptions> {
    if pointer.is_null() {
        return Ok(PoolOptions::default());
    }
    // SAFETY: the first member can be read, by this function's contract.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size != size_of::<vkgdr_pool_options>() {
        return Err(Failure::OptionsSize(size));
    }
    // SAFETY: so many bytes can be read, by this function's contract.
    options(&unsafe { pointer.read() })
}

/// Creates a pool, without a block at first.
///
/// Its memory belongs to the primary context if the handle was opened with vkgdr_open_primary_context(), else to the
/// context that is current now. Afterwards any context may be current, on any thread.
///
/// @param g        The GPU. It may be closed before the pool.
/// @param options  The options; NULL for the defaults.
/// @param out      Where the pool is written; for vkgdr_pool_close().
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `g` must be NULL or a live handle, `options` NULL or good for reading its `size` bytes, `out` NULL or good for
/// writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_create(
    g: vkgdr_t,
    options: *const vkgdr_pool_options,
    out: *mut vkgdr_pool_t,
) -> i32 {
    let make = || {
        // SAFETY: by this function's contract.
        let gpu = &unsafe { handle(g) }?.inner;
        // SAFETY: by this function's contract.
        let inner = Pool::new(gpu, unsafe { read_options(options) }?)?;
        Ok(Box::into_raw(Box::new(vkgdr_pool { inner })))
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::making(out, make) }
}

/// Closes a pool. NULL is allowed. Its free memory is released, after a wait for the context where the device may still use it.
/// What was freed behind a stream's work is released later, as by vkgdr_device_collect(). Memory in use stays valid until it is
/// freed, and its block is released with the last chunk in use.
///
/// @param pool  The pool, which must not be used afterwards.
///
/// # Safety
///
/// `pool` must be NULL or a pool that is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_close(pool: vkgdr_pool_t) {
    // SAFETY: from `vkgdr_pool_create`, and not used again.
    unsafe { boundary::close(pool) };
}

/// Allocates memory from a pool, for every function that takes memory. The contents are undefined.
///
/// vkgdr_memory_free() returns it to the pool, which reuses it immediately. **The device must have finished with it**,
/// as with any memory that is not bound to a stream. Where the device may still use it, bind it to a stream or free it
/// with vkgdr_memory_free_on_stream().
///
/// @param pool  The pool.
/// @param size  Bytes, more than 0.
/// @return Memory for vkgdr_memory_free(), or NULL: see vkgdr_last_error().
///
/// # Safety
///
/// `pool` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_alloc(pool: vkgdr_pool_t, size: usize) -> vkgdr_memory_t {
    // SAFETY: by this function's contract.
    boundary::pointer(|| Ok(owned(unsafe { handle(pool) }?.inner.allocate(size)?)))
}

/// As vkgdr_pool_alloc(), and bound to a stream as by vkgdr_memory_bind_stream().
///
/// Earlier work of the stream may still use the memory; work that is submitted to the stream from now on runs after
/// it. The CPU must wait for the stream before it writes or reads.
///
/// @param pool    The pool.
/// @param size    Bytes, more than 0.
/// @param stream  A stream of the pool's context; NULL is its legacy default stream.
/// @return Memory for vkgdr_memory_free(), or NULL: see vkgdr_last_error().
///
/// # Safety
///
/// `pool` must be NULL or live; the stream must stay alive as vkgdr_memory_bind_stream() says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_alloc_on(pool: vkgdr_pool_t, size: usize, stream: CUstream) -> vkgdr_memory_t {
    boundary::pointer(|| {
        // SAFETY: by this function's contract.
        let pool = &unsafe { handle(pool) }?.inner;
        // SAFETY: by this function's contract.
        Ok(owned(unsafe { pool.allocate_on_raw(size, stream.cast()) }?))
    })
}

/// Releases unused blocks until the pool has at most `keep` bytes. Memory that the device may still use stays. The driver
/// itself may wait for running kernels.
///
/// @param pool   The pool.
/// @param keep   Bytes.
/// @param freed  Where the number of released bytes is written; may be NULL.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `pool` must be NULL or live, `freed` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_trim(pool: vkgdr_pool_t, keep: usize, freed: *mut usize) -> i32 {
    boundary::status(|| {
        // SAFETY: by this function's contract.
        let bytes = unsafe { handle(pool) }?.inner.trim(keep);
        // SAFETY: by this function's contract.
        if freed.is_null() { Ok(()) } else { unsafe { boundary::put(freed, bytes) } }
    })
}

/// Waits until the device has finished with the pool's free memory, and releases every unused block. Free memory that shares a
/// block with memory in use stays.
///
/// @param pool  The pool.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `pool` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_free_held(pool: vkgdr_pool_t) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::run(pool, |pool| pool.inner.release_unused()) }
}

/// As vkgdr_pool_free_held(), and from now on releases every block once it is unused: for a pool that will soon not be needed.
/// What is freed behind a stream's work is released as after vkgdr_pool_close().
///
/// @param pool  The pool.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `pool` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_stop_holding(pool: vkgdr_pool_t) -> i32 {
    // SAFETY: by this function's contract.
    unsafe { boundary::run(pool, |pool| pool.inner.disable_caching()) }
}

/// The current state of a pool.
///
/// @param pool  The pool.
/// @param out   Where the numbers are written.
/// @return A `vkgdr_status`.
///
/// # Safety
///
/// `pool` must be NULL or live, `out` NULL or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_pool_get_stats(pool: vkgdr_pool_t, out: *mut vkgdr_pool_stats) -> i32 {
    let stats = |pool: &vkgdr_pool| {
        Ok(vkgdr_pool_stats {
            free_chunks: pool.inner.free_chunks(),
            used_chunks: pool.inner.used_chunks(),
            managed_bytes: pool.inner.managed_bytes(),
            active_bytes: pool.inner.active_bytes(),
        })
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::answer(pool, out, stats) }
}
