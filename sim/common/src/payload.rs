#![expect(unsafe_code, reason = "maps shared memory, and waits in the kernel")]
//! The payload of a semaphore or event that other processes share: a page of shared memory behind a descriptor.
//!
//! A GPU's driver keeps a semaphore in memory that every importer maps. Here that memory is a sealed memfd. The layer
//! `VK_LAYER_VKGDR_semaphores` makes it, and the simulated CUDA driver imports it. A binary
//! semaphore is a timeline: the nth wait that is submitted waits for the nth signal. The driver has events of its own, whose
//! signals are records, which may complete in any order.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::memfd;

const MAGIC: u64 = u64::from_le_bytes(*b"vkgdrsem");
const SIZE: usize = 4096;

/// The type of a semaphore, or an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A binary semaphore.
    Binary,
    /// A timeline semaphore.
    Timeline,
    /// An event, which the layer does not have.
    Event,
}

impl Kind {
    fn number(self) -> u32 {
        match self {
            Kind::Binary => 1,
            Kind::Timeline => 2,
            Kind::Event => 3,
        }
    }
}

#[repr(C)]
struct Page {
    magic: AtomicU64,
    kind: AtomicU32,
    /// Counts the changes of the value, for waits in the kernel.
    changes: AtomicU32,
    value: AtomicU64,
    /// Signals and waits of a binary semaphore that were submitted, and an event's records.
    signals: AtomicU64,
    waits: AtomicU64,
    /// The last of an event's completed records with this number modulo [`RECORDS`].
    completed: [AtomicU64; RECORDS],
}

/// The most records of an event that wait at the same time for others to tell them apart.
const RECORDS: usize = 256;

const _: () = assert!(size_of::<Page>() <= SIZE);

/// A mapped payload, and a descriptor of it.
#[derive(Debug)]
pub struct Payload {
    page: NonNull<Page>,
    fd: OwnedFd,
}

// SAFETY: the page stays mapped for the life of the value.
unsafe impl Send for Payload {}
// SAFETY: the page is accessed atomically.
unsafe impl Sync for Payload {}

impl Payload {
    /// A new payload.
    ///
    /// # Errors
    /// Those of the system, of which memory is asked.
    pub fn create(kind: Kind, value: u64) -> io::Result<Payload> {
        let payload = Payload::map(memfd::create_sealed(c"vkgdr-semaphore", SIZE)?)?;
        let page = payload.page();
        page.kind.store(kind.number(), Ordering::Relaxed);
        page.value.store(value, Ordering::Relaxed);
        page.magic.store(MAGIC, Ordering::Release);
        Ok(payload)
    }

    /// The payload behind a descriptor, which stays the caller's; `None` where it is no payload.
    ///
    /// # Errors
    /// Those of the system.
    pub fn import(fd: BorrowedFd<'_>) -> io::Result<Option<Payload>> {
        if !memfd::is_sealed(fd) || file_size(fd)? != SIZE as u64 {
            return Ok(None);
        }
        let payload = Payload::map(fd.try_clone_to_owned()?)?;
        let known = payload.page().magic.load(Ordering::Acquire) == MAGIC && payload.kind().is_some();
        Ok(known.then_some(payload))
    }

    fn map(fd: OwnedFd) -> io::Result<Payload> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the system chooses.
        let page = unsafe { libc::mmap(ptr::null_mut(), SIZE, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        let page = NonNull::new(page.cast::<Page>()).filter(|_| page != libc::MAP_FAILED);
        Ok(Payload { page: page.ok_or_else(io::Error::last_os_error)?, fd })
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped until this value is dropped, aligned, and only accessed by atomics.
        unsafe { self.page.as_ref() }
    }

    /// The type; `None` where another program has overwritten it.
    pub fn kind(&self) -> Option<Kind> {
        let number = self.page().kind.load(Ordering::Relaxed);
        [Kind::Binary, Kind::Timeline, Kind::Event].into_iter().find(|kind| kind.number() == number)
    }

    /// The counter of a timeline; the number of signals that a binary semaphore has had.
    pub fn value(&self) -> u64 {
        self.page().value.load(Ordering::Acquire)
    }

    /// Raises the value, unless it is as high already. Returns the value before.
    pub fn advance(&self, value: u64) -> u64 {
        let before = self.page().value.fetch_max(value, Ordering::AcqRel);
        if before < value {
            self.wake();
        }
        before
    }

    /// Ends the waits of all processes, which look at the value again.
    pub fn wake(&self) {
        let changes = &self.page().changes;
        changes.fetch_add(1, Ordering::AcqRel);
        let unused = ptr::null::<libc::timespec>();
        // SAFETY: wakes all threads that wait at this mapped word.
        unsafe { libc::syscall(libc::SYS_futex, changes.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX, unused) };
    }

    /// Whether the value is reached, after a wait for at most `most` that may end early.
    pub fn wait(&self, value: u64, most: Duration) -> bool {
        self.wait_until(|| self.value() >= value, most)
    }

    // Waits for a change unless the condition holds, and returns whether it does then.
    fn wait_until(&self, holds: impl Fn() -> bool, most: Duration) -> bool {
        let changes = &self.page().changes;
        let before = changes.load(Ordering::Acquire);
        if holds() {
            return true;
        }
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(most.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: most.subsec_nanos().into(),
        };
        // SAFETY: waits at this mapped word, and reads the time during the call.
        unsafe { libc::syscall(libc::SYS_futex, changes.as_ptr(), libc::FUTEX_WAIT, before, &raw const time) };
        holds()
    }

    /// The value that a signal which is submitted now raises a binary semaphore to.
    pub fn next_signal(&self) -> u64 {
        self.page().signals.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// The value that a wait which is submitted now needs of a binary semaphore.
    pub fn next_wait(&self) -> u64 {
        self.page().waits.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }

    /// The number of an event's last record; 0 before the first.
    pub fn last_record(&self) -> u64 {
        self.page().signals.load(Ordering::Acquire)
    }

    fn slot(&self, record: u64) -> &AtomicU64 {
        let index = usize::try_from(record % RECORDS as u64).unwrap_or_default();
        &self.page().completed[index]
    }

    /// Completes a record of an event.
    pub fn complete(&self, record: u64) {
        self.slot(record).fetch_max(record, Ordering::AcqRel);
        self.wake();
    }

    /// Whether a record of an event is complete.
    pub fn is_complete(&self, record: u64) -> bool {
        self.slot(record).load(Ordering::Acquire) >= record
    }

    /// Whether a record is complete, after a wait for at most `most` that may end early.
    pub fn wait_for_record(&self, record: u64, most: Duration) -> bool {
        self.wait_until(|| self.is_complete(record), most)
    }

    /// The number of the descriptor, which stays open as long as this value.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Another descriptor, for an importer.
    ///
    /// # Errors
    /// Where the process has no more descriptors.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size, and nothing refers to it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), SIZE) };
    }
}

fn file_size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(std::fs::metadata(path)?.len())
}
