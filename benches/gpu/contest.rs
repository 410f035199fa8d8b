//! Several ways to do the same, measured alternately.

use std::time::{Duration, Instant};

use crate::pairs::{self, Pairs, median};

/// The minimum duration of a turn in seconds, many times that of reading the clock.
const TURN: f64 = 20e-6;

/// Nanoseconds per operation of each way, by round. A way that has used its share of the time is skipped.
pub(crate) struct Times(Vec<Vec<Option<f64>>>);

/// Measures `count` ways for about `limit` in total; `act(way)` does one operation. Each way has one warm-up operation,
/// unless that takes its share of the time. The first way alternates by round.
pub(crate) fn measure(count: usize, limit: Duration, mut act: impl FnMut(usize)) -> Times {
    let rounds = if pairs::is_quick() { 20 } else { 400 };
    let share = limit.as_secs_f64() / count as f64;
    let mut time = |way: usize, batch: u32| {
        let start = Instant::now();
        (0..batch).for_each(|_| act(way));
        start.elapsed().as_secs_f64()
    };
    let mut times = vec![Vec::new(); count];
    let mut spent = vec![0.0; count];
    let mut batch = vec![1_u32; count];
    let mut each = vec![0.0; count];
    for way in 0..count {
        let first = time(way, 1);
        if 2.0 * first > share {
            times[way].push(Some(first * 1e9));
            spent[way] = share;
        } else {
            each[way] = time(way, 1).min(first);
            while batch[way] < 1024 && f64::from(batch[way]) * each[way] < TURN {
                batch[way] *= 2;
            }
        }
    }
    for round in 0..rounds {
        let mut any = false;
        for turn in 0..count {
            let way = (turn + round) % count;
            if times[way].len() > round {
                continue; // the first operation, above
            }
            let sits_out = spent[way] + f64::from(batch[way]) * each[way] > share && round > 0;
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
