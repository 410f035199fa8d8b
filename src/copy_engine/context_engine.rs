//! [`ContextEngine`]: blocking copies by the copy engine in one context.
//!
//! The device copies directly from and to page-locked private memory, otherwise through staging buffers.
#![expect(unsafe_code, reason = "copies through pages that the device uses")]

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUdeviceptr;

use crate::addresses;
use crate::driver::cuda::cuda;
use crate::driver::fill_pattern::FillPattern;
use crate::driver::locked_pages::LockedPages;
use crate::driver::owned_stream::OwnedStream;
use crate::error::CudaCode;
use crate::{Error, Result};

/// The bytes of a staging buffer: enough that a copy takes much longer than its start.
const BUFFER_LEN: usize = 1 << 20;
/// The CPU copies to or from one while the device copies the other.
const BUFFERS: usize = 2;
/// The shortest segment of a longer copy: 3 µs at 20 GB/s, about the time of a driver call.
const SEGMENT: usize = 64 << 10;
/// The fewest segments of a copy, unless they would be too short, so that CPU and device work at once.
const SEGMENTS: usize = 4;
/// The pause between failed waits for a copy of the caller's memory.
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a failed wait for an engine's stream means that the stream's work has ended. The stream lives as long as the
/// engine, unless it was destroyed with its context. An error without a CUDA code means that CUDA is unavailable.
fn ends_copies(error: &Error) -> bool {
    error.ends_all_work() || error.cuda_code().is_none_or(|code| code == CudaCode::INVALID_HANDLE)
}

/// Staging buffers of pinned memory, each with a stream of one context, which must be current in every call.
///
/// The pages of a buffer belong to the CPU while the buffer is not busy.
#[derive(Debug)]
pub(super) struct ContextEngine {
    /// [`BUFFERS`] of them; none once the context is gone.
    buffers: Vec<StagingBuffer>,
    pages: LockedPages,
}

#[derive(Debug)]
struct StagingBuffer {
    queue: OwnedStream,
    /// Whether the device may still use the pages.
    busy: bool,
}

impl StagingBuffer {
    fn new() -> Result<Self> {
        Ok(Self { queue: OwnedStream::new()?, busy: false })
    }
}

/// A part of a copy that goes through one staging buffer.
struct Segment {
    buffer: usize,
    start: usize,
    len: usize,
}

/// Splits `len` bytes into segments, alternating between the buffers.
fn segments(len: usize) -> impl Iterator<Item = Segment> {
    let max = len.div_ceil(SEGMENTS).next_multiple_of(4096).clamp(SEGMENT, BUFFER_LEN);
    let starts = (0..len).step_by(max);
    starts.enumerate().map(move |(index, start)| Segment { buffer: index % BUFFERS, start, len: max.min(len - start) })
}

