#![forbid(unsafe_code)]
//! The extent of a copy or fill, rows in slices on each side, and the checks of their ranges.

use crate::code::{Code, INVALID_VALUE, Outcome};
use crate::memory::table::{self, Span};

/// Rows of `width` bytes, `height` to a slice, `depth` slices.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

impl Shape {
    pub(crate) fn line(len: usize) -> Shape {
        Shape { width: len, height: 1, depth: 1 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}

/// The kind of memory that the caller declares an address to be. The values are those of `CUmemorytype`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Host,
    Device,
    /// To be determined from the address.
    Unified,
}

/// One side of a copy, not yet checked.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) memory: Memory,
    pub(crate) rows: Rows,
}

/// Where the rows of one side lie.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) start: usize,
    /// Bytes from one row to the next.
    pub(crate) pitch: usize,
    /// Bytes from one slice to the next.
    pub(crate) slice: usize,
}

impl Rows {
    pub(crate) fn line(start: usize) -> Rows {
        Rows { start, pitch: 0, slice: 0 }
    }

    /// Rows without gaps.
    pub(crate) fn packed(start: usize, shape: Shape) -> Rows {
        Rows { start, pitch: shape.width, slice: shape.width.saturating_mul(shape.height) }
    }

    pub(crate) fn row(&self, row: usize, slice: usize) -> usize {
        self.start + slice * self.slice + row * self.pitch
    }

    /// The length in bytes from the first row's start to the last row's end.
    pub(crate) fn extent(&self, shape: Shape) -> Result<usize, Code> {
        let slices = (shape.depth - 1).checked_mul(self.slice);
        let rows = (shape.height - 1).checked_mul(self.pitch);
        let before = slices.zip(rows).and_then(|(slices, rows)| slices.checked_add(rows));
        let extent = before.and_then(|before| before.checked_add(shape.width));
        extent.filter(|extent| self.start.checked_add(*extent).is_some()).ok_or(INVALID_VALUE)
    }
}

/// One checked side.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) rows: Rows,
    /// `None` for pageable host memory, which the driver does not know.
    pub(crate) span: Option<Span>,
}

impl End {
    /// Whether a function that is synchronous by name may return before its work on this side is done: on device memory,
    /// unless the program set `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` for it.
    pub(crate) fn may_be_late(&self) -> bool {
        self.span.is_some_and(|span| span.kind.is_device() && !span.synchronous)
    }

    /// Whether memory of the same type, host's or device's or managed, and of the same context.
    pub(crate) fn is_like(&self, other: &End) -> bool {
        let kind = |end: &End| end.span.map_or((false, false), |span| (span.kind.is_device(), span.kind.is_managed()));
        let owners = self.span.zip(other.span);
        kind(self) == kind(other)
            && owners.is_none_or(|(own, other)| own.owner == other.owner && own.owner.device == other.owner.device)
    }

    pub(crate) fn is_pageable(&self) -> bool {
        self.span.is_none()
    }
}

impl Side {
    /// Checks the range against the live allocations.
    pub(crate) fn check(&self, shape: Shape) -> Result<End, Code> {
        let extent = self.rows.extent(shape)?;
        let span = table::span(self.rows.start, extent);
        match self.memory {
            Memory::Device => span.map(Some).ok_or(INVALID_VALUE),
            Memory::Host => host_span(self.rows.start, span),
            Memory::Unified if span.is_some() => Ok(span),
            Memory::Unified => {
                outside_device_memory(self.rows.start)?;
                Ok(None)
            }
        }
        .map(|span| End { rows: self.rows, span })
    }
}

// Refused: a device pointer passed as a host pointer would crash on real hardware and silently work here.
fn host_span(start: usize, span: Option<Span>) -> Result<Option<Span>, Code> {
    match span {
        Some(span) if span.kind.is_device() => Err(INVALID_VALUE),
        Some(span) => Ok(Some(span)),
        None => outside_device_memory(start).map(|()| None),
    }
}

fn outside_device_memory(start: usize) -> Outcome {
    let inside = table::find(start).is_some_and(|found| found.kind.is_device());
    if inside || start == 0 { Err(INVALID_VALUE) } else { Ok(()) }
}
