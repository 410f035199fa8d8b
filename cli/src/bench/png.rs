//! A figure as PNG: lines by tiny-skia, text in the fixed fonts of embedded-graphics, which need no font of the system.

use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::{FONT_8X13, FONT_10X20};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::text::{Alignment, Text};
use embedded_graphics::{Drawable, Pixel};
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Paint, PathBuilder, Pixmap, PremultipliedColorU8, Stroke, Transform,
};

use super::figure::{Anchor, Figure, HEIGHT, Shape, WIDTH};
use crate::Result;

/// The pixels, as embedded-graphics draws on them.
struct Page(Pixmap);

impl OriginDimensions for Page {
    fn size(&self) -> Size {
        Size::new(self.0.width(), self.0.height())
    }
}

impl DrawTarget for Page {
    type Color = Rgb888;
    type Error = std::convert::Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> std::result::Result<(), Self::Error> {
        let (width, height) = (self.0.width(), self.0.height());
        for Pixel(Point { x, y }, colour) in pixels {
            let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { continue };
            let opaque = PremultipliedColorU8::from_rgba(colour.r(), colour.g(), colour.b(), 255);
            let at = usize::try_from(u64::from(y) * u64::from(width) + u64::from(x)).ok();
            let slot = at.filter(|_| x < width && y < height).and_then(|at| self.0.pixels_mut().get_mut(at));
            if let (Some(slot), Some(opaque)) = (slot, opaque) {
                *slot = opaque;
            }
        }
        Ok(())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "places on the page, which is small")]
pub(super) fn of(figure: &Figure) -> Result<Vec<u8>> {
    let pixmap = Pixmap::new(WIDTH as u32, HEIGHT as u32).ok_or("the picture has no pixels")?;
    let mut page = Page(pixmap);
    page.0.fill(Color::WHITE);
    for shape in figure.shapes() {
        match shape {
            Shape::Line { places, colour, width } => page.line(&places, colour, width as f32),
            Shape::Dot { place: (x, y), colour } => {
                if let Some(path) = PathBuilder::from_circle(x as f32, y as f32, 3.5) {
                    page.0.fill_path(&path, &paint(colour), FillRule::Winding, Transform::identity(), None);
                }
            }
            Shape::Text { place: (x, y), text, colour, anchor, large } => {
                let [r, g, b] = parts(colour);
                let style = MonoTextStyle::new(if large { &FONT_10X20 } else { &FONT_8X13 }, Rgb888::new(r, g, b));
                let alignment = match anchor {
                    Anchor::Start => Alignment::Left,
                    Anchor::Middle => Alignment::Center,
                    Anchor::End => Alignment::Right,
                };
                Text::with_alignment(&text, Point::new(x as i32, y as i32), style, alignment).draw(&mut page)?;
            }
        }
    }
    Ok(page.0.encode_png()?)
}

impl Page {
    #[expect(clippy::cast_possible_truncation, reason = "places on the page, which is small")]
    fn line(&mut self, places: &[(f64, f64)], colour: &str, width: f32) {
        let mut path = PathBuilder::new();
        for (index, (x, y)) in places.iter().enumerate() {
            if index == 0 {
                path.move_to(*x as f32, *y as f32);
            } else {
                path.line_to(*x as f32, *y as f32);
            }
        }
        let stroke = Stroke { width, line_cap: LineCap::Round, line_join: LineJoin::Round, ..Stroke::default() };
        // A curve of one point has no line.
        if let Some(path) = path.finish() {
            self.0.stroke_path(&path, &paint(colour), &stroke, Transform::identity(), None);
        }
    }
}

fn paint(colour: &str) -> Paint<'static> {
    let [r, g, b] = parts(colour);
    let mut paint = Paint::default();
    paint.set_color_rgba8(r, g, b, 255);
    paint
}

/// Red, green and blue of `#rrggbb`.
fn parts(colour: &str) -> [u8; 3] {
    let digits = colour.trim_start_matches('#');
    [0, 2, 4].map(|at| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or(0))
}
