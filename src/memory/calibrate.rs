//! `Vkgdr::calibrate`: times copies of an allocation for [`calibration`](crate::copy_engine::calibration).
#![expect(unsafe_code, reason = "has the device copy bytes that the memory keeps")]

use std::time::Instant;

use super::binding::Binding;
use super::block::Block;
use crate::access::view::View;
use crate::copy_engine::calibration::{LONGEST, READS, WRITES, compare, crossing};
use crate::driver::process;
use crate::{CopyThresholds, MemoryKind, Result, Vkgdr};

impl Vkgdr {
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
        log::warn!("releasing memory: {error}");
    }
    let CopyThresholds { read, write } = engines.thresholds();
    Ok(CopyThresholds { read: crossing(&reads).unwrap_or(read), write: crossing(&writes).unwrap_or(write) })
}
