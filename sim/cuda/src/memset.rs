//! Fills with a pattern of one, two or four bytes, in one stretch or in rows.
//!
//! The functions without `Async` in their name use the legacy default stream. They return before the work is
//! done where the target is device memory, as CUDA's do, and wait where the host can see it, or where the program asked for it
//! by `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.

use std::sync::Arc;

use crate::boundary::exports;
use crate::code::{Code, ILLEGAL_ADDRESS, INVALID_VALUE, Outcome};
use crate::copy::plan::{End, Memory, Rows, Shape, Side};
use crate::graph::{Difference, Kind, Operation, Work, capture};
use crate::layout::FillParameters;
use crate::memory::bytes::{self, Pattern};
use crate::memory::table::Queued;
use crate::queue::{Marker, Placement, Stream};
use crate::stream::table as streams;

struct Fill {
    start: usize,
    pitch: usize,
    pattern: Pattern,
    // In elements.
    width: usize,
    height: usize,
}

impl Fill {
    fn line(start: usize, pattern: Pattern, width: usize) -> Fill {
        Fill { start, pitch: 0, pattern, width, height: 1 }
    }

    fn check(&self) -> Result<(End, Shape), i32> {
        let size = self.pattern.size();
        let width = self.width.checked_mul(size).ok_or(INVALID_VALUE)?;
        let rows_overlap = self.height > 1 && self.pitch < width;
        if !self.start.is_multiple_of(size) || !self.pitch.is_multiple_of(size) || rows_overlap {
            return Err(INVALID_VALUE);
        }
        let shape = Shape { width, height: self.height, depth: 1 };
        let rows = Rows { start: self.start, pitch: self.pitch, slice: 0 };
        Ok((Side { memory: Memory::Device, rows }.check(shape)?, shape))
    }

    fn run(self, stream: usize, wait: bool) -> Outcome {
        let stream = streams::capturable(stream)?;
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        let filling = self.checked()?;
        if capture::add(&stream, || Operation::new(filling))? {
            return Ok(());
        }
        let marker = filling.queue(&stream)?;
        if wait && !filling.target.may_be_late() {
            marker.wait();
            stream.health.check()?;
        }
        Ok(())
    }

    fn checked(self) -> Result<Filling, Code> {
        let (target, shape) = self.check()?;
        Ok(Filling { target, shape, pattern: self.pattern, width: self.width })
    }
}

/// A fill whose range was checked.
#[derive(Clone, Copy)]
pub(crate) struct Filling {
    target: End,
    shape: Shape,
    pattern: Pattern,
    // In elements.
    width: usize,
}

impl Filling {
    /// Reads and checks the parameters of a node.
    pub(crate) fn from_parameters(parameters: &FillParameters) -> Result<Filling, Code> {
        let FillParameters { start, pitch, value, element, width, height } = *parameters;
        let [a, b, ..] = value.to_le_bytes();
        let pattern = match element {
            1 => Pattern::Byte(a),
            2 => Pattern::Half(u16::from_le_bytes([a, b])),
            4 => Pattern::Word(value),
            _ => return Err(INVALID_VALUE),
        };
        if width == 0 || height == 0 {
            return Err(INVALID_VALUE);
        }
        Fill { start, pitch, pattern, width, height }.checked()
    }

    pub(crate) fn parameters(&self) -> FillParameters {
        let value = match self.pattern {
            Pattern::Byte(value) => u32::from(value),
            Pattern::Half(value) => u32::from(value),
            Pattern::Word(value) => value,
        };
        FillParameters {
            start: self.target.rows.start,
            pitch: self.target.rows.pitch,
            value,
            element: match self.pattern {
                Pattern::Byte(_) => 1,
                Pattern::Half(_) => 2,
                Pattern::Word(_) => 4,
            },
            width: self.width,
            height: self.shape.height,
        }
    }

    /// Queues the fill.
    fn queue(&self, stream: &Arc<Stream>) -> Result<Marker, Code> {
        let Filling { target, shape, pattern, width } = *self;
        let span = target.span.map(Queued::new);
        let work = move || {
            let _pinned = span.as_ref().and_then(Queued::pin).ok_or(ILLEGAL_ADDRESS)?;
            (0..shape.height).for_each(|row| bytes::fill(target.rows.row(row, 0), pattern, width));
            Ok(())
        };
        stream.submit(Placement::Anywhere, work)
    }
}

