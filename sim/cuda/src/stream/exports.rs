//! Create, destroy, synchronize and query streams, and read their properties.

use cudarc::driver::sys::CUevent_wait_flags;

use super::{event, table};

use crate::boundary::exports;
use crate::code::{INVALID_VALUE, NOT_READY, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::graph::capture;
use crate::pool;
use crate::queue::{GREATEST_PRIORITY, LEAST_PRIORITY, NON_BLOCKING};

const KNOWN_FLAGS: u32 = NON_BLOCKING;
const WAIT_FLAGS: u32 = CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL as u32;

fn create(out: Out<usize>, flags: u32) -> Outcome {
    create_with_priority(out, flags, LEAST_PRIORITY)
}

fn create_with_priority(out: Out<usize>, flags: u32, priority: i32) -> Outcome {
    out.required()?;
    let context = context::usable()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    let stream = context.streams.create(flags, priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY));
    out.set(table::STREAMS.insert(stream))
}

/// Pending work is still finished.
fn destroy(stream: usize) -> Outcome {
    let stream = table::remove(stream)?;
    capture::destroyed(&stream);
    stream.close();
    stream.health.check()
}

/// Needs no current context, except for the default streams.
fn synchronize(stream: usize) -> Outcome {
    let outcome = table::waitable(stream)?.synchronize();
    pool::release_unused();
    outcome
}

/// Needs no current context, except for the default streams.
fn query(stream: usize) -> Outcome {
    let stream = table::waitable(stream)?;
    stream.health.check()?;
    if stream.done() { Ok(()) } else { Err(NOT_READY) }
}

fn wait_event(stream: usize, event: usize, flags: u32) -> Outcome {
    let stream = table::capturable(stream)?;
    if flags & !WAIT_FLAGS != 0 {
        return Err(INVALID_VALUE);
    }
    event::wait(event, &stream, flags & WAIT_FLAGS != 0)
}

fn get_context(stream: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    out.set(table::get(stream)?.owner.context)
}

fn get_contexts(stream: usize, out: Out<usize>, green: Out<usize>) -> Outcome {
    get_context(stream, out)?;
    green.set_if_wanted(0);
    Ok(())
}

fn get_device(stream: usize, out: Out<i32>) -> Outcome {
    out.required()?;
    out.set(table::get(stream)?.owner.device)
}

fn get_flags(stream: usize, out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(table::get(stream)?.flags)
}

fn get_priority(stream: usize, out: Out<i32>) -> Outcome {
    out.required()?;
    out.set(table::get(stream)?.priority)
}

fn get_id(stream: usize, out: Out<u64>) -> Outcome {
    out.required()?;
    out.set(table::get(stream)?.id)
}

exports! {
    cuStreamCreate => create(out: Out<usize>, flags: u32);
    cuStreamCreateWithPriority => create_with_priority(out: Out<usize>, flags: u32, priority: i32);
    cuStreamDestroy_v2, cuStreamDestroy => destroy(stream: usize), Release;
    cuStreamSynchronize, cuStreamSynchronize_ptsz => synchronize(stream: usize);
    cuStreamQuery, cuStreamQuery_ptsz => query(stream: usize);
    cuStreamWaitEvent, cuStreamWaitEvent_ptsz => wait_event(stream: usize, event: usize, flags: u32);
    cuStreamGetCtx, cuStreamGetCtx_ptsz => get_context(stream: usize, out: Out<usize>);
    cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz => get_contexts(stream: usize, out: Out<usize>, green: Out<usize>);
    cuStreamGetDevice, cuStreamGetDevice_ptsz => get_device(stream: usize, out: Out<i32>);
    cuStreamGetFlags, cuStreamGetFlags_ptsz => get_flags(stream: usize, out: Out<u32>);
    cuStreamGetPriority, cuStreamGetPriority_ptsz => get_priority(stream: usize, out: Out<i32>);
    cuStreamGetId, cuStreamGetId_ptsz => get_id(stream: usize, out: Out<u64>);
}
