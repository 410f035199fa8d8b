//! Lookup of memory by an address.
#![expect(unsafe_code, reason = "makes an alias of memory that others hold")]

use super::Memory;
use crate::addresses;
use crate::driver::fork;

/// The memory that contains an address, and the offset of the address in it.
///
/// `address` is a device or a host address of any byte. The result is one more reference to all of the memory: it keeps the
/// memory alive, and can do what any other [`Memory`] can. Dropping it frees the memory only if it is the last.
///
/// `None` for other addresses, for freed memory, for [`RawMemory`](crate::RawMemory), which has no reference count, for memory that
/// others allocated, and in a forked child. Each copy of this library in a process, such as a C library's beside a Rust program's,
/// knows its own memory. Memory that another thread frees meanwhile is either kept alive or not found.
///
/// # Safety
///
/// The result is an alias: a holder of the memory may have `&mut` to it, and a slice of its bytes that no one else may use.
///
/// # Examples
///
/// ```no_run
/// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
/// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
/// // SAFETY: `memory` has lent nothing.
/// let found = unsafe { vkgdr::memory_of(memory.device_ptr() + 64) };
/// let (found, offset) = found.expect("memory of this process");
/// assert_eq!((found.len(), offset), (4096, 64));
/// found.write(offset, &[1_u8])?;
/// # Ok::<(), vkgdr::Error>(())
/// ```
#[must_use]
pub unsafe fn memory_of(address: u64) -> Option<(Memory, usize)> {
    // In a forked child, another thread of the parent may hold the lock for ever.
    if fork::is_forked() { None } else { addresses::memory_at(address) }
}