impl Work for Filling {
    fn kind(&self) -> Kind {
        Kind::Fill
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        self.queue(stream).map(drop)
    }

    /// Address and value can change, and in one dimension also the width and the size of the elements.
    fn difference(&self, new: &Operation) -> Option<Difference> {
        let new = new.get::<Filling>()?;
        let rows = |filling: &Filling| (filling.width, filling.pattern.size(), filling.target.rows.pitch);
        let one = self.shape.height == 1;
        let same = self.shape.height == new.shape.height && (one || rows(self) == rows(new));
        (!same || !self.target.is_like(&new.target)).then_some(Difference::Parameters)
    }
}

fn set8(start: usize, value: u8, count: usize) -> Outcome {
    Fill::line(start, Pattern::Byte(value), count).run(streams::DEFAULT, true)
}

fn set16(start: usize, value: u16, count: usize) -> Outcome {
    Fill::line(start, Pattern::Half(value), count).run(streams::DEFAULT, true)
}

fn set32(start: usize, value: u32, count: usize) -> Outcome {
    Fill::line(start, Pattern::Word(value), count).run(streams::DEFAULT, true)
}

fn set8_async(start: usize, value: u8, count: usize, stream: usize) -> Outcome {
    Fill::line(start, Pattern::Byte(value), count).run(stream, false)
}

fn set16_async(start: usize, value: u16, count: usize, stream: usize) -> Outcome {
    Fill::line(start, Pattern::Half(value), count).run(stream, false)
}

fn set32_async(start: usize, value: u32, count: usize, stream: usize) -> Outcome {
    Fill::line(start, Pattern::Word(value), count).run(stream, false)
}

fn rows8(start: usize, pitch: usize, value: u8, width: usize, height: usize) -> Outcome {
    Fill { start, pitch, pattern: Pattern::Byte(value), width, height }.run(streams::DEFAULT, true)
}

fn rows16(start: usize, pitch: usize, value: u16, width: usize, height: usize) -> Outcome {
    Fill { start, pitch, pattern: Pattern::Half(value), width, height }.run(streams::DEFAULT, true)
}

fn rows32(start: usize, pitch: usize, value: u32, width: usize, height: usize) -> Outcome {
    Fill { start, pitch, pattern: Pattern::Word(value), width, height }.run(streams::DEFAULT, true)
}

fn rows8_async(start: usize, pitch: usize, value: u8, width: usize, height: usize, stream: usize) -> Outcome {
    Fill { start, pitch, pattern: Pattern::Byte(value), width, height }.run(stream, false)
}

fn rows16_async(start: usize, pitch: usize, value: u16, width: usize, height: usize, stream: usize) -> Outcome {
    Fill { start, pitch, pattern: Pattern::Half(value), width, height }.run(stream, false)
}

fn rows32_async(start: usize, pitch: usize, value: u32, width: usize, height: usize, stream: usize) -> Outcome {
    Fill { start, pitch, pattern: Pattern::Word(value), width, height }.run(stream, false)
}

exports! {
    cuMemsetD8_v2, cuMemsetD8_v2_ptds => set8(start: usize, value: u8, count: usize);
    cuMemsetD16_v2, cuMemsetD16_v2_ptds => set16(start: usize, value: u16, count: usize);
    cuMemsetD32_v2, cuMemsetD32_v2_ptds => set32(start: usize, value: u32, count: usize);
    cuMemsetD8Async, cuMemsetD8Async_ptsz => set8_async(start: usize, value: u8, count: usize, stream: usize);
    cuMemsetD16Async, cuMemsetD16Async_ptsz => set16_async(start: usize, value: u16, count: usize, stream: usize);
    cuMemsetD32Async, cuMemsetD32Async_ptsz => set32_async(start: usize, value: u32, count: usize, stream: usize);
    cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds =>
        rows8(start: usize, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds =>
        rows16(start: usize, pitch: usize, value: u16, width: usize, height: usize);
    cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds =>
        rows32(start: usize, pitch: usize, value: u32, width: usize, height: usize);
    cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz =>
        rows8_async(start: usize, pitch: usize, value: u8, width: usize, height: usize, stream: usize);
    cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz =>
        rows16_async(start: usize, pitch: usize, value: u16, width: usize, height: usize, stream: usize);
    cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz =>
        rows32_async(start: usize, pitch: usize, value: u32, width: usize, height: usize, stream: usize);
}
