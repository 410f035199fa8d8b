//! Times of an operation.

use std::time::{Duration, Instant};

/// The time for one point, in which as many samples are taken as fit, and their limits.
const BUDGET: Duration = Duration::from_millis(200);
const MOST: usize = 10_000;
const LEAST: usize = 5;
/// The shortest sample, 40 times as long as reading the clock. Shorter operations are repeated.
const SAMPLE: Duration = Duration::from_micros(1);

/// Nanoseconds per operation, from the shortest; not empty.
#[derive(Debug, Clone)]
pub(super) struct Times {
    sorted: Vec<f64>,
    /// Operations of a sample, whose time is their mean.
    pub(super) batch: u32,
}

impl Times {
    pub(super) fn new(mut times: Vec<f64>, batch: u32) -> Self {
        times.sort_by(f64::total_cmp);
        Self { sorted: times, batch }
    }

    /// The times of all threads, which had the same batch.
    pub(super) fn joined(all: Vec<Self>) -> Self {
        let batch = all.first().map_or(1, |times| times.batch);
        Self::new(all.into_iter().flat_map(|times| times.sorted).collect(), batch)
    }

    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The number of operations of all samples.
    pub(super) fn operations(&self) -> f64 {
        self.sorted.len() as f64 * f64::from(self.batch)
    }

    /// The time that this part of the samples did not exceed: 0 is the shortest, 0.5 the median (nearest rank).
    pub(super) fn percentile(&self, part: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank within the samples")]
        let rank = (part * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    }
}

/// The number of operations that a sample needs. The first operation faults pages in.
pub(super) fn batch<E>(mut operation: impl FnMut() -> Result<(), E>) -> Result<u32, E> {
    operation()?;
    let mut batch = 1;
    loop {
        // The shortest of three, since the first ones are slow.
        let mut shortest = Duration::MAX;
        for _ in 0..3 {
            let start = Instant::now();
            for _ in 0..batch {
                operation()?;
            }
            shortest = shortest.min(start.elapsed());
        }
        if shortest >= SAMPLE || batch == 1024 {
            return Ok(batch);
        }
        batch *= 2;
    }
}

/// Times an operation.
pub(super) fn measure<E>(batch: u32, mut operation: impl FnMut() -> Result<(), E>) -> Result<Times, E> {
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < LEAST || (begin.elapsed() < BUDGET && times.len() < MOST) {
        let start = Instant::now();
        for _ in 0..batch {
            operation()?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(batch));
    }
    Ok(Times::new(times, batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let times = Times::new((1..=200).rev().map(f64::from).collect(), 1);
        let found = [0.0, 0.5, 0.99, 1.0].map(|part| times.percentile(part).to_string());
        assert_eq!(found, ["1", "100", "198", "200"]);
        assert_eq!(Times::new(vec![7.0], 1).percentile(0.99).to_string(), "7");
    }

    #[test]
    fn a_slow_operation_is_measured_all_the_same_and_a_fast_one_in_batches() {
        let slow = measure(1, || {
            std::thread::sleep(Duration::from_millis(60));
            Ok::<_, ()>(())
        });
        assert_eq!(slow.map(|times| times.len()), Ok(LEAST));
        assert!(batch(|| Ok::<_, ()>(())).is_ok_and(|batch| batch > 1));
        assert_eq!(measure(1, || Err::<(), _>("stop")).err(), Some("stop"));
    }
}
