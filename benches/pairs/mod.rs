//! Two sides measured alternately in small batches, so that changes of the machine's speed cancel.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Nanoseconds per operation of each side, one number for each round.
#[derive(Clone, Default)]
pub(crate) struct Pairs {
    pub(crate) ours: Vec<f64>,
    pub(crate) peer: Vec<f64>,
}

/// Whether `VKGDR_BENCH_QUICK=1` requests a tenth of the measurements, to check that everything runs.
pub(crate) fn is_quick() -> bool {
    std::env::var_os("VKGDR_BENCH_QUICK").is_some_and(|value| value == "1")
}

/// The fewest rounds of a measurement, whatever its time limit: enough for a median.
const FEWEST_ROUNDS: usize = 5;

/// The extent of a measurement.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    /// Operations of each side per round.
    pub(crate) batch: u32,
    pub(crate) rounds: usize,
    /// No round starts after this time, except for the first [`FEWEST_ROUNDS`].
    pub(crate) at_most: Duration,
}

impl Effort {
    /// Measures `ours` and `peer`, each one operation per call, after a warm-up of a tenth of the rounds or of the time. The
    /// first side alternates by round.
    pub(crate) fn measure<A, B>(self, ours: impl FnMut() -> A, peer: impl FnMut() -> B) -> Pairs {
        if is_quick() { self.tenth().run(ours, peer) } else { self.run(ours, peer) }
    }

    fn tenth(self) -> Self {
        Self { rounds: (self.rounds / 10).max(10), at_most: self.at_most / 10, ..self }
    }

    fn run<A, B>(self, mut ours: impl FnMut() -> A, mut peer: impl FnMut() -> B) -> Pairs {
        let mut turn = |round: usize| {
            if round.is_multiple_of(2) {
                let first = self.time(&mut ours);
                (first, self.time(&mut peer))
            } else {
                let first = self.time(&mut peer);
                (self.time(&mut ours), first)
            }
        };
        let start = Instant::now();
        for round in 0..self.rounds / 10 {
            turn(round);
            if start.elapsed() > self.at_most / 10 {
                break;
            }
        }
        let mut pairs = Pairs::default();
        for round in 0..self.rounds {
            if round >= FEWEST_ROUNDS && start.elapsed() > self.at_most {
                break;
            }
            let (ours, peer) = turn(round);
            pairs.ours.push(ours);
            pairs.peer.push(peer);
        }
        pairs
    }

    fn time<T>(self, operation: &mut impl FnMut() -> T) -> f64 {
        let start = Instant::now();
        for _ in 0..self.batch {
            black_box(operation());
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(self.batch)
    }
}

impl Pairs {
    /// The median of ours ÷ the peer's over the rounds.
    pub(crate) fn ratio(&self) -> f64 {
        median(self.rounds().map(|(ours, peer)| ours / peer))
    }

    /// The median of ours − the peer's over the rounds, in nanoseconds.
    pub(crate) fn difference(&self) -> f64 {
        median(self.rounds().map(|(ours, peer)| ours - peer))
    }

    fn rounds(&self) -> impl Iterator<Item = (f64, f64)> {
        self.ours.iter().copied().zip(self.peer.iter().copied())
    }
}

pub(crate) fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}
