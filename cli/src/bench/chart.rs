//! A figure on a terminal, in ASCII.

use super::figure::Figure;
use crate::screen::wrap;

/// The lines of the plot, and the columns of the marks left of it.
const LINES: usize = 16;
const LEFT: usize = 11;
/// One for each curve.
const SIGNS: [char; 7] = ['o', 'x', '+', '*', '#', '@', '%'];

pub(super) fn draw(figure: &Figure, width: usize) -> String {
    let columns = width.saturating_sub(LEFT + 6).max(10);
    let (sizes, heights) = (figure.sizes(columns / 8), figure.heights());
    let line_of = |value: f64| LINES - 1 - scaled(heights.place(value), LINES - 1);
    let mut grid = vec![vec![' '; columns]; LINES];
    for (curve, sign) in figure.curves.iter().zip(SIGNS.iter().cycle()) {
        for (size, value) in &curve.points {
            grid[line_of(*value)][scaled(sizes.place(*size), columns - 1)] = *sign;
        }
    }
    let mut labels = vec![String::new(); LINES];
    for mark in &heights.marks {
        labels[line_of(*mark)] = figure.height_text(*mark);
    }
    let mut lines = vec![String::new()];
    lines.extend(wrap(&figure.title, width, "", "  "));
    for (label, cells) in labels.iter().zip(grid) {
        let edge = if label.is_empty() { '|' } else { '+' };
        let line = format!("{label:>width$} {edge}{}", cells.into_iter().collect::<String>(), width = LEFT - 2);
        lines.push(line.trim_end().to_owned());
    }
    let (mut axis, mut names) = (vec!['-'; columns], vec![' '; columns + 6]);
    for mark in &sizes.marks {
        let at = scaled(sizes.place(*mark), columns - 1);
        axis[at] = '+';
        for (slot, character) in names.iter_mut().skip(at).zip(Figure::size_text(*mark).chars()) {
            *slot = character;
        }
    }
    let indent = " ".repeat(LEFT - 1);
    lines.push(format!("{indent}+{}", axis.into_iter().collect::<String>()));
    lines.push(format!("{indent} {}", names.into_iter().collect::<String>()).trim_end().to_owned());
    for (curve, sign) in figure.curves.iter().zip(SIGNS.iter().cycle()) {
        lines.push(format!("{indent} {sign} {}", curve.name));
    }
    lines.join("\n")
}

/// A part of a whole number of places.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and `most`")]
fn scaled(part: f64, most: usize) -> usize {
    (part.clamp(0.0, 1.0) * most as f64).round() as usize
}
