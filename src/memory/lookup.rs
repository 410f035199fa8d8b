//! Lookup of memory by an address.
#![forbid(unsafe_code)]

use super::memory::Memory;
use crate::chunk::ChunkRef;
use crate::driver::fork;

/// The memory that contains an address, and the offset of the address in it.
///
/// `address` is a device or a host address of any byte. The result is one more reference to all of the memory: it keeps the
/// memory alive, and can do what any other [`Memory`] can. Dropping it frees the memory only if it is the last.
///
/// Memory of a [`Pool`](crate::Pool) is found by an address that was asked for since its allocation
/// ([`device_ptr`](crate::Region::device_ptr), [`host_ptr`](crate::Region::host_ptr), a slice, a map guard).
///
/// `None` for other addresses, for freed memory, for [`RawMemory`](crate::RawMemory), which has no reference count, and in a
/// forked child. Each copy of this library in a process, such as a C library's beside a Rust program's, knows its own memory.
/// Memory that another thread frees meanwhile is either kept alive or not found.
///
/// # Examples
///
/// ```no_run
/// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
/// let memory = vkgdr::Memory::allocate(&gpu, 4096, vkgdr::MemoryKind::Mapped)?;
/// let (found, offset) = vkgdr::memory_of(memory.device_ptr() + 64).expect("memory of this process");
/// assert_eq!((found.len(), offset), (4096, 64));
/// found.write(offset, &[1_u8])?;
/// # Ok::<(), vkgdr::Error>(())
/// ```
#[must_use]
pub fn memory_of(address: u64) -> Option<(Memory, usize)> {
    // In a forked child, another thread of the parent may hold the lock for ever.
    if fork::is_forked() {
        return None;
    }
    let (chunk, offset) = ChunkRef::find(address)?;
    Some((Memory::found(chunk), offset))
}
