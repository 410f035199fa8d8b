//! How the copies of a GPU's memory are divided between the CPU and the copy engine: thresholds, statistics, calibration.
#![expect(unsafe_code, reason = "has the device copy bytes that the memory keeps")]

use std::time::Instant;

use crate::access::copy::CopyRoutine;
use crate::access::view::View;
use crate::copy_engine::calibration::{LONGEST, READS, WRITES, compare, crossing};
use crate::driver::process;
use crate::memory::binding::Binding;
use crate::memory::block::Block;
use crate::report::report;
use crate::{CopyThresholds, MemoryKind, Result, Vkgdr};

/// How many copies of a GPU's memory went which way since the process began, on all handles, from
/// [`Vkgdr::copy_stats`].
///
/// Counted are copies by the copy engine, and those by the CPU of memory that it does not cache, each when it is done.
/// Fills count as writes. Copies of cached memory, and those through a [`Writer`](crate::Writer) or a
/// [`MapGuard`](crate::MapGuard), are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStats {
    /// Reads by the CPU.
    pub cpu_reads: u64,
    /// The bytes of these.
    pub cpu_read_bytes: u64,
    /// Writes by the CPU.
    pub cpu_writes: u64,
    /// The bytes of these.
    pub cpu_written_bytes: u64,
    /// Reads by the copy engine.
    pub dma_reads: u64,
    /// The bytes of these.
    pub dma_read_bytes: u64,
    /// Writes by the copy engine.
    pub dma_writes: u64,
    /// The bytes of these.
    pub dma_written_bytes: u64,
    /// The routine by which the CPU copies.
    pub routine: CopyRoutine,
}

impl Vkgdr {
    /// From how many bytes on copies of this GPU's memory are left to its copy engine.
    #[must_use]
    pub fn copy_thresholds(&self) -> CopyThresholds {
        self.gpu().copy_engines().thresholds()
    }

    /// Sets from how many bytes on copies of this GPU's memory are left to its copy engine, on all handles of the
    /// process. [`CopyThresholds`] says which memory that concerns.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// // The CPU is to copy everything.
    /// gpu.set_copy_thresholds(vkgdr::CopyThresholds { read: usize::MAX, write: usize::MAX });
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn set_copy_thresholds(&self, thresholds: CopyThresholds) {
        self.gpu().copy_engines().set_thresholds(thresholds);
    }

    /// Measures from how many bytes on copies of mapped memory are faster by the copy engine than by the CPU, and sets
    /// [`copy_thresholds`](Self::copy_thresholds) so, for all handles of this GPU.
    ///
    /// Takes less than 200 ms on an idle GPU, once: later calls give and set what was measured then. Needs 4 MiB of
    /// mapped memory while it runs, in the handle's primary context if it retains that, else in the current
    /// context, which must be one of the handle's device. Other work of the GPU, the CPU or the bus makes the result worse,
    /// never wrong. Where the CPU caches mapped memory the thresholds are not used.
    ///
    /// # Errors
    ///
    /// As [`Memory::allocate`](crate::Memory::allocate) and [`Region::write_with`](crate::Region::write_with). The
    /// thresholds are as before then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let gpu = vkgdr::Vkgdr::open_primary_context(0, vkgdr::OpenFlags::empty())?;
    /// println!("{:?} instead of {:?}", gpu.calibrate()?, vkgdr::CopyThresholds::default());
    /// # Ok::<(), vkgdr::Error>(())
    /// ```
    pub fn calibrate(&self) -> Result<CopyThresholds> {
        process::check()?;
        self.gpu().copy_engines().measured(|| measure(self))
    }

    /// Which way copies of this GPU's memory went. In a process that was forked off, the CPU's are 0.
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
    let context = match gpu.primary_context() {
        Some(context) => context,
        None => gpu.current_context()?,
    };
    let block = Block::pooled(gpu, LONGEST, MemoryKind::Mapped, context, None)?;
    let (view, engines) = (View::whole(block.allocation()), gpu.gpu().copy_engines());
    let mut bytes = vec![0_u8; LONGEST];
    // SAFETY: the memory has the bytes, and its release waits for the context unless all copies have been waited for.
    let write = |bytes: &[u8]| unsafe { engines.write(context, view.device_ptr(), bytes) }.map_err(Into::into);
    // SAFETY: as above.
    let read = |bytes: &mut [u8]| unsafe { engines.read(context, view.device_ptr(), bytes) }.map_err(Into::into);
    // The first copies set the engine up and fault pages in: not measured.
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
