//! [`CopyStats`], and the methods of [`Vkgdr`] that prepare, calibrate and count copies, and set their thresholds.
#![expect(unsafe_code, reason = "the device copies from and to addresses that the memory keeps valid")]

use std::time::Instant;

use crate::access::copy::CopyRoutine;
use crate::access::view::View;
use crate::chunk::Block;
use crate::copy_engine::calibration::{LONGEST, READS, WRITES, compare, crossing};
use crate::driver::fork;
use crate::report::report;
use crate::stream::binding::Binding;
use crate::{CopyThresholds, MemoryKind, Result, Vkgdr};

/// Copies of a GPU's memory by the CPU and by the copy engine since the process started, on all handles, from
/// [`Vkgdr::copy_stats`].
///
/// All copies by the copy engine count, and the CPU's copies of memory that it does not cache. Fills count as writes.
/// Not counted are failed copies, copies of cached memory, copies through a [`Writer`](crate::Writer) or a
/// [`MapGuard`](crate::MapGuard), messages of a ring, short copies through an [`OtherMemory`](crate::OtherMemory), and the CPU's
/// copies during [`Vkgdr::calibrate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStats {
    /// Reads by the CPU.
    pub cpu_reads: u64,
    /// Bytes read by the CPU.
    pub cpu_read_bytes: u64,
    /// Writes by the CPU.
    pub cpu_writes: u64,
    /// Bytes written by the CPU.
    pub cpu_written_bytes: u64,
    /// Reads by the copy engine.
    pub dma_reads: u64,
    /// Bytes read by the copy engine.
    pub dma_read_bytes: u64,
    /// Writes by the copy engine.
    pub dma_writes: u64,
    /// Bytes written by the copy engine.
    pub dma_written_bytes: u64,
    /// The CPU's routine for memory that it does not cache.
    pub routine: CopyRoutine,
}

impl Vkgdr {
    /// Makes the copy engine's pinned memory and streams, so that [`CopyPolicy::Auto`](crate::CopyPolicy::Auto) uses the copy
    /// engine: in the handle's primary context if it retains that, otherwise in the current context, which must belong to
    /// the handle's device. Nothing if they exist.
    ///
    /// Page-locking memory and creating streams may wait until running kernels have ended. Call this, or
    /// [`calibrate`](Self::calibrate), before starting a kernel that waits for the CPU. A copy with
    /// [`CopyPolicy::Dma`](crate::CopyPolicy::Dma) makes them, too, as does a copy from or to memory without a host view.
    /// With drivers older than CUDA 12 this does nothing, see [`Region::write_with`](crate::Region::write_with).
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` when no context is current, [`Error::WrongDevice`](crate::Error::WrongDevice),
    /// [`Error::Forked`](crate::Error::Forked), and other errors of the driver.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// gpu.prepare_copies()?;
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn prepare_copies(&self) -> Result<()> {
        fork::check()?;
        self.gpu().copy_engines().prepare(self.allocation_context()?)
    }

    /// The lengths from which the copy engine, not the CPU, copies this GPU's memory, once
    /// [`prepare_copies`](Self::prepare_copies) has made it.
    #[must_use]
    pub fn copy_thresholds(&self) -> CopyThresholds {
        self.gpu().copy_engines().thresholds()
    }

    /// Sets the lengths from which the copy engine, not the CPU, copies this GPU's memory, for all handles of the
    /// process. [`CopyThresholds`] says which memory they apply to.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// // The CPU makes every copy.
    /// gpu.set_copy_thresholds(vkgdr::CopyThresholds { read: usize::MAX, write: usize::MAX });
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn set_copy_thresholds(&self, thresholds: CopyThresholds) {
        self.gpu().copy_engines().set_thresholds(thresholds);
    }

    /// Measures the lengths from which the copy engine copies mapped memory faster than the CPU, and sets
    /// [`copy_thresholds`](Self::copy_thresholds) to them, for all handles of this GPU.
    ///
    /// Takes less than 200 ms on an idle GPU. Only the first call measures; later calls set and return the same
    /// thresholds. Each call does what [`prepare_copies`](Self::prepare_copies) does. Measuring needs 4 MiB of mapped
    /// memory, in the handle's primary context if it retains that, otherwise in the current context, which must belong to
    /// the handle's device. Other work of the GPU, the CPU or the bus makes the thresholds less accurate; copies remain
    /// correct. Where the CPU caches mapped memory the thresholds do not apply.
    ///
    /// # Errors
    ///
    /// The errors of [`Memory::allocate`](crate::Memory::allocate) and
    /// [`Region::write_with`](crate::Region::write_with); the thresholds remain unchanged.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// println!("{:?} instead of {:?}", gpu.calibrate()?, vkgdr::CopyThresholds::default());
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn calibrate(&self) -> Result<CopyThresholds> {
        self.prepare_copies()?;
        self.gpu().copy_engines().measured(|| measure(self))
    }

    /// The number of copies by the CPU and by the copy engine so far. In a forked child, the CPU's counts are 0.
    #[must_use]
    pub fn copy_stats(&self) -> CopyStats {
        let counters = self.gpu().copy_engines().counters();
        let (cpu, engine) = (counters.cpu(), counters.engine());
        CopyStats {
            cpu_reads: cpu.reads,
            cpu_read_bytes: cpu.read_bytes,
            cpu_writes: cpu.writes,
            cpu_written_bytes: cpu.written_bytes,
            dma_reads: engine.reads,
            dma_read_bytes: engine.read_bytes,
            dma_writes: engine.writes,
            dma_written_bytes: engine.written_bytes,
            routine: CopyRoutine::chosen(),
        }
    }
}

fn measure(gpu: &Vkgdr) -> Result<CopyThresholds> {
    let context = gpu.allocation_context()?;
    let block = Block::in_context(gpu, LONGEST, MemoryKind::Mapped, context)?;
    let (view, engines) = (View::whole(block.allocation()), gpu.gpu().copy_engines());
    let mut bytes = vec![0_u8; LONGEST];
    // SAFETY: the block has `LONGEST` bytes; if a copy fails, the block's drop waits for the context, and so for the
    // copy.
    let write = |bytes: &[u8]| unsafe { engines.write(context, view.device_ptr(), bytes) }.map_err(Into::into);
    // SAFETY: as above.
    let read = |bytes: &mut [u8]| unsafe { engines.read(context, view.device_ptr(), bytes) }.map_err(Into::into);
    // Not measured: the first copies set up the engine and fault pages in.
    view.write(0, &bytes)?;
    write(&bytes)?;
    let began = Instant::now();
    let mut now = || began.elapsed();
    let reads = compare(&READS, &mut now, &mut |len, by_engine| {
        let bytes = &mut bytes[..len];
        if by_engine { read(bytes) } else { view.read(0, bytes) }
    })?;
    let writes = compare(&WRITES, &mut now, &mut |len, by_engine| {
        let bytes = &bytes[..len];
        if by_engine { write(bytes) } else { view.write(0, bytes) }
    })?;
    if let Err(error) = block.release(&Binding::immediate()) {
        report!(Warn, "releasing memory: {error}");
    }
    let CopyThresholds { read, write } = engines.thresholds();
    Ok(CopyThresholds { read: crossing(&reads).unwrap_or(read), write: crossing(&writes).unwrap_or(write) })
}
