//! [`Pin`]: what `gdr_pin_buffer` pins.
//!
//! That is memory of this library, or existing CUDA memory.
#![expect(unsafe_code, reason = "makes aliases of the program's memory, as gdrcopy does")]

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::AtomicU8;

use vkgdr_rs::{
    Error, Memory, NoMapping, OpenFlags, Result, Vkgdr, current_device, device_count, memory_of, pointer_device,
};

use super::NONE;
use super::boundary::{Outcome, Refusal, invalid, lock};
use crate::handle::was_opened;

/// The size of a page in bytes: that of `nvidia_p2p_get_pages` and of the driver's dma-bufs.
pub(crate) const PAGE: u64 = 65536;

/// A pinned range, as whole pages.
#[derive(Debug)]
pub(crate) struct Pin {
    /// Memory of vkgdr is kept alive. Of existing memory, which is not, this is whole pages.
    memory: Memory,
    /// The first host address of the memory.
    host: usize,
    coherent: bool,
    pub(crate) cached: bool,
    /// The pinned address, the host address that corresponds to it, and the bytes from there to the end of the last page.
    pub(crate) va: u64,
    pub(crate) map: usize,
    pub(crate) mapped_size: u64,
    /// Of CUDA's memory, gdrcopy maps only addresses at the start of a page: programs disagree on where the others are.
    pub(crate) can_be_mapped: bool,
    /// A `gdr_mapping_type_t`.
    pub(crate) mapping: AtomicU8,
}

/// Pins `size` bytes at a device address. `pcie` refuses memory that the CPU reaches in another way.
pub(crate) fn pin(address: u64, size: u64, pcie: bool) -> Result<Pin> {
    let end = address.checked_add(size).and_then(|end| end.checked_next_multiple_of(PAGE));
    if size == 0 {
        return Err(Error::NoMapping { address, reason: NoMapping::Empty });
    }
    // Beyond the last address no memory is known.
    let end = end.ok_or(Error::NoMapping { address, reason: NoMapping::Unknown })?;
    let memory = find(address, size, pcie)?;
    let host = memory.host_ptr().ok_or_else(|| Error::NoHostView { kind: memory.kind() })?.addr().get();
    let (device_ptr, coherent, cached) = (memory.device_ptr(), memory.is_coherent(), memory.is_cached());
    if pcie && cached {
        return Err(Error::NoMapping { address, reason: NoMapping::Host });
    }
    // An address that the program aligned down to a page may lie before the memory. Nobody uses those bytes.
    let distance = usize::try_from(device_ptr.abs_diff(address)).expect("64 bits");
    let map = if device_ptr >= address { host.wrapping_sub(distance) } else { host.wrapping_add(distance) };
    let can_be_mapped = address.is_multiple_of(PAGE) || ours(device_ptr).is_some();
    let (va, mapped_size, mapping) = (address, end - address, AtomicU8::new(NONE));
    Ok(Pin { memory, host, coherent, cached, va, map, mapped_size, can_be_mapped, mapping })
}

/// The memory in which a range begins that has its pages. Else the first that begins behind it in its first page, since programs
/// align addresses down to pages. An address within memory and within a page means that memory alone.
fn find(address: u64, size: u64, pcie: bool) -> Result<Memory> {
    let end = (address + needed(address, size)).next_multiple_of(PAGE);
    let refusal = match ours(address) {
        Some((memory, _)) if reaches(&memory, end) => return Ok(memory),
        Some((memory, offset)) => {
            let refusal = Error::OutOfRange { offset, len: bytes(size), size: memory.len() };
            if !address.is_multiple_of(PAGE) {
                return Err(refusal);
            }
            refusal
        }
        None => match existing(address, size, pcie) {
            Ok(memory) => return Ok(memory),
            Err(refusal) => refusal,
        },
    };
    /// The alignment of all memory of vkgdr, in bytes.
    const LINE: usize = 64;
    let first = address.next_multiple_of(LINE as u64);
    let begins = |start| ours(start).filter(|(memory, offset)| *offset == 0 && reaches(memory, end));
    let behind = (first..end_of_page(address, size)).step_by(LINE).filter(|&start| start > address).find_map(begins);
    behind.map(|(memory, _)| memory).ok_or(refusal)
}

/// The bytes that memory must have. A program may round a size up to whole pages at an address within a page: then the last page
/// may be missing.
fn needed(address: u64, size: u64) -> u64 {
    let is_rounded = !address.is_multiple_of(PAGE) && size.is_multiple_of(PAGE);
    if is_rounded { (size - PAGE).max(1) } else { size }
}

/// The end of a range, or of its first page.
fn end_of_page(address: u64, size: u64) -> u64 {
    (address + size).min((address - address % PAGE).saturating_add(PAGE))
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).expect("64 bits")
}

/// Memory of vkgdr, and the offset of a device address in it.
fn ours(address: u64) -> Option<(Memory, usize)> {
    // SAFETY: the program asks for an alias.
    let found = unsafe { memory_of(address) };
    // It is found by its host addresses, too.
    found.filter(|(memory, offset)| memory.device_ptr() + *offset as u64 == address)
}

/// Whether pages of vkgdr's memory up to `end` can be pinned: the last page may end behind it.
fn reaches(memory: &Memory, end: u64) -> bool {
    let last = memory.device_ptr().checked_add(memory.len() as u64);
    last.and_then(|last| last.checked_next_multiple_of(PAGE)).is_some_and(|last| end <= last)
}

