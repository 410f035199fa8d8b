//! Copies between private memory and memory that the device, or another thread, may use at the same time.
//!
//! A race over the shared bytes changes which bytes are seen, never whether the program is defined. Rust allows that
//! for atomic accesses of one size, so the compiler must see accesses to single bytes only. Wider ones are hidden from
//! it in assembly, ours or libc's. Elsewhere copies use relaxed byte atomics.
//!
//! [`HostAccess`] says how memory is copied, and is decided once per allocation. Cached memory is copied by [`cached`];
//! write-combined memory by the routine that [`mod@routine`] chose for the process: [`accesses`] makes a copy of the
//! accesses of an instruction set, each of which has a file.
//!
//! # Order
//!
//! The accesses of one copy have no order among themselves. A write ends with a store fence: its bytes come before
//! this thread's later stores, as the device sees them. A read begins with a load fence: its bytes are loaded after this
//! thread's earlier loads, such as that of a flag that says that they are there. Nothing is ordered after a read: a later
//! load, other than by a read, may be carried out before it.
//!
//! Cached memory needs no instruction for this on x86-64, which keeps plain stores in order, and plain loads (Intel's
//! Software Developer's Manual, volume 3, "Memory Ordering in P6 and More Recent Processor Families"). Write-combined
//! memory does: it is weakly ordered and read speculatively, and since a device's stores to its own memory are not snooped,
//! the CPU cannot repeat a load that it carried out too early.
//!
//! * The load fence is LFENCE. Loads do not pass it ("Reads cannot pass earlier LFENCE and MFENCE instructions", ibid.), nor
//!   does any other instruction begin before it. A locked instruction is cheaper but may let loads of write-combined
//!   memory pass (ibid., "Strengthening or Weakening the Memory-Ordering Model").
//! * MFENCE, 10 ns more, would also order earlier stores, which a read does not need: loads see this thread's own stores.
//! * Streaming loads (MOVNTDQA) could find data that was fetched before the fence. The first of a line may fetch all of
//!   it into a buffer that serves only streaming loads of its *unread* portions (volume 2, "MOVNTDQA"; volume 1,
//!   "Streaming Load Hint Instruction"). So only whole lines are read by streaming loads, all of a line side by side.
//!   Parts of lines are read by plain loads, which drop such a buffer: no copy leaves an unread portion behind.
#![expect(unsafe_code, reason = "copies through raw pointers")]

mod accesses;
mod cached;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod routine;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::borrow::Cow;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use accesses::Accesses;
pub(crate) use cached::Vectors;
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

/// How the CPU copies an allocation's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostAccess {
    /// Not at all: it is not mapped.
    None,
    /// As cached memory, with these registers.
    Cached(Vectors),
    /// By the routine that `VKGDR_COPY` forces, although the CPU caches it.
    CachedByRoutine,
    /// By the process's routine for write-combined memory.
    WriteCombined,
}

const _: () = assert!(size_of::<HostAccess>() == 1);

impl HostAccess {
    /// Returns how the CPU copies memory, given whether it is mapped and whether the CPU caches it. The first call chooses
    /// the routine and may log.
    pub(crate) fn of(mapped: bool, cached: bool) -> Self {
        let choice = Choice::made();
        match (mapped, cached) {
            (false, _) => Self::None,
            (true, false) => Self::WriteCombined,
            (true, true) if choice.forced => Self::CachedByRoutine,
            (true, true) => Self::Cached(Vectors::here()),
        }
    }

    /// The routine that copies.
    pub(super) fn routine(self) -> CopyRoutine {
        match self {
            Self::Cached(_) => CopyRoutine::Ordinary,
            _ => CopyRoutine::chosen(),
        }
    }
}

/// The functions for write-combined memory, from the choice of a routine on.
static CHOSEN: AtomicPtr<Table> = AtomicPtr::new(ptr::from_ref(Table::PORTABLE).cast_mut());

/// The functions of a routine.
#[derive(Debug)]
struct Table {
    /// As [`accesses::write`], with its contract.
    write: unsafe fn(*mut u8, &[u8]),
    /// As [`accesses::read`], with its contract.
    read: unsafe fn(*const u8, &mut [u8]),
}

impl Table {
    /// The functions for memory whose [`HostAccess`] is known, and with it the choice.
    #[inline(always)]
    fn chosen() -> &'static Self {
        // SAFETY: a reference to a constant each time that it is set. Relaxed, since nobody changes constants.
        unsafe { &*CHOSEN.load(Ordering::Relaxed) }
    }

    const PORTABLE: &Self = &Self::from_accesses::<portable::Portable>();
    const ORDINARY: &Self = &Self { write: write_by_memcpy, read: read_by_memcpy };

    const fn from_accesses<A: Accesses>() -> Self {
        Self { write: accesses::write::<A>, read: accesses::read::<A> }
    }

    /// The routine's functions, if this CPU has its instructions.
    fn of(routine: CopyRoutine) -> Option<&'static Self> {
        match routine {
            CopyRoutine::Portable => Some(Self::PORTABLE),
            CopyRoutine::Ordinary => Some(Self::ORDINARY),
            #[cfg(target_arch = "aarch64")]
            CopyRoutine::Neon => Some(&const { Self::from_accesses::<neon::Neon>() }),
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Sse41 | CopyRoutine::Avx2 | CopyRoutine::Avx512 => x86_64::table(routine),
            #[allow(unreachable_patterns, reason = "which routines are left depends on the architecture")]
            _ => None,
        }
    }
}

