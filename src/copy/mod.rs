//! Copies between private memory and memory that the device, or another thread, may use at the same time.
//!
//! A race over the shared bytes changes which bytes are seen, never whether the program is defined. Rust allows that
//! for atomic accesses of one size, so the compiler must see accesses to single bytes only. Wider ones are hidden from
//! it in assembly, ours or libc's. Elsewhere copies use relaxed byte atomics.
//!
//! [`CopyRoutine`] says how memory is copied, decided once per allocation: cached memory by libc's `memcpy`, write-combined
//! memory by the CPU's widest accesses. [`accesses`] makes a copy of those, which are in one file per architecture.
//!
//! # Order
//!
//! The accesses of one copy have no order among themselves. A write ends with a store fence: its bytes come before
//! this thread's later stores, as the device sees them. A read begins with a load fence: its bytes are loaded after this
//! thread's earlier loads, such as that of a flag announcing them. Nothing is ordered after a read: a later load, other
//! than by a read, may be carried out before it.
//!
//! Cached memory needs no instruction for this on x86-64, which keeps plain stores in order, and plain loads. See Intel's
//! Software Developer's Manual, volume 3, "Memory Ordering in P6 and More Recent Processor Families". Write-combined memory
//! does: it is weakly ordered and read speculatively. A device's stores to its own memory are not snooped, so the CPU
//! cannot repeat a load that it carried out too early.
//!
//! * The load fence is LFENCE. Loads do not pass it ("Reads cannot pass earlier LFENCE and MFENCE instructions", ibid.), nor
//!   does any other instruction begin before it. A locked instruction is cheaper but may let loads of write-combined
//!   memory pass (ibid., "Strengthening or Weakening the Memory-Ordering Model").
//! * MFENCE, 10 ns more, would also order earlier stores, which a read does not need: loads see this thread's own stores.
//! * Streaming loads (MOVNTDQA) could find data that was fetched before the fence. The first of a line may fetch all of
//!   it into a buffer that serves only streaming loads of its *unread* portions. See volume 2, "MOVNTDQA", and volume
//!   1, "Streaming Load Hint Instruction". So only whole lines are read by streaming loads, all of a line side by side.
//!   Parts of lines are read by plain loads, which drop such a buffer: no copy leaves an unread portion behind.
#![expect(unsafe_code, reason = "copies through raw pointers")]

mod accesses;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::arch::asm;
use std::env;
use std::ffi::c_void;
use std::fmt;
#[cfg(target_arch = "x86_64")]
use std::is_x86_feature_detected as has;
use std::ptr::NonNull;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use neon as fences;
#[cfg(target_arch = "x86_64")]
use x86_64 as fences;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod fences {
    use std::sync::atomic::{Ordering, fence};

    pub(super) fn store_fence(_ordinary: bool) {
        fence(Ordering::SeqCst);
    }

    pub(super) use store_fence as load_fence;
}

/// Forces a routine for memory of any kind, by name.
const VARIABLE: &str = "VKGDR_COPY";

/// How the CPU copies to and from memory that it shares with the device.
///
/// Memory that the CPU caches is copied with libc's `memcpy`. Memory that it does not cache, such as that behind the PCIe BAR, is
/// copied with the widest accesses that the CPU has. For tests, the environment variable `VKGDR_COPY` forces one of
/// [`ALL`](Self::ALL), by its [`name`](Self::name), on all memory that the CPU copies.
///
/// # Examples
///
/// ```
/// use vkgdr::CopyRoutine;
///
/// let supported = CopyRoutine::ALL.into_iter().filter(|routine| routine.is_supported());
/// println!("{} of {:?}", CopyRoutine::chosen(), supported.collect::<Vec<_>>());
/// assert!(CopyRoutine::chosen().is_supported());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyRoutine {
    /// Cached memory: libc's `memcpy`.
    Ordinary,
    /// Single bytes, for CPUs that support no other routine.
    Portable,
    /// x86-64, 16 bytes at a time: MOVNTDQA, MOVAPS.
    Sse41,
    /// x86-64, 32 bytes at a time: MOVNTDQA, MOVNTDQ.
    Avx2,
    /// x86-64, 64 bytes at a time: MOVNTDQA, MOVNTDQ.
    Avx512,
    /// AArch64, 32 bytes at a time: LDNP, STNP.
    Neon,
}

/// The routine for write-combined memory, and whether it was forced for all memory.
static CHOICE: OnceLock<(CopyRoutine, bool)> = OnceLock::new();

impl CopyRoutine {
    /// The routines for write-combined memory, from worst to best.
    pub const ALL: [Self; 5] = [Self::Portable, Self::Sse41, Self::Avx2, Self::Avx512, Self::Neon];

