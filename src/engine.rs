//! Copies by the GPU's copy engine, and the thresholds from which it makes them.
//!
//! [`CopyEngines`] has an engine per context. A [`ContextEngine`] makes blocking copies: directly from and to page-locked private
//! memory, otherwise through staging buffers. Callers are responsible for contexts and addresses.
#![expect(
    unsafe_code,
    reason = "copies through pages that the device uses, to and from addresses that callers vouch for"
)]

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUdeviceptr;

use crate::addresses;
use crate::driver::context::{Context, Entered};
use crate::driver::cuda::cuda;
use crate::driver::fork;
use crate::driver::memory::LockedPages;
use crate::driver::stream::{FillPattern, OwnedStream};
use crate::error::CudaCode;
use crate::lock::Lock;
use crate::{Error, Result};

/// Who makes the copies of [`Memory::write_with`](crate::Memory::write_with) and
/// [`Memory::read_with`](crate::Memory::read_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CopyPolicy {
    /// One of the two by [`CopyThresholds`], once [`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies) or a copy
    /// with [`Dma`](Self::Dma) has made the copy engine in the memory's context. Until then the CPU copies, because
    /// making the engine may wait for a kernel that itself waits for this copy. Memory without a host view is always
    /// copied by the engine. The default, and what `Memory::write` and `Memory::read` do, except that these refuse
    /// memory without a view.
    #[default]
    Auto,
    /// The CPU's loads and stores.
    Cpu,
    /// The GPU's copy engine: directly from or to page-locked private memory, otherwise through pinned memory.
    Dma,
}

/// The lengths from which [`CopyPolicy::Auto`] uses the GPU's copy engine.
///
/// They apply to coherent memory that the CPU does not cache, such as `Mapped` memory of a GPU behind PCIe, in contexts in
/// which the copy engine was made ([`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies)). Cached memory
/// is always copied by the CPU, also where `VKGDR_COPY` forces a routine. With 0 the engine makes every copy, with
/// `usize::MAX` none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyThresholds {
    /// Bytes of a read.
    pub read: usize,
    /// Bytes of a write, and of a fill.
    pub write: usize,
}

impl Default for CopyThresholds {
    /// The thresholds before [`Vkgdr::set_copy_thresholds`](crate::Vkgdr::set_copy_thresholds).
    ///
    /// The CPU reads through the BAR at 0.53 to 0.72 GB/s and writes at 9.6 to 17 GB/s (gdrcopy on a V100 and an H20).
    /// A copy engine costs 5 to 10 µs to start and wait for. Then it moves 20 to 57 GB/s, limited by the CPU's copy to
    /// or from pinned memory. So reads break even at 5 to 8 KiB; long writes take about the same time either way.
    fn default() -> Self {
        Self { read: 8 << 10, write: 1 << 20 }
    }
}

/// Thresholds that any thread may change at any time.
#[derive(Debug)]
pub(crate) struct SharedThresholds {
    read: AtomicUsize,
    write: AtomicUsize,
}

impl SharedThresholds {
    #[inline]
    pub(crate) fn get(&self) -> CopyThresholds {
        let [read, write] = [&self.read, &self.write].map(|value| value.load(Ordering::Relaxed));
        CopyThresholds { read, write }
    }

    pub(crate) fn set(&self, thresholds: CopyThresholds) {
        self.read.store(thresholds.read, Ordering::Relaxed);
        self.write.store(thresholds.write, Ordering::Relaxed);
    }
}

impl Default for SharedThresholds {
    fn default() -> Self {
        let CopyThresholds { read, write } = CopyThresholds::default();
        Self { read: read.into(), write: write.into() }
    }
}

/// A handle's engines, one per context. They end with the handle, in their contexts.
#[derive(Debug, Default)]
pub(crate) struct CopyEngines {
    /// Made by [`prepare`](Self::prepare) and by the first copy, and used by one copy at a time.
    engines: Lock<Vec<(Context, Shared)>>,
}

type Shared = Arc<Lock<ContextEngine>>;

/// Why a copy failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The copy has not begun.
    Unavailable(Error),
    /// Some of the bytes may have been copied.
    Copy(Error),
    /// Some of the bytes may have been copied, and the device may still be copying: the wait failed, too.
    Unfinished(Error),
}

