#![expect(unsafe_code, reason = "maps pages, and exchanges them in place")]
//! The pages of device memory, and the files by which they are shared; addresses without memory.
//!
//! Pages are anonymous until they are exported. An export moves the pages of its range into a file (memfd), in place and
//! while neither a kernel nor a copy accesses any memory, so that every mapping of the file shows the bytes of the device.
//! The file keeps its pages for as long as it is open or mapped, also after the memory was freed.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Arc, Mutex, Weak};

use simcommon::{memfd, say};

use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM};
use crate::memory::quiet;
use crate::sync::lock;

/// The size of a GPU's small pages, of which exported ranges consist.
pub(crate) const PAGE: usize = 64 << 10;

/// The host's pages.
const HOST_PAGE: usize = 4096;

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// All live pages, by their first address.
static LIVE: Mutex<BTreeMap<usize, Weak<Pages>>> = Mutex::new(BTreeMap::new());

/// The addresses and lengths of pages that were unmapped, oldest first. They are used again first, as a driver does, so that
/// programs that keep a stale address meet other memory there.
static FREED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
const REMEMBERED: usize = 64;

/// Zeroed whole pages, unmapped on drop.
pub(crate) struct Pages {
    pub(crate) start: usize,
    len: usize,
    /// The files, by the offset of their first byte. Their ranges do not overlap.
    files: Mutex<BTreeMap<usize, Exported>>,
}

struct Exported {
    len: usize,
    file: OwnedFd,
}

impl Pages {
    /// At least `size` bytes at a multiple of `alignment`, itself a multiple of the size of a page.
    pub(crate) fn new(size: usize, alignment: usize) -> Option<Arc<Pages>> {
        let len = size.checked_next_multiple_of(PAGE)?;
        let start = map_again(len, alignment).or_else(|| map_new(len, alignment, READ_WRITE))?;
        let pages = Arc::new(Pages { start, len, files: Mutex::default() });
        lock(&LIVE).insert(start, Arc::downgrade(&pages));
        Some(pages)
    }

    /// The pages that contain all of a range.
    pub(crate) fn containing(address: usize, len: usize) -> Option<Arc<Pages>> {
        let pages = lock(&LIVE).range(..=address).next_back()?.1.upgrade()?;
        let offset = address - pages.start;
        (offset <= pages.len && len <= pages.len - offset).then_some(pages)
    }

    /// A descriptor of a range of whole pages at `address`. Without `mappable`, no process can map it to write.
    ///
    /// A file begins with its range, so that ranges that overlap can only be shared if they start at the same page.
    pub(crate) fn export(&self, address: usize, len: usize, mappable: bool) -> Result<OwnedFd, Code> {
        let offset = address - self.start;
        let mut files = lock(&self.files);
        let known = files.get(&offset).map_or(0, |exported| exported.len);
        if known < len {
            let overlap = files.range(offset + 1..offset + len).next().is_some()
                || files.range(..offset).next_back().is_some_and(|(first, other)| first + other.len > offset);
            if overlap || (known > 0 && !mappable) {
                // Unlocked first: stderr may be a full pipe, whose reader calls the driver.
                drop(files);
                say!("simcuda: exported ranges overlap without starting at the same page, which is not simulated");
                return Err(NOT_SUPPORTED);
            }
            let mut exported = match files.remove(&offset) {
                Some(exported) => exported,
                None => Exported { len: 0, file: memfd::create(c"simcuda-dma-buf").map_err(|_| OPERATING_SYSTEM)? },
            };
            let moved = move_to_file(&exported.file, address + known, known, len - known);
            if moved.is_ok() {
                exported.len = len;
                if !mappable {
                    // SAFETY: the file is open. Mappings that exist, such as the device's, stay as they are.
                    unsafe { libc::fcntl(exported.file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_FUTURE_WRITE) };
                }
            }
            // A failure leaves the file with the pages that it had, if it had some.
            if exported.len > 0 {
                files.insert(offset, exported);
            }
            moved?;
        }
        let exported = files.get(&offset).ok_or(INVALID_VALUE)?;
        exported.file.try_clone().map_err(|_| OPERATING_SYSTEM)
    }
}

impl Pages {
    /// A file of all pages, which every process that can open it can write to: its descriptor, which stays open for as long
    /// as the pages live, and their length.
    pub(crate) fn share(&self) -> Result<(RawFd, usize), Code> {
        drop(self.export(self.start, self.len, true)?);
        let files = lock(&self.files);
        let exported = files.get(&0).ok_or(INVALID_VALUE)?;
        Ok((exported.file.as_raw_fd(), self.len))
    }
}

/// A second mapping of pages that are mapped shared, at a multiple of [`PAGE`], which drivers' addresses of memory are. Unmapped
/// on drop.
pub(crate) struct Mirror {
    pub(crate) start: usize,
    len: usize,
}

