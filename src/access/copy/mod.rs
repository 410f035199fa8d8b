//! Copies between private memory and memory that the device, or another thread, may use at the same time.
//!
//! A race over the shared bytes changes which bytes are seen, never whether the program is defined. Rust allows
//! that for atomic accesses of one size, so every access to shared bytes counts as one to single bytes: it is made by
//! assembly, or by libc's, whose wider accesses are invisible to the compiler, elsewhere by relaxed byte atomics.
//!
//! Memory that the CPU caches is copied by [`mod@cached`]. Where it does not, stores are write-combined and loads wait for
//! the bus: [`plan`] says which accesses a copy makes, [`by_plan`] makes them with those of an instruction set, each of
//! which has a file, and [`mod@routine`] chooses one.
//!
//! # Order
//!
//! The accesses of one copy have no order among themselves. A write ends with a fence: its bytes come before whatever
//! this thread stores later, as the device sees it. A read begins with one: its bytes are loaded after whatever this
//! thread has loaded before, such as a flag that says that they are there. Nothing comes after a read: a later load, other
//! than by a read, may be carried out before it. The fences of memory that the CPU caches are lighter: x86-64 keeps its
//! plain stores in order, and its plain loads, so that there are none.
#![expect(unsafe_code, reason = "copies through raw pointers")]

mod by_plan;
mod cached;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plan;
mod portable;
mod routine;
#[cfg(test)]
mod tests;
mod threads;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use by_plan::Accesses;
use cached::Vectors;
use routine::Choice;
pub use routine::CopyRoutine;

use crate::allocation::LINE;

#[cfg(target_arch = "aarch64")]
use neon as fences;
#[cfg(target_arch = "x86_64")]
use x86_64 as fences;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod fences {
    use std::sync::atomic::{Ordering, fence};

    pub(super) fn store_fence() {
        fence(Ordering::SeqCst);
    }

    pub(super) fn load_fence() {
        fence(Ordering::SeqCst);
    }

    pub(super) use load_fence as cached_load_fence;
    pub(super) use store_fence as cached_store_fence;
}

/// The functions of a routine.
#[derive(Debug)]
struct Table {
    /// As [`by_plan::write`], with its contract.
    write: unsafe fn(*mut u8, &[u8]),
    /// As [`by_plan::read`], with its contract, after everything that this thread has loaded before.
    read: unsafe fn(*const u8, &mut [u8]),
}

impl Table {
    const PORTABLE: &Self = &Self::planned::<portable::Portable>();
    const ORDINARY: &Self = &Self { write: write_cached_memory, read: read_cached_memory };

    const fn planned<A: Accesses>() -> Self {
        Self { write: by_plan::write::<A>, read: read_by_plan::<A> }
    }

    /// The routine's functions, if this CPU has its instructions.
    fn of(routine: CopyRoutine) -> Option<&'static Self> {
        match routine {
            CopyRoutine::Portable => Some(Self::PORTABLE),
            CopyRoutine::Ordinary => Some(Self::ORDINARY),
            #[cfg(target_arch = "aarch64")]
            CopyRoutine::Neon => Some(&const { Self::planned::<neon::Neon>() }),
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Sse41 | CopyRoutine::Avx2 | CopyRoutine::Avx512 | CopyRoutine::Movdir64b => {
                x86_64::table(routine)
            }
            #[allow(unreachable_patterns, reason = "which routines are left depends on the architecture")]
            _ => None,
        }
    }
}

/// # Safety
///
/// As of [`by_plan::read`].
unsafe fn read_by_plan<A: Accesses>(source: *const u8, target: &mut [u8]) {
    fences::load_fence();
    // SAFETY: by this function's contract.
    unsafe { by_plan::read::<A>(source, target) };
}

/// # Safety
///
/// As of [`cached::copy`].
unsafe fn write_cached_memory(target: *mut u8, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { cached::copy(Vectors::here, target, source.as_ptr(), source.len()) };
}

/// # Safety
///
/// As of [`cached::copy`].
unsafe fn read_cached_memory(source: *const u8, target: &mut [u8]) {
    fences::load_fence();
    // SAFETY: by this function's contract.
    unsafe { cached::copy(Vectors::here, target.as_mut_ptr(), source, target.len()) };
}

/// The routine for memory that the CPU caches, or does not.
pub(super) fn routine(cached: bool) -> CopyRoutine {
    let choice = Choice::made();
    if cached && !choice.forced { CopyRoutine::Ordinary } else { choice.routine }
}

/// How cached memory is copied, as far as that is known: `Vectors` where no routine is forced.
static ORDINARY: AtomicU8 = AtomicU8::new(0);

/// The vectors for cached memory.
#[inline]
fn vectors() -> Vectors {
    if ORDINARY.load(Ordering::Relaxed) == Vectors::Wide as u8 { Vectors::Wide } else { Vectors::Narrow }
}

