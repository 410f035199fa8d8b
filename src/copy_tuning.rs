//! The methods of [`Vkgdr`] that prepare and calibrate copies, and set their thresholds.
#![expect(unsafe_code, reason = "the device copies from and to addresses that the memory keeps valid")]

use std::time::Instant;

use crate::access::view::View;
use crate::chunk::Block;
use crate::copy_engine::calibration::{LONGEST, READS, WRITES, compare, crossing};
use crate::driver::fork;
use crate::report::report;
use crate::stream::binding::Binding;
use crate::{CopyThresholds, MemoryKind, Result, Vkgdr};

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