    /// The name, as in `VKGDR_COPY`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ordinary => "ordinary",
            Self::Portable => "portable",
            Self::Sse41 => "sse41",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Whether this CPU has the instructions, and the system keeps its registers.
    #[must_use]
    pub fn is_supported(self) -> bool {
        match self {
            Self::Ordinary | Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Sse41 => has!("sse4.1"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => has!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => has!("avx512bw"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true,
            #[allow(unreachable_patterns, reason = "which routines are left depends on the architecture")]
            _ => false,
        }
    }

    /// The routine for memory that the CPU does not cache: that of `VKGDR_COPY`, otherwise the best that this CPU supports.
    #[must_use]
    pub fn chosen() -> Self {
        Self::choice().0
    }

    /// The routine of an allocation. The first call chooses one for the process, and may log.
    pub(crate) fn of(cached: bool) -> Self {
        let (chosen, forced) = Self::choice();
        if cached && !forced { Self::Ordinary } else { chosen }
    }

    fn choice() -> (Self, bool) {
        let mut complaint = None;
        let choice = *CHOICE.get_or_init(|| {
            let supported = || Self::ALL.into_iter().filter(|routine| routine.is_supported());
            let best = supported().next_back().expect("every CPU has the portable one");
            let Some(name) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) else { return (best, false) };
            if let Some(routine) = supported().find(|routine| name == routine.name()) {
                return (routine, true);
            }
            let names: Vec<_> = supported().map(Self::name).collect();
            complaint = Some(format!(
                "{VARIABLE}={name:?}: this CPU supports {}; copying as if it were not set, with {best}",
                names.join(", "),
            ));
            (best, false)
        });
        // After the choice was made, since a logger may copy.
        if let Some(complaint) = complaint {
            log::warn!("{complaint}");
        }
        choice
    }

    const fn is_ordinary(self) -> bool {
        matches!(self, Self::Ordinary)
    }
}

impl fmt::Display for CopyRoutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The function of the module [`accesses`] for a routine of write-combined memory, which the CPU must have.
macro_rules! by_accesses {
    ($routine:expr, $function:ident) => {
        match $routine {
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Sse41 => accesses::$function::<x86_64::Sse41>,
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Avx2 => accesses::$function::<x86_64::Avx2>,
            #[cfg(target_arch = "x86_64")]
            CopyRoutine::Avx512 => accesses::$function::<x86_64::Avx512>,
            #[cfg(target_arch = "aarch64")]
            CopyRoutine::Neon => accesses::$function::<neon::Neon>,
            _ => accesses::$function::<accesses::Portable>,
        }
    };
}

/// Copies cached memory, and orders nothing.
///
/// `memcpy` may access bytes that race, as assembly may. Its address passes through assembly: the compiler cannot recognise the
/// function, and must assume that it accesses byte by byte.
///
/// # Safety
///
/// The bytes on both sides must be mapped, and not overlap.
#[inline]
unsafe fn copy_ordinary(target: *mut u8, source: *const u8, len: usize) {
    let mut memcpy: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void = libc::memcpy;
    // SAFETY: a comment: the register keeps its value, unknown to the compiler.
    unsafe { asm!("/* {} */", inout(reg) memcpy, options(pure, readonly, nostack, preserves_flags)) };
    // SAFETY: by this function's contract.
    unsafe { memcpy(target.cast(), source.cast(), len) };
}

/// Copies `source` to the shared bytes at `target`. Orders nothing: [`order_writes`] must follow.
///
/// # Safety
///
/// `source.len()` bytes at `target` must be mapped, no Rust reference to them exist, and the CPU support `routine`.
#[inline(always)]
pub(crate) unsafe fn write_unordered(routine: CopyRoutine, target: NonNull<u8>, source: &[u8]) {
    if routine.is_ordinary() {
        // SAFETY: by this function's contract.
        unsafe { copy_ordinary(target.as_ptr(), source.as_ptr(), source.len()) };
    } else {
        let write: unsafe fn(*mut u8, &[u8]) = by_accesses!(routine, write);
        // SAFETY: by this function's contract.
        unsafe { write(target.as_ptr(), source) };
    }
}

/// Orders this thread's earlier writes before its later stores, as the device sees them.
#[inline]
pub(crate) fn order_writes(routine: CopyRoutine) {
    fences::store_fence(routine.is_ordinary());
}

/// Orders this thread's later loads of shared bytes after its earlier ones, also against the device's stores.
#[inline]
pub(crate) fn order_reads(routine: CopyRoutine) {
    fences::load_fence(routine.is_ordinary());
}

/// Copies the shared bytes at `source` to `target`. Orders nothing: [`order_reads`] must come before, and best before the loads that
/// lead to the bytes, for which the fence would wait.
///
/// # Safety
///
/// All of the [lines](crate::allocation::LINE) that hold the `target.len()` bytes at `source` must be mapped. No mutable
/// Rust reference to those bytes may exist, and the CPU must support `routine`.
#[inline(always)]
pub(crate) unsafe fn read_unordered(routine: CopyRoutine, source: NonNull<u8>, target: &mut [u8]) {
    if routine.is_ordinary() {
        // SAFETY: by this function's contract.
        unsafe { copy_ordinary(target.as_mut_ptr(), source.as_ptr(), target.len()) };
    } else {
        let read: unsafe fn(*const u8, &mut [u8]) = by_accesses!(routine, read);
        // SAFETY: by this function's contract.
        unsafe { read(source.as_ptr(), target) };
    }
}

/// Repeats `pattern` over the `len` shared bytes at `target`, and orders them before this thread's later stores.
///
/// # Safety
///
/// `len` bytes at `target` must be mapped, no Rust reference to them exist, and the CPU support `routine`.
pub(crate) unsafe fn fill(routine: CopyRoutine, target: NonNull<u8>, len: usize, pattern: &[u8]) {
    /// Large enough that the repetition costs nothing, small enough to stay in the first-level cache.
    const STEP: usize = 16 << 10;
    if pattern.is_empty() || len == 0 {
        return;
    }
    let block = pattern.repeat(STEP.min(len).div_ceil(pattern.len()));
    for start in (0..len).step_by(block.len()) {
        // SAFETY: `start` is within the bytes at `target`.
        let to = unsafe { target.add(start) };
        let part = &block[..block.len().min(len - start)];
        // SAFETY: `part` ends within the bytes at `target`.
        unsafe { write_unordered(routine, to, part) };
    }
    order_writes(routine);
}
