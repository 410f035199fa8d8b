//! Copies by the GPU's copy engine, and the thresholds from which it makes them.
//!
//! [`CopyEngines`] has an engine per context: a stream, on which it makes blocking copies. Callers are responsible for contexts and
//! addresses.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cudarc::driver::sys::CUstream;

use crate::driver::context::Context;
use crate::driver::cuda::cuda;
use crate::driver::fork;
use crate::driver::stream::OwnedStream;
use crate::error::CudaCode;
use crate::lock::Lock;
use crate::{Error, Result};

/// Who makes the copies of [`Memory::write_with`](crate::Memory::write_with) and
/// [`Memory::read_with`](crate::Memory::read_with).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum CopyPolicy {
    /// One of the two by [`CopyThresholds`], once the copy engine was made in the memory's context.
    /// [`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies) makes it, or a copy with [`Dma`](Self::Dma) or of device
    /// memory. Until then the CPU copies, because making the engine may wait for a kernel that itself waits for this copy.
    /// Memory without a host view is always copied by the engine. The default.
    #[default]
    Auto,
    /// The CPU's loads and stores.
    Cpu,
    /// The GPU's copy engine, by `cuMemcpyHtoDAsync` or `cuMemcpyDtoHAsync` and a wait.
    Dma,
}

/// The lengths from which [`CopyPolicy::Auto`] uses the GPU's copy engine.
///
/// They apply to coherent memory that the CPU does not cache, such as `Mapped` memory of a GPU behind PCIe. They apply
/// only in contexts in which the copy engine was made ([`Vkgdr::prepare_copies`](crate::Vkgdr::prepare_copies)). Cached
/// memory is always copied by the CPU. With 0 the engine makes every copy that it can, with `usize::MAX` none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyThresholds {
    /// Bytes of a read.
    pub read: usize,
    /// Bytes of a write from page-locked memory. The CPU writes from other memory: the driver copies that by the CPU, too.
    pub write: usize,
}

impl Default for CopyThresholds {
    /// The thresholds before [`Vkgdr::set_copy_thresholds`](crate::Vkgdr::set_copy_thresholds).
    ///
    /// Measured on an H100 with PCIe 5 and driver 580. The CPU reads 4 KiB in 4 µs and 16 KiB in 16, the engine in 7. The
    /// CPU writes 1 MiB in 49 µs, the engine in 33 from page-locked memory, and in 82 from other memory (docs/copies.md).
    fn default() -> Self {
        Self { read: 8 << 10, write: 256 << 10 }
    }
}

/// A handle's engines, one per context. They end with the handle, in their contexts.
#[derive(Debug, Default)]
pub(crate) struct CopyEngines {
    /// Made by [`prepare`](Self::prepare) and by the first copy, and used by one copy at a time.
    engines: Lock<Vec<(Context, Arc<Lock<OwnedStream>>)>>,
}

impl CopyEngines {
    /// Starts a copy on the context's engine, in that context, and returns when the device has finished with its bytes, even after
    /// a failure. It gives up after a second of errors that do not say whether the device has. The wait may take long: the caller's
    /// memory is only borrowed, and cannot be kept alive for the device. The error of a copy is the inner one. An outer error means
    /// that the CPU may copy instead.
    pub(crate) fn copy(&self, context: Context, start: impl FnOnce(CUstream) -> Result<()>) -> Result<Result<()>> {
        let copied = context.run(|| {
            // A forked child fails to enter the context, and so does not wait for a lock that may be held for ever.
            let engine = self.engine(context)?;
            let engine = engine.lock();
            // In relaxed mode: a capture of another thread could refuse the copy, or every wait.
            Ok(cuda()?.outside_captures(|| {
                let started = start(engine.raw());
                let (mut finished, mut tries) = (engine.synchronize(), 0..TRIES);
                let mut may_go_on =
                    |error: &Error| !ends_copies(error) && (error.is_of_capture() || tries.next().is_some());
                while finished.as_ref().is_err_and(&mut may_go_on) {
                    thread::sleep(PAUSE);
                    finished = engine.synchronize();
                }
                started.and(finished)
            }))
        })?;
        match copied {
            // The driver refuses private memory of which only parts are page-locked.
            Err(error) if error.cuda_code() == Some(CudaCode::INVALID_VALUE) => Err(error),
            copied => Ok(copied),
        }
    }

    /// Makes the context's engine unless it exists. Does nothing where engines are not kept, see [`engine`](Self::engine).
    pub(crate) fn prepare(&self, context: Context) -> Result<()> {
        if !context.has_unique_id() {
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
    /// for each copy. The driver would crash on a stream of the earlier one.
    fn engine(&self, context: Context) -> Result<Arc<Lock<OwnedStream>>> {
        let find = |engines: &[(Context, Arc<Lock<OwnedStream>>)]| {
            engines.iter().find(|(of, _)| *of == context).map(|(_, engine)| engine.clone())
        };
        if let Some(found) = find(&self.engines.lock()) {
            return Ok(found);
        }
        // Made, and dropped, without the lock: a driver may log, and the logger copy.
        let made = Arc::new(Lock::new(cuda()?.outside_captures(OwnedStream::new)?));
        if !context.has_unique_id() {
            return Ok(made);
        }
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
            match (!may_be_gone).then(|| context.enter()) {
                Some(Ok(_guard)) => drop(engine),
                // The stream ends with its context, or has ended with it.
                _ => _ = Arc::into_inner(engine).map(ManuallyDrop::new),
            }
        }
    }
}

/// Failed waits are repeated this often, with this pause: a second in all. An error that lasts that long is taken for a sticky one
/// that [`CudaCode`] does not list: drivers have added such codes.
const TRIES: usize = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// Whether a failed wait for an engine's stream means that the stream's work has ended. The stream lives as long as the
/// engine, unless it was destroyed with its context. An error without a CUDA code means that CUDA is unavailable.
fn ends_copies(error: &Error) -> bool {
    error.ends_all_work() || error.cuda_code().is_none_or(|code| code == CudaCode::INVALID_HANDLE)
}

/// Whether both ends of ordinary host memory are page-locked. If memory between them is not, the driver refuses the copy.
pub(crate) fn is_pinned(bytes: &[u8]) -> bool {
    let is_locked = |byte: &u8| cuda().and_then(|cuda| cuda.is_page_locked(byte)).unwrap_or(false);
    [bytes.first(), bytes.last()].into_iter().all(|end| end.is_some_and(is_locked))
}
