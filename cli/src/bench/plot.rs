//! The plot of a report, as an SVG file.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use plotters::prelude::*;
use vkgdr::in_units;

use super::report::Report;
use crate::text::{rate, time};
use crate::{Failure, Result};

/// Okabe and Ito's colour-blind safe palette.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    BLACK,
];

/// Of the picture, in pixels: small, so that its text can be read on a telephone.
const SIZE: (u32, u32) = (600, 450);

/// Draws rates, or median times, by size.
pub(super) fn draw(report: &Report) -> Result<String> {
    let rates = report.bench == "bw";
    let mut curves: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for point in &report.points {
        let value = if rates { point.rate } else { Some(point.times.percentile(0.5)) };
        let (name, Some(bytes), Some(value)) = (point.series(), point.bytes, value) else { continue };
        match curves.iter_mut().find(|curve| curve.0 == name) {
            Some(curve) => curve.1.push((bytes as f64, value)),
            None => curves.push((name, vec![(bytes as f64, value)])),
        }
    }
    let points = || curves.iter().flat_map(|curve| &curve.1);
    let (x, mut y) = (around(points().map(|point| point.0)), around(points().map(|point| point.1)));
    // Room for the names, at the right end below all curves.
    y.start /= 4.0;
    let mut text = String::new();
    {
        let page = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        page.fill(&WHITE)?;
        let threads = report.points.first().map_or(1, |point| point.threads);
        let threads = if threads > 1 { format!(", {threads} threads") } else { String::new() };
        let page = page.titled(&format!("{}{threads}", report.about), ("sans-serif", 17))?;
        let machine =
            if report.simulated { "SIMULATED, says nothing about a GPU".to_owned() } else { report.machine() };
        let mut chart = ChartBuilder::on(&page)
            .margin(12)
            .x_label_area_size(45)
            .y_label_area_size(70)
            .build_cartesian_2d(x.log_scale().base(2.0), y.log_scale())?;
        let of_size = |bytes: &f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
            in_units(*bytes as u64).replace(" bytes", " B")
        };
        let of_value = |value: &f64| if rates { rate(*value) } else { time(*value) };
        let mut mesh = chart.configure_mesh();
        mesh.x_label_formatter(&of_size)
            .y_label_formatter(&of_value)
            .x_desc(machine)
            .axis_desc_style(("sans-serif", 14));
        mesh.label_style(("sans-serif", 14)).draw()?;
        for ((name, points), colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2)).point_size(3);
            let sign = move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2));
            // Spaces, since fonts may be wider than expected.
            chart.draw_series(line)?.label(format!("{name}  ")).legend(sign);
        }
        let mut names = chart.configure_series_labels();
        names.position(SeriesLabelPosition::LowerRight).label_font(("sans-serif", 14)).background_style(WHITE.mix(0.8));
        names.border_style(BLACK).margin(8).draw()?;
        page.present()?;
    }
    Ok(text)
}

/// A range of positive numbers, with some room on both sides.
fn around(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let values = values.filter(|value| value.is_finite() && *value > 0.0);
    let (least, most) = values.fold((f64::INFINITY, 0.0), |(a, b), value| (f64::min(a, value), f64::max(b, value)));
    if least <= most { least / 1.25..most * 1.25 } else { 1.0..2.0 }
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

pub(super) fn save(file: &Path, content: &str) -> Result {
    fs::write(file, content).map_err(|error| unwritable(file, &error))
}

fn unwritable(file: &Path, error: &std::io::Error) -> Box<dyn Error> {
    Failure::boxed(format!("{} cannot be written: {error}", file.display()), "name another file after --plot")
}