/// # Safety
///
/// The contract of [`cached::copy`].
unsafe fn write_by_memcpy(target: *mut u8, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { cached::copy(Vectors::here(), target, source.as_ptr(), source.len()) };
}

/// # Safety
///
/// The contract of [`cached::copy`].
unsafe fn read_by_memcpy(source: *const u8, target: &mut [u8]) {
    // SAFETY: by this function's contract.
    unsafe { cached::copy(Vectors::here(), target.as_mut_ptr(), source, target.len()) };
}

/// Copies `source` to the shared bytes at `target`, and orders them before this thread's later stores.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, and no Rust reference to them exist.
#[inline]
pub(crate) unsafe fn write(access: HostAccess, target: NonNull<u8>, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { write_unordered(access, target, source) };
    order_writes(access);
}

/// As [`write()`], but orders nothing: [`order_writes`] must follow.
///
/// # Safety
///
/// The contract of [`write()`].
#[inline(always)]
pub(super) unsafe fn write_unordered(access: HostAccess, target: NonNull<u8>, source: &[u8]) {
    if let HostAccess::Cached(vectors) = access {
        // SAFETY: by this function's contract.
        unsafe { cached::copy(vectors, target.as_ptr(), source.as_ptr(), source.len()) };
    } else {
        // SAFETY: by this function's contract; the CPU has the chosen routine.
        unsafe { (Table::chosen().write)(target.as_ptr(), source) };
    }
}

/// Orders this thread's earlier writes before its later stores, as the device sees them.
#[inline]
pub(super) fn order_writes(access: HostAccess) {
    match access {
        HostAccess::Cached(_) => fences::cached_store_fence(),
        _ => fences::store_fence(),
    }
}

/// Orders this thread's later loads of shared bytes after its earlier ones, also against the device's stores. What a
/// [`read`] begins with.
#[inline]
pub(crate) fn order_reads(access: HostAccess) {
    match access {
        HostAccess::Cached(_) => fences::cached_load_fence(),
        _ => fences::load_fence(),
    }
}

/// Copies the shared bytes at `source` to `target`, after whatever this thread has loaded before.
///
/// # Safety
///
/// All of the [lines](crate::allocation::LINE) that hold the `target.len()` bytes at `source` must be mapped, and no
/// mutable Rust reference to those bytes exist.
#[inline]
pub(crate) unsafe fn read(access: HostAccess, source: NonNull<u8>, target: &mut [u8]) {
    order_reads(access);
    // SAFETY: by this function's contract.
    unsafe { read_unordered(access, source, target) };
}

/// As [`read`], but orders nothing: [`order_reads`] must come before.
///
/// # Safety
///
/// The contract of [`read`].
#[inline(always)]
pub(crate) unsafe fn read_unordered(access: HostAccess, source: NonNull<u8>, target: &mut [u8]) {
    if let HostAccess::Cached(vectors) = access {
        // SAFETY: by this function's contract.
        unsafe { cached::copy(vectors, target.as_mut_ptr(), source.as_ptr(), target.len()) };
    } else {
        // SAFETY: by this function's contract; the CPU has the chosen routine.
        unsafe { (Table::chosen().read)(source.as_ptr(), target) };
    }
}

/// Repeats `pattern` over the `len` shared bytes at `target`, and orders them as [`write()`].
///
/// # Safety
///
/// `len` bytes at `target` must be mapped, and no Rust reference to them exist.
pub(super) unsafe fn fill(access: HostAccess, target: NonNull<u8>, len: usize, pattern: &[u8]) {
    /// Large enough that the repetition costs nothing, small enough to stay in the first-level cache.
    const STEP: usize = 4096;
    if pattern.is_empty() {
        return;
    }
    // A short pattern is repeated: long enough that a whole step can start at any offset in the first repetition.
    let block = match pattern.len() < STEP {
        true => Cow::Owned(pattern.repeat(1 + STEP.min(len).div_ceil(pattern.len()))),
        false => Cow::Borrowed(pattern),
    };
    let mut done = 0;
    while done < len {
        let phase = done % pattern.len();
        // All steps of a short pattern but the first begin with a line.
        let step = STEP - (target.addr().get() + done) % LINE;
        let rest = &block[phase..];
        let part = &rest[..step.min(len - done).min(rest.len())];
        // SAFETY: `done` is within the bytes at `target`.
        let to = unsafe { target.add(done) };
        // SAFETY: `part` ends within the bytes at `target`.
        unsafe { write_unordered(access, to, part) };
        done += part.len();
    }
    order_writes(access);
}