/// Whether memory is copied as write-combined memory: where the CPU does not cache it, or a routine was forced.
#[inline]
pub(super) fn is_write_combined(cached: bool) -> bool {
    #[cold]
    fn find_out() -> bool {
        if Choice::made().forced {
            return true;
        }
        ORDINARY.store(Vectors::here() as u8, Ordering::Relaxed);
        false
    }
    !cached || (ORDINARY.load(Ordering::Relaxed) == 0 && find_out())
}

/// As [`write()`], to cached memory.
///
/// # Safety
///
/// As of [`write()`].
#[inline]
pub(crate) unsafe fn write_cached(target: NonNull<u8>, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { cached::copy(vectors, target.as_ptr(), source.as_ptr(), source.len()) };
    fences::cached_store_fence();
}

/// As [`read`], from cached memory.
///
/// # Safety
///
/// As of [`read`].
#[inline]
pub(crate) unsafe fn read_cached(source: NonNull<u8>, target: &mut [u8]) {
    fences::cached_load_fence();
    // SAFETY: by this function's contract.
    unsafe { cached::copy(vectors, target.as_mut_ptr(), source.as_ptr(), target.len()) };
}

/// Copies `source` to the shared bytes at `target`, and orders them before this thread's later stores.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, and no Rust reference to them exist.
#[inline]
pub(super) unsafe fn write(cached: bool, target: NonNull<u8>, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { write_unordered(cached, target, source) };
    order_writes(cached);
}

/// As [`write()`], but orders nothing: [`order_writes`] must follow.
///
/// # Safety
///
/// As of [`write()`].
#[inline]
pub(super) unsafe fn write_unordered(cached: bool, target: NonNull<u8>, source: &[u8]) {
    if is_write_combined(cached) {
        // SAFETY: by this function's contract; whatever was chosen the CPU has.
        unsafe { (Choice::made().table.write)(target.as_ptr(), source) };
    } else {
        // SAFETY: by this function's contract.
        unsafe { cached::copy(vectors, target.as_ptr(), source.as_ptr(), source.len()) };
    }
}

/// Orders this thread's earlier writes before its later stores, as the device sees them.
#[inline]
pub(super) fn order_writes(cached: bool) {
    if is_write_combined(cached) {
        fences::store_fence();
    } else {
        fences::cached_store_fence();
    }
}

/// Orders this thread's later loads of shared bytes after its earlier ones, also against the device's stores. What a
/// [`read`] begins with.
#[inline]
pub(super) fn order_reads(cached: bool) {
    if is_write_combined(cached) {
        fences::load_fence();
    } else {
        fences::cached_load_fence();
    }
}

/// Copies the shared bytes at `source` to `target`, after whatever this thread has loaded before.
///
/// # Safety
///
/// All of the [lines](crate::allocation::LINE) that hold the `target.len()` bytes at `source` must be mapped, and no
/// mutable Rust reference to those bytes exist.
#[inline]
pub(super) unsafe fn read(cached: bool, source: NonNull<u8>, target: &mut [u8]) {
    if is_write_combined(cached) {
        // SAFETY: by this function's contract.
        unsafe { read_uncached(!cached, source, target) };
    } else {
        // SAFETY: by this function's contract.
        unsafe { read_cached(source, target) };
    }
}

/// # Safety
///
/// As of [`read`].
unsafe fn read_uncached(spread: bool, source: NonNull<u8>, target: &mut [u8]) {
    let read = Choice::made().table.read;
    if spread && threads::are_worth_it(target.len()) {
        // SAFETY: by this function's contract; whatever was chosen the CPU has.
        unsafe { threads::read(read, source.as_ptr(), target) };
    } else {
        // SAFETY: as above.
        unsafe { read(source.as_ptr(), target) };
    }
}

/// Repeats `pattern` over the `len` shared bytes at `target`, and orders them as [`write()`].
///
/// # Safety
///
/// `len` bytes at `target` must be mapped, and no Rust reference to them exist.
pub(super) unsafe fn fill(cached: bool, target: NonNull<u8>, len: usize, pattern: &[u8]) {
    /// Large enough that the repetition costs nothing, small enough to stay in the first-level cache.
    const STEP: usize = 4096;
    if pattern.is_empty() {
        return;
    }
    // From any place in the first pattern on, a step's bytes.
    let block = pattern.repeat(1 + STEP.min(len).div_ceil(pattern.len()));
    let mut done = 0;
    while done < len {
        let phase = done % pattern.len();
        // All steps but the first begin with a line.
        let step = STEP - (target.addr().get() + done) % LINE;
        let part = &block[phase..phase + step.min(len - done)];
        // SAFETY: `done` is within the bytes at `target`.
        let to = unsafe { target.add(done) };
        // SAFETY: `part` ends within the bytes at `target`.
        unsafe { write_unordered(cached, to, part) };
        done += part.len();
    }
    order_writes(cached);
}
