//! Logarithmic scales, with marks at round numbers.

/// A logarithmic scale from one number to a larger one.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    from: f64,
    to: f64,
    /// The numbers to mark, within the scale.
    pub(super) marks: Vec<f64>,
}

impl Axis {
    /// Over powers of two, at most `most` of which are marked.
    pub(super) fn of_sizes(values: impl Iterator<Item = f64>, most: usize) -> Self {
        let (least, largest) = ends(values);
        let (first, last) = (least.log2().floor(), largest.log2().ceil().max(least.log2().floor() + 1.0));
        let powers = steps(first, last, 1.0).len();
        let step = [1.0, 2.0, 4.0, 8.0].into_iter().find(|step| powers as f64 / step <= most as f64).unwrap_or(16.0);
        Self { from: first.exp2(), to: last.exp2(), marks: steps(first, last, step).map(f64::exp2).collect() }
    }

    /// Over decades; over less than two of them, also their 2 and 5 are marked.
    pub(super) fn of_decades(values: impl Iterator<Item = f64>) -> Self {
        let (least, largest) = ends(values);
        let round = |value: f64, up: bool| {
            let decade = 10_f64.powf(value.log10().floor());
            // A value that is round already, but for rounding, stays.
            let factors = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
            if up {
                factors.into_iter().find(|mark| *mark >= value * 0.999_999).unwrap_or(value)
            } else {
                factors.into_iter().rev().find(|mark| *mark <= value * 1.000_001).unwrap_or(value)
            }
        };
        let (from, mut to) = (round(least, false), round(largest, true));
        if to <= from * 1.000_001 {
            to = round(from * 1.5, true);
        }
        let factors: &[f64] = if to / from <= 100.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let decades = steps(from.log10().floor(), to.log10().ceil(), 1.0).map(|power| 10_f64.powf(power));
        let marks = decades.flat_map(|decade| factors.iter().map(move |factor| factor * decade));
        let marks = marks.filter(|mark| (from * 0.999..=to * 1.001).contains(mark)).collect();
        Self { from, to, marks }
    }

    /// The place of a number: 0 at the beginning, 1 at the end.
    pub(super) fn place(&self, value: f64) -> f64 {
        (value / self.from).ln() / (self.to / self.from).ln()
    }
}

/// The least and the largest of the positive numbers.
fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|value| value.is_finite() && *value > 0.0);
    let (least, largest) =
        positive.fold((f64::INFINITY, 0.0), |(a, b), value| (f64::min(a, value), f64::max(b, value)));
    if least <= largest { (least, largest) } else { (1.0, 1.0) }
}

fn steps(first: f64, last: f64, step: f64) -> std::vec::IntoIter<f64> {
    let all: Vec<_> = std::iter::successors(Some(first), |at| Some(at + step)).take_while(|at| *at <= last).collect();
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(marks: &[f64]) -> Vec<String> {
        marks.iter().map(|mark| format!("{mark:.0}")).collect()
    }

    #[test]
    fn sizes_are_marked_at_powers_of_two() {
        let axis = Axis::of_sizes([1024.0, 65536.0].into_iter(), 4);
        assert_eq!(rounded(&axis.marks), ["1024", "4096", "16384", "65536"]);
        assert!((axis.place(1024.0), axis.place(65536.0)) == (0.0, 1.0));
        let one = Axis::of_sizes([64.0].into_iter(), 4);
        assert_eq!(rounded(&one.marks), ["64", "128"]);
    }

    #[test]
    fn values_are_marked_at_decades_or_more_closely() {
        assert_eq!(rounded(&Axis::of_decades([3.0, 9000.0].into_iter()).marks), ["10", "100", "1000", "10000"]);
        assert_eq!(rounded(&Axis::of_decades([3.0, 40.0].into_iter()).marks), ["2", "5", "10", "20", "50"]);
        assert_eq!(rounded(&Axis::of_decades([10.0, 10.0].into_iter()).marks), ["10", "20"]);
        assert_eq!(rounded(&Axis::of_decades(std::iter::empty()).marks), ["1", "2"]);
        assert_eq!(rounded(&Axis::of_decades([f64::NAN, 5.0].into_iter()).marks), ["5", "10"]);
    }
}
