//! Runs a copy, at once or in a stream's order, and treats pageable memory as CUDA does.
//!
//! A synchronous copy runs on the legacy default stream, and the caller waits, except where both sides are
//! device memory: CUDA does not wait then, and neither does this, unless the program asked for it by
//! `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`. One from pageable to device memory waits for earlier work alone, with
//! `SIMCUDA_ASYNC=1` or `SIMCUDA_LATE=1`: CUDA takes the bytes before it returns, and may write them later ("API
//! synchronization behavior" of the driver API). An asynchronous copy from pageable memory takes
//! the bytes before it returns, and one to pageable memory returns when it is done.

use std::sync::Arc;

use super::plan::{End, Rows, Shape, Side};
use crate::code::{Code, ILLEGAL_ADDRESS, INVALID_VALUE, Outcome};
use crate::graph::{Difference, Kind, Operation, Work, capture};
use crate::memory::bytes;
use crate::memory::table::Queued;
use crate::queue::{Marker, Placement, Stream};
use crate::settings::settings;
use crate::stream::table as streams;

/// On the legacy default stream, as the synchronous functions do.
pub(super) fn synchronous(target: Side, source: Side, shape: Shape) -> Outcome {
    let stream = streams::usable(streams::DEFAULT)?;
    if shape.is_empty() {
        return Ok(());
    }
    let (target, source) = (target.check(shape)?, source.check(shape)?);
    if source.is_pageable() && target.may_be_late() && settings().never_inline() {
        stream.synchronize()?;
        return queue_staged(target, &source, shape, &stream).map(drop);
    }
    let copy = Copy::new(target, source, shape);
    let marker = stream.submit(Placement::Anywhere, move || copy.run())?;
    if target.may_be_late() && source.may_be_late() {
        return Ok(());
    }
    marker.wait();
    stream.health.check()
}

/// On the given stream, as the functions named `Async` do.
pub(super) fn asynchronous(target: Side, source: Side, shape: Shape, stream: usize) -> Outcome {
    let stream = streams::capturable(stream)?;
    if shape.is_empty() {
        return Ok(());
    }
    let (target, source) = (target.check(shape)?, source.check(shape)?);
    let transfer = Transfer { target, source, shape };
    if capture::add(&stream, || Operation::new(transfer))? {
        return Ok(());
    }
    let marker = if source.is_pageable() && !target.is_pageable() {
        queue_staged(target, &source, shape, &stream)?
    } else {
        transfer.queue(&stream)?
    };
    if target.is_pageable() {
        marker.wait();
        stream.health.check()?;
    }
    Ok(())
}

/// A copy whose ranges were checked.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    target: End,
    source: End,
    shape: Shape,
}

impl Transfer {
    pub(super) fn new(target: Side, source: Side, shape: Shape) -> Result<Transfer, Code> {
        if shape.is_empty() {
            return Err(INVALID_VALUE);
        }
        Ok(Transfer { target: target.check(shape)?, source: source.check(shape)?, shape })
    }

    /// Queues the copy.
    fn queue(&self, stream: &Arc<Stream>) -> Result<Marker, Code> {
        let copy = Copy::new(self.target, self.source, self.shape);
        stream.submit(Placement::Anywhere, move || copy.run())
    }
}

impl Work for Transfer {
    fn kind(&self) -> Kind {
        Kind::Copy
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        self.queue(stream).map(drop)
    }

    fn difference(&self, new: &Operation) -> Option<Difference> {
        let new = new.get::<Transfer>()?;
        let same = self.target.is_like(&new.target) && self.source.is_like(&new.source);
        (!same).then_some(Difference::Parameters)
    }

    /// `cuGraphExecMemcpyNodeSetParams` is for one dimension.
    fn is_settable(&self) -> bool {
        self.shape.height == 1 && self.shape.depth == 1
    }
}

/// Queues a copy of the bytes that the source has now.
fn queue_staged(target: End, source: &End, shape: Shape, stream: &Arc<Stream>) -> Result<Marker, Code> {
    let staged = stage(source, shape);
    let rows = Rows::packed(staged.as_ptr().expose_provenance(), shape);
    let copy = Copy::new(target, End { rows, span: None }, shape);
    stream.submit(Placement::Anywhere, move || {
        let outcome = copy.run();
        drop(staged);
        outcome
    })
}

// The source's rows, without the gaps between them.
fn stage(source: &End, shape: Shape) -> Vec<u8> {
    let mut staged = vec![0; shape.width * shape.height * shape.depth];
    let rows = Rows::packed(staged.as_mut_ptr().expose_provenance(), shape);
    copy_rows(&rows, &source.rows, shape);
    staged
}

// A copy that is queued.
struct Copy {
    target: Rows,
    source: Rows,
    shape: Shape,
    spans: Vec<Queued>,
}

impl Copy {
    fn new(target: End, source: End, shape: Shape) -> Copy {
        let spans = [target.span, source.span].into_iter().flatten().map(Queued::new).collect();
        Copy { target: target.rows, source: source.rows, shape, spans }
    }

    fn run(&self) -> Outcome {
        let pinned: Option<Vec<_>> = self.spans.iter().map(Queued::pin).collect();
        let _pinned = pinned.ok_or(ILLEGAL_ADDRESS)?;
        copy_rows(&self.target, &self.source, self.shape);
        Ok(())
    }
}

fn copy_rows(target: &Rows, source: &Rows, shape: Shape) {
    for slice in 0..shape.depth {
        for row in 0..shape.height {
            bytes::copy(target.row(row, slice), source.row(row, slice), shape.width);
        }
    }
}
