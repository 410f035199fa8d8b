//! Several ways to do the same, measured alternately, so that changes of the machine's speed cancel in ratios.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The shortest duration of a turn in seconds, a thousand times that of reading the clock.
const TURN: f64 = 50e-6;
/// The fewest rounds, whatever their time: enough for a median.
const FEWEST: usize = 5;

/// A way to do an operation, which it does so many times.
pub(crate) type Way<'a> = Box<dyn FnMut(u32) + 'a>;

/// The way that calls this once for an operation.
pub(crate) fn way<'a, T>(mut operation: impl FnMut() -> T + 'a) -> Way<'a> {
    Box::new(move |batch| {
        for _ in 0..batch {
            black_box(operation());
        }
    })
}

/// Nanoseconds per operation of two ways, one number for each round.
pub(crate) struct Pairs {
    pub(crate) ours: Vec<f64>,
    pub(crate) peer: Vec<f64>,
}

/// Nanoseconds per operation of each way, by round. A way that has used its share of the time is skipped.
pub(crate) struct Times(Vec<Vec<Option<f64>>>);

/// Whether `VKGDR_BENCH_QUICK=1` requests a tenth of the measurements, to check that everything runs.
pub(crate) fn is_quick() -> bool {
    std::env::var_os("VKGDR_BENCH_QUICK").is_some_and(|value| value == "1")
}

/// Measures each way for its share of the time, after two operations to warm up, unless these take it. The first way alternates
/// by round.
pub(crate) fn measure(limit: Duration, ways: &mut [Way<'_>]) -> Times {
    let (rounds, limit) = if is_quick() { (20, limit / 10) } else { (400, limit) };
    let share = limit.as_secs_f64() / ways.len() as f64;
    let count = ways.len();
    let mut time = |way: usize, batch: u32| {
        let start = Instant::now();
        ways[way](batch);
        start.elapsed().as_secs_f64()
    };
    let (mut times, mut spent) = (vec![Vec::new(); count], vec![0.0; count]);
    let (mut batch, mut each) = (vec![1_u32; count], vec![0.0; count]);
    for way in 0..count {
        let first = time(way, 1);
        each[way] = if 2.0 * first > share { first } else { time(way, 1).min(first) };
        while batch[way] < 1 << 14 && f64::from(batch[way]) * each[way] < TURN {
            batch[way] *= 2;
            each[way] = time(way, batch[way]) / f64::from(batch[way]);
        }
    }
    for round in 0..rounds {
        let mut any = false;
        for turn in 0..count {
            let way = (turn + round) % count;
            let sits_out = round >= FEWEST && spent[way] + f64::from(batch[way]) * each[way] > share;
            // One that takes seconds has one round.
            let sits_out = sits_out || (round > 0 && spent[way] > 4.0 * share);
            times[way].push((!sits_out).then(|| {
                let elapsed = time(way, batch[way]);
                spent[way] += elapsed;
                elapsed * 1e9 / f64::from(batch[way])
            }));
            any |= !sits_out;
        }
        if !any {
            break;
        }
    }
    Times(times)
}

/// Measures two ways.
pub(crate) fn pairs<A, B>(limit: Duration, ours: impl FnMut() -> A, peer: impl FnMut() -> B) -> Pairs {
    measure(limit, &mut [way(ours), way(peer)]).pairs(0, 1)
}

impl Times {
    /// All measurements of a way.
    pub(crate) fn of(&self, way: usize) -> Vec<f64> {
        self.0[way].iter().copied().flatten().collect()
    }

    /// The way with the smallest median.
    pub(crate) fn best(&self, ways: impl IntoIterator<Item = usize>) -> Option<usize> {
        ways.into_iter().min_by(|a, b| median(self.of(*a)).total_cmp(&median(self.of(*b))))
    }

    /// The rounds with both ways, at least one.
    pub(crate) fn pairs(&self, ours: usize, peer: usize) -> Pairs {
        let both = self.0[ours].iter().zip(&self.0[peer]).filter_map(|(ours, peer)| Some(((*ours)?, (*peer)?)));
        let (ours, peer) = both.unzip();
        Pairs { ours, peer }
    }
}

impl Pairs {
    /// The median over the rounds of a comparison, such as ours ÷ the peer's.
    pub(crate) fn compared(&self, by: impl Fn(f64, f64) -> f64) -> f64 {
        median(self.ours.iter().zip(&self.peer).map(|(ours, peer)| by(*ours, *peer)))
    }
}

pub(crate) fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len => f64::midpoint(values[(len - 1) / 2], values[len / 2]),
    }
}
