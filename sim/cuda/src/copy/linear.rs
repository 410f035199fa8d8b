//! Copies of one stretch of bytes.

use super::plan::{Memory, Rows, Shape, Side};
use super::run::{asynchronous, synchronous};
use crate::boundary::exports;
use crate::code::Outcome;
use crate::context::table as contexts;

fn host(address: usize) -> Side {
    Side { memory: Memory::Host, rows: Rows::line(address) }
}

fn device(address: usize) -> Side {
    Side { memory: Memory::Device, rows: Rows::line(address) }
}

fn unified(address: usize) -> Side {
    Side { memory: Memory::Unified, rows: Rows::line(address) }
}

fn to_device(target: usize, source: usize, len: usize) -> Outcome {
    synchronous(device(target), host(source), Shape::line(len))
}

fn to_host(target: usize, source: usize, len: usize) -> Outcome {
    synchronous(host(target), device(source), Shape::line(len))
}

fn on_device(target: usize, source: usize, len: usize) -> Outcome {
    synchronous(device(target), device(source), Shape::line(len))
}

fn any(target: usize, source: usize, len: usize) -> Outcome {
    synchronous(unified(target), unified(source), Shape::line(len))
}

fn to_device_async(target: usize, source: usize, len: usize, stream: usize) -> Outcome {
    asynchronous(device(target), host(source), Shape::line(len), stream)
}

fn to_host_async(target: usize, source: usize, len: usize, stream: usize) -> Outcome {
    asynchronous(host(target), device(source), Shape::line(len), stream)
}

fn on_device_async(target: usize, source: usize, len: usize, stream: usize) -> Outcome {
    asynchronous(device(target), device(source), Shape::line(len), stream)
}

fn any_async(target: usize, source: usize, len: usize, stream: usize) -> Outcome {
    asynchronous(unified(target), unified(source), Shape::line(len), stream)
}

// All devices are in the host's memory, so both contexts see the same.
fn peer(target: usize, target_context: usize, source: usize, source_context: usize, len: usize) -> Outcome {
    contexts::get(target_context)?;
    contexts::get(source_context)?;
    on_device(target, source, len)
}

fn peer_async(
    target: usize,
    target_context: usize,
    source: usize,
    source_context: usize,
    len: usize,
    stream: usize,
) -> Outcome {
    contexts::get(target_context)?;
    contexts::get(source_context)?;
    on_device_async(target, source, len, stream)
}

exports! {
    cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds => to_device(target: usize, source: usize, len: usize);
    cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds => to_host(target: usize, source: usize, len: usize);
    cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds => on_device(target: usize, source: usize, len: usize);
    cuMemcpy, cuMemcpy_ptds => any(target: usize, source: usize, len: usize);
    cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz =>
        to_device_async(target: usize, source: usize, len: usize, stream: usize);
    cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz =>
        to_host_async(target: usize, source: usize, len: usize, stream: usize);
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz =>
        on_device_async(target: usize, source: usize, len: usize, stream: usize);
    cuMemcpyAsync, cuMemcpyAsync_ptsz => any_async(target: usize, source: usize, len: usize, stream: usize);
    cuMemcpyPeer, cuMemcpyPeer_ptds =>
        peer(target: usize, target_context: usize, source: usize, source_context: usize, len: usize);
    cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz =>
        peer_async(target: usize, target_context: usize, source: usize, source_context: usize, len: usize,
                   stream: usize);
}
