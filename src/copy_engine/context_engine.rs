//! Copies by the copy engine in one context, for callers that wait: directly from and to their page-locked memory,
//! otherwise through pinned slots.
#![expect(unsafe_code, reason = "copies through pages that the device uses")]

use std::ptr::{self, NonNull};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUdeviceptr;

use crate::addresses;
use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::driver::fill_pattern::FillPattern;
use crate::driver::liveness::Witness;
use crate::driver::locked_pages::LockedPages;
use crate::driver::owned_stream::OwnedStream;
use crate::error::CudaCode;
use crate::{Error, Result};

/// The bytes of a slot: enough that a copy takes much longer than its start.
const SLOT: usize = 1 << 20;
/// The CPU copies to or from one while the device copies the other.
const SLOTS: usize = 2;
/// The shortest segment of a longer copy: 3 µs at 20 GB/s, about the time of a driver call.
const SEGMENT: usize = 64 << 10;
/// The fewest segments of a copy, unless they would be too short, so that CPU and device work at once.
const SEGMENTS: usize = 4;
/// The pause between failed waits for a copy of the caller's memory.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether an error of a wait for a stream of an engine says that the stream's work has ended. The stream lives as long
/// as the engine, unless it was destroyed with its context. An error without a CUDA code means that CUDA is
/// unavailable.
fn ends_copies(error: &Error) -> bool {
    error.ends_all_work() || error.cuda_code().is_none_or(|code| code == CudaCode::INVALID_HANDLE)
}

/// Slots of pinned memory, each with a stream of one context, which must be current in every call.
///
/// The pages of a slot belong to the CPU while the slot is not busy.
#[derive(Debug)]
pub(super) struct ContextEngine {
    /// Dropped before the pages are.
    witness: Option<Witness>,
    slots: [Slot; SLOTS],
    pages: LockedPages,
}

#[derive(Debug)]
struct Slot {
    queue: OwnedStream,
    /// Whether the device may still use the pages.
    busy: bool,
}

impl Slot {
    fn new() -> Result<Self> {
        Ok(Self { queue: OwnedStream::new()?, busy: false })
    }
}

/// A part of a copy that goes through one slot.
struct Segment {
    slot: usize,
    start: usize,
    len: usize,
}

/// Splits `len` bytes into segments, alternating between the slots.
fn segments(len: usize) -> impl Iterator<Item = Segment> {
    let most = len.div_ceil(SEGMENTS).next_multiple_of(4096).clamp(SEGMENT, SLOT);
    let starts = (0..len).step_by(most);
    starts.enumerate().map(move |(index, start)| Segment { slot: index % SLOTS, start, len: most.min(len - start) })
}

/// Whether both ends of a buffer are page-locked. If memory between them is not, the driver refuses the copy.
fn is_pinned(bytes: &[u8]) -> bool {
    // For this crate's own memory the answer is known; what the driver answers for mappings of Vulkan's is not.
    let is_locked = |byte: &u8| match (addresses::is_registered(byte), cuda()) {
        (Some(registered), _) => registered,
        (None, Ok(cuda)) => cuda.is_page_locked(byte).unwrap_or(false),
        (None, Err(_)) => false,
    };
    [bytes.first(), bytes.last()].into_iter().all(|end| end.is_some_and(is_locked))
}

impl ContextEngine {
    /// An engine of the current context, `context`.
    pub(super) fn new(context: Context) -> Result<Self> {
        cuda()?.outside_captures(|| {
            let pages = LockedPages::new(SLOTS * SLOT)?;
            let slots = [Slot::new()?, Slot::new()?];
            let witness = Witness::new(context.key(), pages.start().addr().get() as CUdeviceptr);
            Ok(Self { witness, slots, pages })
        })
    }

    /// Copies `source` to the device, and waits.
    ///
    /// # Safety
    ///
    /// `source.len()` bytes must be valid at `to`, after a failure until the context has been waited for.
    pub(super) unsafe fn write(&mut self, to: CUdeviceptr, source: &[u8]) -> Result<()> {
        self.wait_for_all()?;
        let from = NonNull::from(source).cast();
        // SAFETY: by this method's contract; the caller's bytes stay as they are until this returns.
        if is_pinned(source) && self.copy_directly(|queue| unsafe { queue.copy_to_device(to, from, source.len()) })? {
            return Ok(());
        }
        // SAFETY: by this method's contract.
        let written = unsafe { self.write_through_slots(to, source) };
        let waited = self.wait_for_all();
        written.and(waited)
    }

    /// Starts a copy from or to the caller's memory, and returns when the device has finished with that memory, even
    /// after a failure. Returns whether the driver accepted the copy.
    fn copy_directly(&mut self, start: impl FnOnce(&OwnedStream) -> Result<()>) -> Result<bool> {
        let cuda = cuda()?;
        let slot = &mut self.slots[0];
        // Set even if the start fails: the device may have begun.
        slot.busy = true;
        let started = start(&slot.queue);
        let mut finished = self.wait(0);
        // Waits however long it takes: the caller's memory is only borrowed, and cannot be kept alive for the device.
        while finished.as_ref().is_err_and(|error| !ends_copies(error)) {
            thread::sleep(PAUSE);
            // In relaxed mode: a capture on this thread could refuse every wait, and cannot end before this returns.
            finished = cuda.outside_captures(|| self.wait(0));
        }
        finished.map(|()| started.is_ok())
    }

