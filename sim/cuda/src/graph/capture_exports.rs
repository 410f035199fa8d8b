//! Start and end captures, and ask about them.

use std::cell::RefCell;

use super::edges::plain;
use super::{capture, state};
use crate::boundary::exports;
use crate::code::{INVALID_VALUE, Outcome};
use crate::ffi::{In, Out};
use crate::queue::Stream;
use crate::stream::table as streams;

// CUstreamCaptureStatus.
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

fn begin(stream: usize, mode: u32) -> Outcome {
    begin_in(stream, 0, In::NULL, In::NULL, 0, mode)
}

fn begin_global(stream: usize) -> Outcome {
    begin(stream, capture::GLOBAL)
}

fn begin_to_graph(stream: usize, graph: usize, after: In<usize>, data: In<u64>, count: usize, mode: u32) -> Outcome {
    state::get(graph)?;
    begin_in(stream, graph, after, data, count, mode)
}

fn begin_in(stream: usize, graph: usize, after: In<usize>, data: In<u64>, count: usize, mode: u32) -> Outcome {
    plain(data, count)?;
    let stream = streams::capturable(stream)?;
    if mode > capture::RELAXED {
        return Err(INVALID_VALUE);
    }
    let graph = if graph == 0 { None } else { Some(state::get(graph)?) };
    let after: Vec<usize> = (0..count).map(|index| after.element(index)).collect::<Result<_, _>>()?;
    if let Some(graph) = &graph
        && !after.iter().all(|node| graph.operation(*node).is_ok())
    {
        return Err(INVALID_VALUE);
    }
    capture::begin(&stream, mode, graph, after)
}

/// A capture that went wrong ends, too, and gives no graph.
fn end(stream: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    out.set(0)?;
    let capture = capture::end(&*streams::get(stream)?)?;
    out.set(capture.graph.handle)
}

fn status(stream: &Stream) -> Result<u32, i32> {
    // A question: the capture stays valid.
    capture::check_implicit(stream)?;
    Ok(match capture::of(stream) {
        None => NONE,
        Some(capture) if capture.is_invalid() => INVALIDATED,
        Some(_) => ACTIVE,
    })
}

fn is_capturing(stream: usize, out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(status(&*streams::get(stream)?)?)
}

thread_local! {
    // What the last question was answered with, which the caller reads.
    static TIPS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn info(
    stream: usize,
    out: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    count: Out<usize>,
) -> Outcome {
    out.required()?;
    let stream = streams::get(stream)?;
    let status = status(&stream)?;
    if let (ACTIVE, Some(capture)) = (status, capture::of(&stream)) {
        // Valid until the thread asks again.
        let tips = capture.tips(&stream)?;
        let len = tips.len();
        let address = TIPS.with_borrow_mut(|kept| {
            *kept = tips;
            kept.as_ptr().expose_provenance()
        });
        id.set_if_wanted(capture.id);
        graph.set_if_wanted(capture.graph.handle);
        nodes.set_if_wanted(address);
        count.set_if_wanted(len);
    }
    out.set(status)
}

fn info_v1(stream: usize, out: Out<u32>, id: Out<u64>) -> Outcome {
    info(stream, out, id, Out::NULL, Out::NULL, Out::NULL)
}

/// All edges are plain, which the data of edges says by being absent.
fn info_v3(
    stream: usize,
    out: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    nodes: Out<usize>,
    data: Out<usize>,
    count: Out<usize>,
) -> Outcome {
    data.set_if_wanted(0);
    info(stream, out, id, graph, nodes, count)
}

/// Flags: 0 adds nodes, 1 replaces them.
fn update(stream: usize, nodes: In<usize>, count: usize, flags: u32) -> Outcome {
    let stream = streams::get(stream)?;
    let capture = capture::of(&stream).ok_or(crate::code::ILLEGAL_STATE)?;
    let new: Vec<usize> = (0..count).map(|index| nodes.element(index)).collect::<Result<_, _>>()?;
    if flags > 1 || !new.iter().all(|node| capture.graph.operation(*node).is_ok()) {
        return Err(INVALID_VALUE);
    }
    capture.change_tips(&stream, |tips| {
        if flags == 1 {
            tips.clear();
        }
        capture::add_missing(tips, new);
    })
}

fn update_v2(stream: usize, nodes: In<usize>, data: In<u64>, count: usize, flags: u32) -> Outcome {
    plain(data, count)?;
    update(stream, nodes, count, flags)
}

/// Swaps the calling thread's mode.
fn exchange_mode(mode: Out<u32>) -> Outcome {
    let new = mode.as_input().get()?;
    if new > capture::RELAXED {
        return Err(INVALID_VALUE);
    }
    mode.set(capture::exchange_mode(new))
}

exports! {
    cuThreadExchangeStreamCaptureMode => exchange_mode(mode: Out<u32>);
    cuStreamBeginCapture, cuStreamBeginCapture_ptsz => begin_global(stream: usize);
    cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz => begin(stream: usize, mode: u32);
    cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz =>
        begin_to_graph(stream: usize, graph: usize, after: In<usize>, data: In<u64>, count: usize, mode: u32);
    cuStreamEndCapture, cuStreamEndCapture_ptsz => end(stream: usize, out: Out<usize>);
    cuStreamIsCapturing, cuStreamIsCapturing_ptsz => is_capturing(stream: usize, out: Out<u32>);
    cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz => info_v1(stream: usize, out: Out<u32>, id: Out<u64>);
    cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz =>
        info(stream: usize, out: Out<u32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, count: Out<usize>);
    cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz =>
        info_v3(stream: usize, out: Out<u32>, id: Out<u64>, graph: Out<usize>, nodes: Out<usize>, data: Out<usize>,
                count: Out<usize>);
    cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz =>
        update(stream: usize, nodes: In<usize>, count: usize, flags: u32);
    cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz =>
        update_v2(stream: usize, nodes: In<usize>, data: In<u64>, count: usize, flags: u32);
}
