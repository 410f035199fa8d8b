//! Measures from how many bytes on the copy engine is faster than the CPU.
#![expect(unsafe_code, reason = "has the device copy bytes that the memory keeps")]

use std::time::{Duration, Instant};

use super::binding::Binding;
use super::block::Block;
use crate::access::view::View;
use crate::driver::process;
use crate::{CopyThresholds, MemoryKind, Result, Vkgdr};

/// After so much, no further measurement begins. A measurement takes at most some 0.5 ms, that of the longest read at
/// the slowest rate known (0.5 GB/s), and what is done before and after a few ms.
const BUDGET: Duration = Duration::from_millis(150);
/// The least of so many counts.
const ROUNDS: usize = 5;
/// Bytes that are read. The shortest cannot be worth a call of the driver: that takes longer than the CPU.
const READS: [usize; 9] = doubling(1 << 10);
/// Bytes that are written.
const WRITES: [usize; 9] = doubling(16 << 10);
const MOST: usize = WRITES[WRITES.len() - 1];

const fn doubling(first: usize) -> [usize; 9] {
    let mut sizes = [first; 9];
    let mut index = 1;
    while index < sizes.len() {
        sizes[index] = 2 * sizes[index - 1];
        index += 1;
    }
    sizes
}

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
        self.gpu().dma().measured(|| measure(self))
    }
}

fn measure(gpu: &Vkgdr) -> Result<CopyThresholds> {
    let context = match gpu.primary_context() {
        Some(context) => context,
        None => gpu.current_context()?,
    };
    let block = Block::pooled(gpu, MOST, MemoryKind::Mapped, context, None)?;
    let (view, dma) = (View::whole(block.allocation()), gpu.gpu().dma());
    let mut bytes = vec![0_u8; MOST];
    // SAFETY: the memory has the bytes, and its release waits for the context unless all copies have been waited for.
    let write = |bytes: &[u8]| unsafe { dma.write(context, view.device_ptr(), bytes) }.map_err(Into::into);
    // SAFETY: as above.
    let read = |bytes: &mut [u8]| unsafe { dma.read(context, view.device_ptr(), bytes) }.map_err(Into::into);
    // What is only done once is not measured.
    view.write(0, &bytes)?;
    write(&bytes)?;
    let began = Instant::now();
    let mut now = || began.elapsed();
    let reads = compare(&READS, &mut now, &mut |len, by_dma| {
        let bytes = &mut bytes[..len];
        if by_dma { read(bytes) } else { view.read(0, bytes) }
    })?;
    let writes = compare(&WRITES, &mut now, &mut |len, by_dma| {
        let bytes = &bytes[..len];
        if by_dma { write(bytes) } else { view.write(0, bytes) }
    })?;
    if let Err(error) = block.release(&Binding::immediate()) {
        log::warn!("releasing memory: {error}");
    }
    let CopyThresholds { read, write } = dma.thresholds();
    Ok(CopyThresholds { read: crossing(&reads).unwrap_or(read), write: crossing(&writes).unwrap_or(write) })
}

/// What copies of one length take, at least.
#[derive(Debug, Clone, Copy)]
struct Sample {
    len: usize,
    cpu: Duration,
    dma: Duration,
}

/// Measures both ways of copying, which `copy` does: by the CPU, or by the copy engine if its second argument says so.
/// What the budget leaves no time for is left out.
fn compare(
    sizes: &[usize],
    now: &mut dyn FnMut() -> Duration,
    copy: &mut dyn FnMut(usize, bool) -> Result<()>,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::with_capacity(sizes.len());
    for &len in sizes {
        let mut sample = Sample { len, cpu: Duration::MAX, dma: Duration::MAX };
        for _ in 0..ROUNDS {
            for (by_dma, least) in [(false, &mut sample.cpu), (true, &mut sample.dma)] {
                let before = now();
                if before >= BUDGET {
                    break;
                }
                copy(len, by_dma)?;
                *least = (*least).min(now().saturating_sub(before));
            }
        }
        if sample.cpu < Duration::MAX && sample.dma < Duration::MAX {
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// The length from which on the copy engine is faster at every length that was measured: none (`usize::MAX`) if it is not
/// at the longest. Nothing when nothing was measured.
fn crossing(samples: &[Sample]) -> Option<usize> {
    let is_slower = |sample: &Sample| sample.dma >= sample.cpu;
    samples.last()?;
    let first = samples.iter().rposition(is_slower).map_or(0, |last| last + 1);
    Some(samples.get(first).map_or(usize::MAX, |sample| sample.len))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(number: u64) -> Duration {
        Duration::from_micros(number)
    }

    /// What [`compare`] finds when a copy of a length takes so long, and when the clock stood at the end.
    fn simulate(time: impl Fn(usize, bool) -> Duration) -> (Vec<Sample>, Duration) {
        let clock = std::cell::Cell::new(Duration::ZERO);
        let mut copy = |len, by_dma| {
            clock.set(clock.get() + time(len, by_dma));
            Ok(())
        };
        let samples = compare(&READS, &mut || clock.get(), &mut copy).unwrap_or_default();
        (samples, clock.get())
    }

    #[test]
    fn the_thresholds_are_where_the_copy_engine_begins_to_win() {
        // 10 µs and 20 GB/s against 0.5 GB/s: 5.1 KB.
        let (samples, _) = simulate(|len, by_dma| us(if by_dma { 10 + len as u64 / 20_000 } else { len as u64 / 500 }));
        assert_eq!(samples.len(), READS.len());
        assert_eq!(crossing(&samples), Some(8 << 10));
    }

    #[test]
    fn the_copy_engine_that_always_or_never_wins_is_taken_always_or_never() {
        let always = simulate(|_, by_dma| us(if by_dma { 1 } else { 2 })).0;
        assert_eq!(crossing(&always), Some(READS[0]));
        let never = simulate(|_, _| us(1)).0;
        assert_eq!(crossing(&never), Some(usize::MAX));
        assert_eq!(crossing(&[]), None);
    }

    #[test]
    fn one_length_that_is_slower_again_moves_the_threshold_beyond_it() {
        let sample = |len, cpu, dma| Sample { len, cpu: us(cpu), dma: us(dma) };
        let samples = [sample(1, 5, 9), sample(2, 5, 4), sample(4, 5, 6), sample(8, 9, 6), sample(16, 20, 7)];
        assert_eq!(crossing(&samples), Some(8));
    }

    #[test]
    fn nothing_is_begun_when_the_budget_is_spent() {
        let (samples, end) = simulate(|_, _| us(8_000));
        assert!(end < BUDGET + us(8_001), "{end:?}");
        assert!(!samples.is_empty() && samples.len() < READS.len(), "{samples:?}");
        let (samples, end) = simulate(|_, _| BUDGET);
        assert!(samples.is_empty() && end == BUDGET, "{samples:?}, {end:?}");
    }

    #[test]
    fn the_longest_fit_the_memory() {
        assert_eq!((READS[8], WRITES[8], MOST), (256 << 10, 4 << 20, 4 << 20));
    }
}