impl CopyEngines {
    /// Runs `copy` with the context's engine, in that context. After an `Unfinished` failure the device may use the copy's bytes
    /// until the context has been waited for.
    pub(crate) fn run(
        &self,
        context: Context,
        copy: impl FnOnce(&mut ContextEngine) -> Result<()>,
    ) -> std::result::Result<(), Failure> {
        let mut failed = Failure::Unavailable as fn(_) -> _;
        let result = context.run(|| {
            // A forked child fails to enter the context, and so does not wait for a lock that may be held for ever.
            let engine = self.engine(context)?;
            let mut engine = engine.lock();
            failed = Failure::Copy;
            // For an earlier copy that failed: this one has not begun, so that its memory is not in use.
            engine.wait_for_all()?;
            let copied = copy(&mut engine);
            if engine.is_busy() {
                failed = Failure::Unfinished;
            }
            copied
        });
        result.map_err(failed)
    }

    /// Makes the context's engine unless it exists. Does nothing where engines are not kept, see [`engine`](Self::engine).
    pub(crate) fn prepare(&self, context: Context) -> Result<()> {
        if !context.has_unique_id() || self.is_prepared(context) {
            return Ok(());
        }
        context.run(|| self.engine(context).map(drop))
    }

    /// Whether the context has an engine. False in a forked child.
    pub(crate) fn is_prepared(&self, context: Context) -> bool {
        // A thread that a forked child does not have may hold the lock.
        !fork::is_forked() && self.engines.lock().iter().any(|(of, _)| *of == context)
    }

    /// The engine of the current context. A context that cannot be told from a later one at its address gets a new engine
    /// for each copy: the driver would crash on a stream of the earlier one.
    fn engine(&self, context: Context) -> Result<Shared> {
        if !context.has_unique_id() {
            return Ok(Arc::new(Lock::new(ContextEngine::new()?)));
        }
        let find = |engines: &[(Context, Shared)]| {
            engines.iter().find(|(of, _)| *of == context).map(|(_, engine)| engine.clone())
        };
        if let Some(found) = find(&self.engines.lock()) {
            return Ok(found);
        }
        // Made, and dropped, without the lock: a driver may log, and the logger copy.
        let made = Arc::new(Lock::new(ContextEngine::new()?));
        let mut engines = self.engines.lock();
        // Another thread may have added one meanwhile.
        let kept = find(&engines).unwrap_or_else(|| {
            engines.push((context, made.clone()));
            made.clone()
        });
        drop(engines);
        Ok(kept)
    }
}