/// Whether both ends of private memory are page-locked. If memory between them is not, the driver refuses the copy.
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
    /// An engine of the current context.
    pub(super) fn new() -> Result<Self> {
        cuda()?.outside_captures(|| {
            let pages = LockedPages::new(BUFFERS * BUFFER_LEN)?;
            let buffers = (0..BUFFERS).map(|_| StagingBuffer::new()).collect::<Result<_>>()?;
            Ok(Self { buffers, pages })
        })
    }

    /// Copies `source` to the device, and waits.
    ///
    /// # Safety
    ///
    /// No buffer may be busy, and `source.len()` bytes must be valid at `to`, after a failure until the context has been waited
    /// for.
    pub(super) unsafe fn write(&mut self, to: CUdeviceptr, source: &[u8]) -> Result<()> {
        let from = NonNull::from(source).cast();
        // SAFETY: by this method's contract; the caller's bytes stay as they are until this returns.
        if is_pinned(source) && self.copy_directly(|queue| unsafe { queue.copy_to_device(to, from, source.len()) })? {
            return Ok(());
        }
        // SAFETY: by this method's contract.
        let written = unsafe { self.write_through_buffers(to, source) };
        let waited = self.wait_for_all();
        written.and(waited)
    }

    /// Starts a copy from or to the caller's memory, and returns when the device has finished with that memory, even
    /// after a failure. Returns true if the driver accepted the copy.
    fn copy_directly(&mut self, start: impl FnOnce(&OwnedStream) -> Result<()>) -> Result<bool> {
        let cuda = cuda()?;
        let buffer = &mut self.buffers[0];
        // Set even if the start fails: the device may have begun.
        buffer.busy = true;
        let started = start(&buffer.queue);
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
    unsafe fn write_through_buffers(&mut self, to: CUdeviceptr, source: &[u8]) -> Result<()> {
        for Segment { buffer, start, len } in segments(source.len()) {
            self.wait(buffer)?;
            let (page, from) = (self.page(buffer), &source[start..start + len]);
            // SAFETY: the buffer has room, and is not busy.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), page.as_ptr(), len) };
            let buffer = &mut self.buffers[buffer];
            // Set even if the start fails: the device may have begun.
            buffer.busy = true;
            // SAFETY: the buffer stays as it is until it has been waited for, and the bytes at `to` by this method's contract.
            unsafe { buffer.queue.copy_to_device(to + start as u64, page, len) }?;
        }
        Ok(())
    }

    /// Copies from the device to `target`, and waits.
    ///
    /// # Safety
    ///
    /// No buffer may be busy, and `target.len()` bytes must be valid at `from`, after a failure until the context has been waited
    /// for.
    pub(super) unsafe fn read(&mut self, from: CUdeviceptr, target: &mut [u8]) -> Result<()> {
        let (to, len) = (NonNull::from(&mut *target).cast(), target.len());
        // SAFETY: by this method's contract; the caller's bytes are borrowed exclusively until this returns.
        if is_pinned(target) && self.copy_directly(|queue| unsafe { queue.copy_to_host(to, from, len) })? {
            return Ok(());
        }
        // SAFETY: by this method's contract.
        let copied = unsafe { self.read_through_buffers(from, target) };
        let waited = self.wait_for_all();
        copied.and(waited)
    }

    /// # Safety
    ///
    /// The contract of [`read`](Self::read), until [`wait_for_all`](Self::wait_for_all).
    unsafe fn read_through_buffers(&mut self, from: CUdeviceptr, target: &mut [u8]) -> Result<()> {
        let mut ahead = segments(target.len());
        // A copy to each buffer is under way before the first is emptied.
        for Segment { buffer, start, len } in ahead.by_ref().take(BUFFERS) {
            // SAFETY: the buffer is free at the start, and the bytes at `from` valid by this method's contract.
            unsafe { self.start_read(buffer, from + start as u64, len) }?;
        }
        for Segment { buffer, start, len } in segments(target.len()) {
            self.wait(buffer)?;
            let page = self.page(buffer);
            let to = &mut target[start..start + len];
            // SAFETY: the buffer has the bytes, and is not busy.
            unsafe { ptr::copy_nonoverlapping(page.as_ptr(), to.as_mut_ptr(), len) };
            // The next segment goes to the buffer that was just emptied.
            if let Some(Segment { buffer, start, len }) = ahead.next() {
                // SAFETY: as above.
                unsafe { self.start_read(buffer, from + start as u64, len) }?;
            }
        }
        Ok(())
    }

    /// Fills `len` bytes on the device, and waits.
    ///
    /// # Safety
    ///
    /// No buffer may be busy, and `len` bytes must be valid at `to`, after a failure until the context has been waited for.
    pub(super) unsafe fn fill(&mut self, to: CUdeviceptr, pattern: FillPattern, len: usize) -> Result<()> {
        let buffer = &mut self.buffers[0];
        buffer.busy = true;
        // SAFETY: by this method's contract.
        let begun = unsafe { buffer.queue.fill(to, pattern, len / pattern.size()) };
        let waited = self.wait_for_all();
        begun.and(waited)
    }

    /// # Safety
    ///
    /// The buffer must not be busy, and `len` bytes be valid at `from` until it is waited for.
    unsafe fn start_read(&mut self, buffer: usize, from: CUdeviceptr, len: usize) -> Result<()> {
        let page = self.page(buffer);
        let buffer = &mut self.buffers[buffer];
        buffer.busy = true;
        // SAFETY: the buffer has room and belongs to the device now; the rest by this method's contract.
        unsafe { buffer.queue.copy_to_host(page, from, len) }
    }

    /// The first byte of a buffer.
    fn page(&self, buffer: usize) -> NonNull<u8> {
        // SAFETY: the pages hold all buffers.
        unsafe { self.pages.start().add(buffer * BUFFER_LEN) }
    }

    fn wait(&mut self, buffer: usize) -> Result<()> {
        let buffer = &mut self.buffers[buffer];
        if buffer.busy {
            buffer.queue.synchronize()?;
            buffer.busy = false;
        }
        Ok(())
    }

    /// Waits for all buffers, and returns the first error.
    pub(super) fn wait_for_all(&mut self) -> Result<()> {
        (0..self.buffers.len()).map(|buffer| self.wait(buffer)).fold(Ok(()), Result::and)
    }

    /// Whether the device may still use a buffer: a copy failed, and so did waiting for it.
    pub(super) fn is_busy(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.busy)
    }

    /// Leaves everything to the context and the process.
    pub(super) fn leave(&mut self) {
        self.buffers.drain(..).for_each(|buffer| {
            let _ = ManuallyDrop::new(buffer);
        });
        self.pages.leave();
    }

    /// Forgets the CUDA objects that were destroyed with the context.
    pub(super) fn abandon(&mut self) {
        self.buffers.drain(..).for_each(|buffer| {
            let _ = ManuallyDrop::new(buffer);
        });
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
    fn pieces_follow_each_other_and_use_the_buffers_in_turn() {
        let some = [
            0,
            1,
            SEGMENT - 1,
            SEGMENT,
            SEGMENT + 1,
            4 * SEGMENT + 1,
            BUFFER_LEN - 1,
            BUFFER_LEN,
            BUFFER_LEN + 1,
            4 * BUFFER_LEN,
            9 * BUFFER_LEN + 5,
        ];
        for len in some {
            let mut end = 0;
            for (index, segment) in segments(len).enumerate() {
                assert_eq!((segment.buffer, segment.start), (index % BUFFERS, end), "{len}");
                assert!((1..=BUFFER_LEN).contains(&segment.len), "{len}");
                end += segment.len;
            }
            assert_eq!(end, len);
        }
        assert_eq!((segments(SEGMENT).count(), segments(SEGMENTS * SEGMENT).count()), (1, SEGMENTS));
    }
}