    /// # Safety
    ///
    /// The contract of [`write`](Self::write), until [`wait_for_all`](Self::wait_for_all).
    unsafe fn write_through_slots(&mut self, to: CUdeviceptr, source: &[u8]) -> Result<()> {
        for Segment { slot, start, len } in segments(source.len()) {
            self.wait(slot)?;
            let (page, from) = (self.page(slot), &source[start..start + len]);
            // SAFETY: the slot has room, and is not busy.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), page.as_ptr(), len) };
            let slot = &mut self.slots[slot];
            // Set even if the start fails: the device may have begun.
            slot.busy = true;
            // SAFETY: the slot stays as it is until it has been waited for, and the bytes at `to` by this method's contract.
            unsafe { slot.queue.copy_to_device(to + start as u64, page, len) }?;
        }
        Ok(())
    }

    /// Copies from the device to `target`, and waits.
    ///
    /// # Safety
    ///
    /// `target.len()` bytes must be valid at `from`, after a failure until the context has been waited for.
    pub(super) unsafe fn read(&mut self, from: CUdeviceptr, target: &mut [u8]) -> Result<()> {
        self.wait_for_all()?;
        let (to, len) = (NonNull::from(&mut *target).cast(), target.len());
        // SAFETY: by this method's contract; the caller's bytes are borrowed exclusively until this returns.
        if is_pinned(target) && self.copy_directly(|queue| unsafe { queue.copy_to_host(to, from, len) })? {
            return Ok(());
        }
        // SAFETY: by this method's contract.
        let copied = unsafe { self.read_through_slots(from, target) };
        let waited = self.wait_for_all();
        copied.and(waited)
    }

    /// # Safety
    ///
    /// The contract of [`read`](Self::read), until [`wait_for_all`](Self::wait_for_all).
    unsafe fn read_through_slots(&mut self, from: CUdeviceptr, target: &mut [u8]) -> Result<()> {
        let mut ahead = segments(target.len());
        // A copy to each slot is under way before the first is emptied.
        for Segment { slot, start, len } in ahead.by_ref().take(SLOTS) {
            // SAFETY: the slot is free at the start, and the bytes at `from` valid by this method's contract.
            unsafe { self.start_read(slot, from + start as u64, len) }?;
        }
        for Segment { slot, start, len } in segments(target.len()) {
            self.wait(slot)?;
            let page = self.page(slot);
            let to = &mut target[start..start + len];
            // SAFETY: the slot has the bytes, and is not busy.
            unsafe { ptr::copy_nonoverlapping(page.as_ptr(), to.as_mut_ptr(), len) };
            // The next segment goes to the slot that was just emptied.
            if let Some(Segment { slot, start, len }) = ahead.next() {
                // SAFETY: as above.
                unsafe { self.start_read(slot, from + start as u64, len) }?;
            }
        }
        Ok(())
    }

    /// Fills `len` bytes on the device, and waits.
    ///
    /// # Safety
    ///
    /// `len` bytes must be valid at `to`, after a failure until the context has been waited for.
    pub(super) unsafe fn fill(&mut self, to: CUdeviceptr, pattern: FillPattern, len: usize) -> Result<()> {
        self.wait_for_all()?;
        let slot = &mut self.slots[0];
        slot.busy = true;
        // SAFETY: by this method's contract.
        let begun = unsafe { slot.queue.fill(to, pattern, len / pattern.size()) };
        let waited = self.wait_for_all();
        begun.and(waited)
    }

    /// # Safety
    ///
    /// The slot must not be busy, and `len` bytes be valid at `from` until it is waited for.
    unsafe fn start_read(&mut self, slot: usize, from: CUdeviceptr, len: usize) -> Result<()> {
        let page = self.page(slot);
        let slot = &mut self.slots[slot];
        slot.busy = true;
        // SAFETY: the slot has room and belongs to the device now; the rest by this method's contract.
        unsafe { slot.queue.copy_to_host(page, from, len) }
    }

    /// The first byte of a slot.
    fn page(&self, slot: usize) -> NonNull<u8> {
        // SAFETY: the pages hold all slots.
        unsafe { self.pages.start().add(slot * SLOT) }
    }

    fn wait(&mut self, slot: usize) -> Result<()> {
        let slot = &mut self.slots[slot];
        if slot.busy {
            slot.queue.synchronize()?;
            slot.busy = false;
        }
        Ok(())
    }

    /// Waits for all slots, and returns the first error.
    fn wait_for_all(&mut self) -> Result<()> {
        (0..SLOTS).map(|slot| self.wait(slot)).fold(Ok(()), Result::and)
    }

    /// Whether the device may still use a slot: a copy failed, and so did waiting for it.
    pub(super) fn is_busy(&self) -> bool {
        self.slots.iter().any(|slot| slot.busy)
    }

    /// Forgets the CUDA objects that were destroyed with the context.
    pub(super) fn abandon(&mut self) {
        self.witness = None;
        for slot in &mut self.slots {
            slot.queue.abandon();
            slot.busy = false;
        }
        self.pages.abandon();
    }
}

impl Drop for ContextEngine {
    fn drop(&mut self) {
        if self.is_busy() {
            self.pages.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_and_use_the_slots_in_turn() {
        let some = [
            0,
            1,
            SEGMENT - 1,
            SEGMENT,
            SEGMENT + 1,
            4 * SEGMENT + 1,
            SLOT - 1,
            SLOT,
            SLOT + 1,
            4 * SLOT,
            9 * SLOT + 5,
        ];
        for len in some {
            let mut end = 0;
            for (index, segment) in segments(len).enumerate() {
                assert_eq!((segment.slot, segment.start), (index % SLOTS, end), "{len}");
                assert!((1..=SLOT).contains(&segment.len), "{len}");
                end += segment.len;
            }
            assert_eq!(end, len);
        }
        assert_eq!((segments(SEGMENT).count(), segments(SEGMENTS * SEGMENT).count()), (1, SEGMENTS));
    }
}
