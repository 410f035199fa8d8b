//! Finds the lengths from which the copy engine is faster than the CPU, by timing both.
//!
//! Calls no driver: callers pass the clock and the copies.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::Result;

/// No measurement begins after this. One takes at most 0.5 ms (the longest read at 0.5 GB/s, the slowest rate known); the
/// work before and after them takes a few ms.
const BUDGET: Duration = Duration::from_millis(150);
/// The minimum of this many repetitions counts.
const ROUNDS: usize = 5;
/// The lengths of measured reads, in bytes. A shorter one takes the CPU less time than a driver call.
pub(crate) const READS: [usize; 9] = doubling(1 << 10);
/// The lengths of measured writes, in bytes.
pub(crate) const WRITES: [usize; 9] = doubling(16 << 10);
/// The longest of both.
pub(crate) const LONGEST: usize = WRITES[WRITES.len() - 1];

const fn doubling(first: usize) -> [usize; 9] {
    let mut sizes = [first; 9];
    let mut index = 1;
    while index < sizes.len() {
        sizes[index] = 2 * sizes[index - 1];
        index += 1;
    }
    sizes
}

/// The minimum times of copies of one length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    len: usize,
    cpu: Duration,
    engine: Duration,
}

/// Times `copy` for each length, alternating between the CPU and, where its second argument is true, the copy engine.
/// Lengths for which the budget leaves no time are left out.
pub(crate) fn compare(
    sizes: &[usize],
    now: &mut dyn FnMut() -> Duration,
    copy: &mut dyn FnMut(usize, bool) -> Result<()>,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::with_capacity(sizes.len());
    for &len in sizes {
        let mut sample = Sample { len, cpu: Duration::MAX, engine: Duration::MAX };
        for _ in 0..ROUNDS {
            for (by_engine, least) in [(false, &mut sample.cpu), (true, &mut sample.engine)] {
                let before = now();
                if before >= BUDGET {
                    break;
                }
                copy(len, by_engine)?;
                *least = (*least).min(now().saturating_sub(before));
            }
        }
        if sample.cpu < Duration::MAX && sample.engine < Duration::MAX {
            samples.push(sample);
        }
    }
    Ok(samples)
}

/// The shortest measured length from which the copy engine is faster at all lengths; `usize::MAX` if it is slower at the
/// longest. `None` if nothing was measured.
pub(crate) fn crossing(samples: &[Sample]) -> Option<usize> {
    let is_slower = |sample: &Sample| sample.engine >= sample.cpu;
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

    /// The result of [`compare`] for copies that take `time`, and the clock at the end.
    fn simulate(time: impl Fn(usize, bool) -> Duration) -> (Vec<Sample>, Duration) {
        let clock = std::cell::Cell::new(Duration::ZERO);
        let mut copy = |len, by_engine| {
            clock.set(clock.get() + time(len, by_engine));
            Ok(())
        };
        let samples = compare(&READS, &mut || clock.get(), &mut copy).unwrap_or_default();
        (samples, clock.get())
    }

    #[test]
    fn the_thresholds_are_where_the_copy_engine_begins_to_win() {
        // 10 µs and 20 GB/s against 0.5 GB/s: 5.1 KB.
        let (samples, _) =
            simulate(|len, by_engine| us(if by_engine { 10 + len as u64 / 20_000 } else { len as u64 / 500 }));
        assert_eq!(samples.len(), READS.len());
        assert_eq!(crossing(&samples), Some(8 << 10));
    }

    #[test]
    fn the_copy_engine_that_always_or_never_wins_is_taken_always_or_never() {
        let always = simulate(|_, by_engine| us(if by_engine { 1 } else { 2 })).0;
        assert_eq!(crossing(&always), Some(READS[0]));
        let never = simulate(|_, _| us(1)).0;
        assert_eq!(crossing(&never), Some(usize::MAX));
        assert_eq!(crossing(&[]), None);
    }

    #[test]
    fn one_length_that_is_slower_again_moves_the_threshold_beyond_it() {
        let sample = |len, cpu, engine| Sample { len, cpu: us(cpu), engine: us(engine) };
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
        assert_eq!((READS[8], WRITES[8], LONGEST), (256 << 10, 4 << 20, 4 << 20));
    }
}