impl Mirror {
    /// Of `size` bytes at an address. `None` where the system has no second mapping, as of private pages.
    pub(crate) fn of(address: usize, size: usize) -> Option<Mirror> {
        let (len, reserved) = (size.checked_next_multiple_of(HOST_PAGE)?, size.checked_next_multiple_of(PAGE)?);
        let mirror = Mirror { start: map_new(reserved, PAGE, READ_WRITE)?, len };
        unmap(mirror.start + len, reserved - len);
        let (old, new) = (with_exposed_provenance_mut(address), with_exposed_provenance_mut::<c_void>(mirror.start));
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: an old length of 0 leaves the old mapping, mremap(2); the new one replaces pages that were just reserved.
        let moved = unsafe { libc::mremap(old, 0, len, flags, new) };
        (moved != libc::MAP_FAILED).then_some(mirror)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}

/// Pages of another process, unmapped on drop.
pub(crate) struct Mapping {
    pub(crate) start: usize,
    len: usize,
}

impl Mapping {
    /// Maps the first `len` bytes of a file.
    pub(crate) fn of(file: &File, len: usize) -> Option<Mapping> {
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { libc::mmap(null_mut(), len, READ_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        (start != libc::MAP_FAILED).then(|| Mapping { start: start.expose_provenance(), len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.start, self.len);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // First: the system may give the addresses to other pages at once.
        lock(&LIVE).remove(&self.start);
        unmap(self.start, self.len);
        let mut freed = lock(&FREED);
        freed.push((self.start, self.len));
        let forgotten = freed.len().saturating_sub(REMEMBERED);
        freed.drain(..forgotten);
    }
}

/// Maps pages at the address of the latest freed ones that fit exactly.
fn map_again(len: usize, alignment: usize) -> Option<usize> {
    let mut freed = lock(&FREED);
    let index = freed.iter().rposition(|(start, free)| *free == len && start.is_multiple_of(alignment))?;
    let (start, _) = freed.remove(index);
    drop(freed);
    map_at(start, len, READ_WRITE)
}

/// Maps pages at an address, if nothing is there.
fn map_at(address: usize, len: usize, access: libc::c_int) -> Option<usize> {
    let found = map(address, len, access, libc::MAP_FIXED_NOREPLACE)?;
    if found != address {
        // A kernel before 4.17, for which the address is a hint.
        unmap(found, len);
        return None;
    }
    Some(address)
}

/// Maps pages where the system has room.
fn map_new(len: usize, alignment: usize, access: libc::c_int) -> Option<usize> {
    let reserved = len.checked_add(alignment)?;
    let first = map(0, reserved, access, 0)?;
    let start = first.next_multiple_of(alignment);
    unmap(first, start - first);
    unmap(start + len, first + reserved - (start + len));
    Some(start)
}

fn map(address: usize, len: usize, access: libc::c_int, flags: libc::c_int) -> Option<usize> {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags;
    let at = with_exposed_provenance_mut(address);
    // SAFETY: a new mapping, which replaces none, unless the flags say that it replaces this module's own.
    let pages = unsafe { libc::mmap(at, len, access, kind, -1, 0) };
    (pages != libc::MAP_FAILED).then(|| pages.expose_provenance())
}

/// Gives addresses back.
pub(crate) fn unmap(address: usize, len: usize) {
    if len > 0 {
        // SAFETY: pages of this module that nothing refers to any more.
        unsafe { libc::munmap(with_exposed_provenance_mut(address), len) };
    }
}

/// Reserves `len` bytes of addresses without memory, at a multiple of `alignment`: at `wanted` if that is not
/// 0 and free, else anywhere. [`unmap`] gives them back.
pub(crate) fn reserve(len: usize, alignment: usize, wanted: usize) -> Option<usize> {
    let granted =
        if wanted != 0 && wanted.is_multiple_of(alignment) { map_at(wanted, len, libc::PROT_NONE) } else { None };
    granted.or_else(|| map_new(len, alignment, libc::PROT_NONE))
}

/// Maps the first `len` bytes of a file in a reserved range. Whether there was room.
pub(crate) fn map_reserved(address: usize, len: usize, file: &OwnedFd) -> bool {
    let (at, flags) = (with_exposed_provenance_mut(address), libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: replaces pages of a reservation, which nothing accesses.
    let pages = unsafe { libc::mmap(at, len, READ_WRITE, flags, file.as_raw_fd(), 0) };
    pages != libc::MAP_FAILED
}

/// Takes the memory from a part of a reserved range, which nothing accesses any more. Whether there was room.
pub(crate) fn unmap_reserved(address: usize, len: usize) -> bool {
    map(address, len, libc::PROT_NONE, libc::MAP_FIXED).is_some()
}

/// Replaces the pages at `address` by those of a file from `offset` on, which get their bytes.
fn move_to_file(file: &OwnedFd, address: usize, offset: usize, len: usize) -> Result<(), Code> {
    let end = libc::off_t::try_from(offset + len).map_err(|_| INVALID_VALUE)?;
    let offset = libc::off_t::try_from(offset).map_err(|_| INVALID_VALUE)?;
    // SAFETY: the file is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), end) } != 0 {
        return Err(OPERATING_SYSTEM);
    }
    // SAFETY: a new mapping at an address that the system chooses.
    let new = unsafe { libc::mmap(null_mut(), len, READ_WRITE, libc::MAP_SHARED, file.as_raw_fd(), offset) };
    if new == libc::MAP_FAILED {
        return Err(OPERATING_SYSTEM);
    }
    let moved = quiet::while_nothing_runs(|| {
        copy_touched(address, new.expose_provenance(), len);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let target = with_exposed_provenance_mut::<libc::c_void>(address);
        // SAFETY: replaces pages of this module by as many others with the same bytes.
        unsafe { libc::mremap(new, len, len, flags, target) }
    });
    if moved == libc::MAP_FAILED {
        unmap(new.addr(), len);
        return Err(OPERATING_SYSTEM);
    }
    Ok(())
}

/// Copies the pages that are not zero: a file has no memory for those that were never written.
fn copy_touched(source: usize, target: usize, len: usize) {
    const STEP: usize = 4096;
    for at in (0..len).step_by(STEP) {
        // SAFETY: mapped, and nothing writes to it now.
        let bytes = unsafe { std::slice::from_raw_parts(with_exposed_provenance_mut::<u8>(source + at), STEP) };
        if bytes.iter().any(|byte| *byte != 0) {
            crate::memory::bytes::copy_unguarded(target + at, source + at, STEP);
        }
    }
}