/// Memory of CUDA's: all bytes of the pages around the range, whose first page may begin before the allocation or in another.
fn existing(address: u64, size: u64, pcie: bool) -> Result<Memory> {
    /// The least alignment of CUDA's allocations, in bytes (CUDA programming guide, "Device Memory Accesses").
    const LINE: u64 = 256;
    let (mut mapped, mut start) = (map(address, size, pcie), address);
    if !address.is_multiple_of(PAGE) {
        return match mapped {
            Err(Error::OutOfRange { .. }) if needed(address, size) < size => map(address, needed(address, size), pcie),
            mapped => mapped,
        };
    }
    loop {
        start = match &mapped {
            Err(Error::OutOfRange { offset, size, .. }) => {
                (start - *offset as u64 + *size as u64).next_multiple_of(LINE)
            }
            Err(Error::NoMapping { reason: NoMapping::Unknown, .. }) => start + LINE,
            _ => return mapped,
        };
        if start >= end_of_page(address, size) {
            return mapped;
        }
        mapped = map(start, size - (start - address), pcie);
    }
}

/// Maps the pages around existing memory in its device's primary context. Each device is tried only where no context is
/// current, and the driver does not know the memory's device then. That retains its primary context, which takes memory there
/// and may fail.
fn map(address: u64, size: u64, pcie: bool) -> Result<Memory> {
    // SAFETY: the program asks for an alias.
    let on =
        |device| gpu(device).and_then(|gpu| unsafe { Memory::map_existing_pages(&gpu, address, bytes(size), pcie) });
    let mut refusal = Error::NoMapping { address, reason: NoMapping::Unknown };
    match pointer_device(address) {
        Ok(Some(device)) => return on(device),
        Ok(None) if current_device().is_ok() => return Err(refusal),
        _ => {}
    }
    for device in 0..device_count()? {
        match on(device) {
            Err(Error::NoMapping { reason: NoMapping::OtherDevice { device, .. }, .. }) => return on(device),
            // A device that cannot be used need not be the memory's.
            Err(error @ (Error::Cuda { .. } | Error::Vulkan { .. })) => refusal = error,
            result => return result,
        }
    }
    Err(refusal)
}

/// A handle of a device, which retains the primary context: programs need not have a current one. Opened again after a reset. The
/// drivers are called without the lock.
fn gpu(device: i32) -> Result<Vkgdr> {
    static GPUS: Mutex<BTreeMap<i32, Vkgdr>> = Mutex::new(BTreeMap::new());
    let known = lock(&GPUS)?.get(&device).cloned();
    if let Some(gpu) = known.filter(|gpu| !gpu.context_is_destroyed()) {
        return Ok(gpu);
    }
    let gpu = Vkgdr::open_primary_context(device, OpenFlags::empty())?;
    let _before = lock(&GPUS)?.insert(device, gpu.clone());
    Ok(gpu)
}

/// Whether there may be memory to pin: this library's, once the program opened a GPU by it, and CUDA's where the CPU can map it.
/// With `VKGDR_GDR_OPEN=always` also for a program that opens a GPU later.
pub(crate) fn is_possible() -> Result<bool> {
    let always = || env::var_os("VKGDR_GDR_OPEN").is_some_and(|value| value == "always");
    if was_opened() || always() { Ok(true) } else { supports_existing() }
}

/// Whether the CPU can map CUDA's memory on any GPU. Retains no context; a GPU that cannot be asked is an error where no other
/// can.
pub(crate) fn supports_existing() -> Result<bool> {
    let mut answer = Ok(false);
    for device in 0..device_count()? {
        match Vkgdr::open(device, OpenFlags::empty()).and_then(|gpu| gpu.supports_existing()) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) => answer = Err(error),
        }
    }
    answer
}

impl Pin {
    /// Copies to a host address of the mapping.
    pub(crate) fn write(&self, to: usize, source: &[u8]) -> Outcome {
        // Before the first byte this is more than any length, which the source refuses.
        let offset = to.wrapping_sub(self.host);
        let write = || -> Result<()> {
            // What the device wrote beside the bytes is made visible first: the flush writes whole atoms.
            self.invalidate(offset, source.len())?;
            self.memory.write(offset, source)?;
            if self.coherent { Ok(()) } else { self.memory.flush(offset..offset + source.len()) }
        };
        write().map_err(|error| self.refusal(to, error))
    }

    /// Copies from a host address of the mapping.
    pub(crate) fn read(&self, from: usize, target: &mut [u8]) -> Outcome {
        let offset = from.wrapping_sub(self.host);
        let mut read = || -> Result<()> {
            self.invalidate(offset, target.len())?;
            self.memory.read(offset, target)
        };
        read().map_err(|error| self.refusal(from, error))
    }

    /// The failure of a copy at a host address.
    #[cold]
    fn refusal(&self, at: usize, error: Error) -> Refusal {
        match error {
            // Its offset wrapped around.
            Error::OutOfRange { .. } if at < self.host => invalid("the copy begins before the memory's first byte"),
            error => error.into(),
        }
    }

    /// Makes the device's writes to a range visible to the CPU.
    #[inline]
    fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        if self.coherent { Ok(()) } else { self.memory.invalidate(offset..offset.saturating_add(len)) }
    }

    /// Whether the memory was freed while it is pinned, which only existing memory can be.
    pub(crate) fn is_freed(&self) -> Result<bool> {
        self.memory.is_current().map(|current| !current)
    }
}
