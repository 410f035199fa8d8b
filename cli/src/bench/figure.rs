//! The plot of a report: its curves and scales, and its shapes on a page of points.

use std::fs::{self, File};
use std::path::Path;

use super::axis::Axis;
use super::report::Report;
use crate::text::{rate, size, time};
use crate::{Failure, Result};

/// The page, and the plot on it: left, top, right, bottom.
pub(super) const WIDTH: f64 = 960.0;
pub(super) const HEIGHT: f64 = 600.0;
const PLOT: [f64; 4] = [90.0, 80.0, 930.0, 480.0];

/// Okabe and Ito's colour-blind safe palette, as in benches/plots.
const COLOURS: [&str; 7] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// A curve: its name, and its points by size.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

pub(super) struct Figure {
    pub(super) title: String,
    machine: String,
    pub(super) simulated: bool,
    rates: bool,
    pub(super) curves: Vec<Curve>,
}

/// A place on the page, in points from the left and from the top.
pub(super) type Place = (f64, f64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// What is drawn, in this order.
pub(super) enum Shape {
    Line {
        places: Vec<Place>,
        colour: &'static str,
        width: f64,
    },
    Dot {
        place: Place,
        colour: &'static str,
    },
    /// The place is that of the base line.
    Text {
        place: Place,
        text: String,
        colour: &'static str,
        anchor: Anchor,
        large: bool,
    },
}

impl Figure {
    pub(super) fn of(report: &Report) -> Self {
        let rates = report.plots_rates();
        let mut curves: Vec<Curve> = Vec::new();
        for point in &report.points {
            let Some(bytes) = point.bytes else { continue };
            let value = if rates { point.rate } else { Some(point.times.percentile(0.5)) };
            let (name, Some(value)) = (point.series(), value) else { continue };
            let at = (bytes as f64, value);
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push(at),
                None => curves.push(Curve { name, points: vec![at] }),
            }
        }
        let threads = report.points.first().map_or(1, |point| point.threads);
        let threads = if threads > 1 { format!(", {threads} threads") } else { String::new() };
        let title = format!("{}{threads}", report.title());
        Self { title, machine: report.machine(), simulated: report.simulated, rates, curves }
    }

    fn values(&self, of: impl Fn(&(f64, f64)) -> f64) -> Vec<f64> {
        self.curves.iter().flat_map(|curve| &curve.points).map(of).collect()
    }

    /// The scale of sizes, with at most `most` marks.
    pub(super) fn sizes(&self, most: usize) -> Axis {
        Axis::of_sizes(self.values(|point| point.0).into_iter(), most)
    }

    pub(super) fn heights(&self) -> Axis {
        Axis::of_decades(self.values(|point| point.1).into_iter())
    }

    /// The text of a mark on the scale of sizes.
    pub(super) fn size_text(mark: f64) -> String {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a power of two below 2^64")]
        let bytes = mark as u64;
        size(bytes).replace(" bytes", " B")
    }

    /// The text of a mark on the other scale: a round number.
    pub(super) fn height_text(&self, mark: f64) -> String {
        let text = if self.rates { rate(mark) } else { time(mark) };
        let Some((number, unit)) = text.split_once(' ') else { return text };
        let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
        format!("{number} {unit}")
    }

    /// The figure on a page.
    pub(super) fn shapes(&self) -> Vec<Shape> {
        let [left, top, right, bottom] = PLOT;
        let (sizes, heights) = (self.sizes(9), self.heights());
        let x = |value: f64| left + sizes.place(value) * (right - left);
        let y = |value: f64| bottom - heights.place(value) * (bottom - top);
        let text = |place: Place, text: String, anchor: Anchor| Shape::Text {
            place,
            text,
            colour: "#222222",
            anchor,
            large: false,
        };
        let mut shapes = vec![Shape::Text {
            place: (left, 32.0),
            text: self.title.clone(),
            colour: "#000000",
            anchor: Anchor::Start,
            large: true,
        }];
        shapes.push(text((left, 56.0), shortened(&self.machine, 92), Anchor::Start));
        for mark in &sizes.marks {
            shapes.push(Shape::Line {
                places: vec![(x(*mark), top), (x(*mark), bottom)],
                colour: "#dddddd",
                width: 1.0,
            });
            shapes.push(text((x(*mark), bottom + 22.0), Self::size_text(*mark), Anchor::Middle));
        }
        for mark in &heights.marks {
            shapes.push(Shape::Line {
                places: vec![(left, y(*mark)), (right, y(*mark))],
                colour: "#dddddd",
                width: 1.0,
            });
            shapes.push(text((left - 8.0, y(*mark) + 5.0), self.height_text(*mark), Anchor::End));
        }
        let frame = vec![(left, top), (left, bottom), (right, bottom)];
        shapes.push(Shape::Line { places: frame, colour: "#222222", width: 1.5 });
        if self.simulated {
            let place = (f64::midpoint(left, right), f64::midpoint(top, bottom));
            let note = "SIMULATED: says nothing about a GPU".to_owned();
            shapes.push(Shape::Text { place, text: note, colour: "#e8a0a0", anchor: Anchor::Middle, large: true });
        }
        for (curve, colour) in self.curves.iter().zip(COLOURS.iter().cycle()) {
            let places: Vec<_> = curve.points.iter().map(|(size, value)| (x(*size), y(*value))).collect();
            shapes.extend(places.iter().map(|place| Shape::Dot { place: *place, colour }));
            shapes.push(Shape::Line { places, colour, width: 2.0 });
        }
        // Three names a row.
        for (index, (curve, colour)) in self.curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let place = (left + 280.0 * (index % 3) as f64, bottom + 62.0 + 26.0 * (index / 3) as f64);
            shapes.push(Shape::Line {
                places: vec![(place.0, place.1 - 5.0), (place.0 + 28.0, place.1 - 5.0)],
                colour,
                width: 2.0,
            });
            shapes.push(Shape::Dot { place: (place.0 + 14.0, place.1 - 5.0), colour });
            shapes.push(text((place.0 + 38.0, place.1), curve.name.clone(), Anchor::Start));
        }
        shapes
    }
}

fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}

/// Fails unless the file can be written, before minutes are spent on measuring. Leaves it unchanged.
pub(super) fn check_writable(file: &Path) -> Result {
    let existed = file.exists();
    File::options().append(true).create(true).open(file).map_err(|error| unwritable(file, &error))?;
    if !existed {
        // What was created: if the name is a link to a file that did not exist, the file, not the link.
        fs::remove_file(file.canonicalize()?)?;
    }
    Ok(())
}

pub(super) fn save(file: &Path, content: &[u8]) -> Result {
    fs::write(file, content).map_err(|error| unwritable(file, &error))
}

fn unwritable(file: &Path, error: &std::io::Error) -> Box<dyn std::error::Error> {
    Failure::boxed(format!("{} cannot be written: {error}", file.display()), "name another file after --plot")
}
