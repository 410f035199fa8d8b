//! A figure as SVG.

use std::fmt::Write as _;

use super::figure::{Anchor, Figure, HEIGHT, Place, Shape, WIDTH};

pub(super) fn of(figure: &Figure) -> String {
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         role=\"img\" font-family=\"sans-serif\">\n<title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escaped(&figure.title)
    );
    for shape in figure.shapes() {
        // Writing to a string does not fail.
        let _ = match shape {
            Shape::Line { places, colour, width } => {
                let points: Vec<_> = places.into_iter().map(point).collect();
                let points = points.join(" ");
                writeln!(
                    text,
                    "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
                )
            }
            Shape::Dot { place: (x, y), colour } => {
                writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>")
            }
            Shape::Text { place: (x, y), text: words, colour, anchor, large } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                let size = if large { 20 } else { 15 };
                let words = escaped(&words);
                writeln!(
                    text,
                    "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\" text-anchor=\"{anchor}\">{words}</text>"
                )
            }
        };
    }
    text + "</svg>\n"
}

fn point((x, y): Place) -> String {
    format!("{x:.1},{y:.1}")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