impl Drop for CopyEngines {
    fn drop(&mut self) {
        if fork::is_forked() {
            // Everything is the parent's.
            let _ = ManuallyDrop::new(std::mem::take(self.engines.get_mut()));
            return;
        }
        for (context, engine) in self.engines.get_mut().drain(..) {
            // A context of `cuCtxCreate` may be gone: its owner need not keep it for the handle, whose memory in it is gone.
            let may_be_gone = context.primary_device().is_none() && !context.is_current().unwrap_or(false);
            match (!may_be_gone).then(|| context.try_enter()) {
                Some(Ok(Entered::Current(_))) => drop(engine),
                Some(Ok(Entered::Destroyed(_) | Entered::ShutDown(_))) => engine.lock().leave(true),
                Some(Err(_)) | None => engine.lock().leave(false),
            }
        }
    }
}

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
pub(crate) struct ContextEngine {
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

/// Splits `len` bytes into segments, which alternate between the buffers.
fn segments(len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let max = len.div_ceil(SEGMENTS).next_multiple_of(4096).clamp(SEGMENT, BUFFER_LEN);
    let starts = (0..len).step_by(max).enumerate();
    starts.map(move |(index, start)| (index % BUFFERS, start..len.min(start + max)))
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
    fn new() -> Result<Self> {
        cuda()?.outside_captures(|| {
            let pages = LockedPages::new(BUFFERS * BUFFER_LEN)?;
            let buffer = |_| OwnedStream::new().map(|queue| StagingBuffer { queue, busy: false });
            Ok(Self { buffers: (0..BUFFERS).map(buffer).collect::<Result<_>>()?, pages })
        })
    }

    /// Copies `source` to the device, and waits.
    ///
    /// # Safety
    ///
    /// No buffer may be busy, and `source.len()` bytes must be valid at `to`, after a failure until the context has been waited
    /// for.
    pub(crate) unsafe fn write(&mut self, to: CUdeviceptr, source: &[u8]) -> Result<()> {
        let from = NonNull::from(source).cast();
        // SAFETY: by this method's contract; the caller's bytes stay as they are until this returns.
        if is_pinned(source) && self.copy_directly(|queue| unsafe { queue.copy_to_device(to, from, source.len()) })? {
            return Ok(());
        }
        let written = segments(source.len()).try_for_each(|(buffer, bytes)| {
            self.wait(buffer)?;
            let (to, from) = (to + bytes.start as u64, &source[bytes]);
            // SAFETY: the buffer has room, and is not busy.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.page(buffer).as_ptr(), from.len()) };
            // SAFETY: the buffer stays as it is until it has been waited for, and the bytes at `to` by this method's contract.
            self.start(buffer, |queue, page| unsafe { queue.copy_to_device(to, page, from.len()) })
        });
        let waited = self.wait_for_all();
        written.and(waited)
    }

    /// Starts a copy from or to the caller's memory, and returns when the device has finished with that memory, even
    /// after a failure. Returns true if the driver accepted the copy.
    fn copy_directly(&mut self, start: impl FnOnce(&OwnedStream) -> Result<()>) -> Result<bool> {
        let cuda = cuda()?;
        let started = self.start(0, |queue, _| start(queue));
        let mut finished = self.wait(0);
        // Waits however long it takes: the caller's memory is only borrowed, and cannot be kept alive for the device.
        while finished.as_ref().is_err_and(|error| !ends_copies(error)) {
            thread::sleep(PAUSE);
            // In relaxed mode: a capture on this thread could refuse every wait, and cannot end before this returns.
            finished = cuda.outside_captures(|| self.wait(0));
        }
        finished.map(|()| started.is_ok())
    }

    /// Copies from the device to `target`, and waits.
    ///
    /// # Safety
    ///
    /// No buffer may be busy, and `target.len()` bytes must be valid at `from`, after a failure until the context has been waited
    /// for.
    pub(crate) unsafe fn read(&mut self, from: CUdeviceptr, target: &mut [u8]) -> Result<()> {
        let (to, len) = (NonNull::from(&mut *target).cast(), target.len());
        // SAFETY: by this method's contract; the caller's bytes are borrowed exclusively until this returns.
        if is_pinned(target) && self.copy_directly(|queue| unsafe { queue.copy_to_host(to, from, len) })? {
            return Ok(());
        }
        let start = |engine: &mut Self, (buffer, bytes): (usize, Range<usize>)| {
            let from = from + bytes.start as u64;
            // SAFETY: the buffer has room, and the bytes at `from` are valid by this method's contract.
            engine.start(buffer, |queue, page| unsafe { queue.copy_to_host(page, from, bytes.len()) })
        };
        let mut ahead = segments(len);
        // A copy to each buffer is under way before the first is emptied.
        let begun = ahead.by_ref().take(BUFFERS).try_for_each(|segment| start(self, segment));
        let copied = begun.and_then(|()| {
            segments(len).try_for_each(|(buffer, bytes)| {
                self.wait(buffer)?;
                let (page, to) = (self.page(buffer), &mut target[bytes]);
                // SAFETY: the buffer has the bytes, and is not busy.
                unsafe { ptr::copy_nonoverlapping(page.as_ptr(), to.as_mut_ptr(), to.len()) };
                // The next segment goes to the buffer that was just emptied.
                ahead.next().map_or(Ok(()), |segment| start(self, segment))
            })
        });
        let waited = self.wait_for_all();
        copied.and(waited)
    }

    /// Fills `len` bytes on the device, and waits.
    ///
    /// # Safety
    ///
    /// No buffer may be busy, and `len` bytes must be valid at `to`, after a failure until the context has been waited for.
    pub(crate) unsafe fn fill(&mut self, to: CUdeviceptr, pattern: FillPattern, len: usize) -> Result<()> {
        // SAFETY: by this method's contract.
        let begun = self.start(0, |queue, _| unsafe { queue.fill(to, pattern, len / pattern.size()) });
        let waited = self.wait_for_all();
        begun.and(waited)
    }

    /// Starts a copy by a buffer's stream, from or to the buffer or other memory. The buffer is the device's from then on.
    fn start(&mut self, buffer: usize, copy: impl FnOnce(&OwnedStream, NonNull<u8>) -> Result<()>) -> Result<()> {
        let page = self.page(buffer);
        let buffer = &mut self.buffers[buffer];
        // Set even if the start fails: the device may have begun.
        buffer.busy = true;
        copy(&buffer.queue, page)
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
    fn wait_for_all(&mut self) -> Result<()> {
        (0..self.buffers.len()).map(|buffer| self.wait(buffer)).fold(Ok(()), Result::and)
    }

    /// Whether the device may still use a buffer: a copy failed, and so did waiting for it.
    fn is_busy(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.busy)
    }

    /// Leaves everything to the context and the process, but for the pages of a context that was destroyed, and with it the
    /// CUDA objects.
    fn leave(&mut self, is_destroyed: bool) {
        self.buffers.drain(..).for_each(|buffer| _ = ManuallyDrop::new(buffer));
        if is_destroyed { self.pages.abandon() } else { self.pages.leave() }
    }
}

impl Drop for ContextEngine {
    fn drop(&mut self) {
        if self.is_busy() {
            self.pages.leave();
        }
    }
}
