//! Create and destroy contexts, make them current, ask about them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cudarc::driver::sys::CUctx_flags;

use super::{Context, current, primary, stack, table};

use crate::boundary::exports;
use crate::code::{Code, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::device;
use crate::ffi::{In, Out};
use crate::handle;
use crate::layout::ContextParameters;

const SCHEDULES: [u32; 4] = [
    CUctx_flags::CU_CTX_SCHED_AUTO as u32,
    CUctx_flags::CU_CTX_SCHED_SPIN as u32,
    CUctx_flags::CU_CTX_SCHED_YIELD as u32,
    CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC as u32,
];
const SCHEDULE_MASK: u32 = CUctx_flags::CU_CTX_SCHED_MASK as u32;
const KNOWN_FLAGS: u32 = CUctx_flags::CU_CTX_FLAGS_MASK as u32;
// What cuCtxGetApiVersion says on every driver since CUDA 3.2.
const API_VERSION: u32 = 3020;

/// Refuses unknown flags and impossible schedules.
pub(super) fn check_flags(flags: u32) -> Outcome {
    let schedule = SCHEDULES.contains(&(flags & SCHEDULE_MASK));
    if schedule && flags & !KNOWN_FLAGS == 0 { Ok(()) } else { Err(INVALID_VALUE) }
}

impl Context {
    pub(super) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }
}

fn create(out: Out<usize>, flags: u32, device: i32) -> Outcome {
    out.required()?;
    device::check(device)?;
    check_flags(flags)?;
    let context = Context::new(handle::next(), device, flags);
    let handle = context.owner.context;
    table::insert(context);
    stack::push(handle);
    out.set(handle)
}

fn create_v3(out: Out<usize>, affinities: usize, count: i32, flags: u32, device: i32) -> Outcome {
    if affinities != 0 || count != 0 {
        return Err(NOT_SUPPORTED);
    }
    create(out, flags, device)
}

fn create_v4(out: Out<usize>, parameters: In<ContextParameters>, flags: u32, device: i32) -> Outcome {
    if !parameters.is_null() {
        let ContextParameters { affinities, affinity_count, graphics } = parameters.get()?;
        if affinities != 0 || affinity_count != 0 || graphics != 0 {
            return Err(NOT_SUPPORTED);
        }
    }
    create(out, flags, device)
}

fn destroy(context: usize) -> Outcome {
    if primary::is(context) {
        return Err(INVALID_CONTEXT);
    }
    table::destroy(context)?;
    // Unlike the release of a primary context (CUDA driver API, cuDevicePrimaryCtxRelease).
    stack::pop_if_top(context);
    Ok(())
}

fn attach(out: Out<usize>, flags: u32) -> Outcome {
    out.required()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let context = current()?;
    context.uses.fetch_add(1, Ordering::Relaxed);
    out.set(context.owner.context)
}

fn detach(context: usize) -> Outcome {
    if primary::is(context) {
        return Err(INVALID_CONTEXT);
    }
    let last = table::get(context)?.uses.fetch_sub(1, Ordering::Relaxed) == 1;
    if last { destroy(context) } else { Ok(()) }
}

fn push(context: usize) -> Outcome {
    table::get(context)?;
    stack::push(context);
    Ok(())
}

fn pop(out: Out<usize>) -> Outcome {
    let handle = stack::pop().ok_or(INVALID_CONTEXT)?;
    out.set_if_wanted(handle);
    Ok(())
}

fn set_current(context: usize) -> Outcome {
    if context != 0 {
        table::get(context)?;
    }
    stack::pop();
    if context != 0 {
        stack::push(context);
    }
    Ok(())
}

fn get_current(out: Out<usize>) -> Outcome {
    out.set(stack::top().unwrap_or_default())
}

fn get_device(out: Out<i32>) -> Outcome {
    out.required()?;
    out.set(current()?.owner.device)
}

// Null means the current context.
fn given_or_current(context: usize) -> Result<Arc<Context>, Code> {
    if context == 0 { current() } else { table::get(context) }
}

fn get_device_of(out: Out<i32>, context: usize) -> Outcome {
    out.required()?;
    out.set(given_or_current(context)?.owner.device)
}

fn get_id(context: usize, out: Out<u64>) -> Outcome {
    out.required()?;
    out.set(given_or_current(context)?.owner.id)
}

fn get_api_version(context: usize, out: Out<u32>) -> Outcome {
    out.required()?;
    given_or_current(context)?;
    out.set(API_VERSION)
}

fn get_flags(out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(current()?.flags.load(Ordering::Relaxed))
}

fn set_flags(flags: u32) -> Outcome {
    check_flags(flags)?;
    current()?.set_flags(flags);
    Ok(())
}

fn synchronize() -> Outcome {
    current()?.synchronize()
}

fn synchronize_given(context: usize) -> Outcome {
    given_or_current(context)?.synchronize()
}

exports! {
    cuCtxCreate_v2, cuCtxCreate => create(out: Out<usize>, flags: u32, device: i32);
    cuCtxCreate_v3 => create_v3(out: Out<usize>, affinities: usize, count: i32, flags: u32, device: i32);
    cuCtxCreate_v4 => create_v4(out: Out<usize>, parameters: In<ContextParameters>, flags: u32, device: i32);
    cuCtxDestroy_v2, cuCtxDestroy => destroy(context: usize), Release;
    cuCtxAttach => attach(out: Out<usize>, flags: u32);
    cuCtxDetach => detach(context: usize), Release;
    cuCtxPushCurrent_v2, cuCtxPushCurrent => push(context: usize);
    cuCtxPopCurrent_v2, cuCtxPopCurrent => pop(out: Out<usize>), Release;
    cuCtxSetCurrent => set_current(context: usize);
    cuCtxGetCurrent => get_current(out: Out<usize>);
    cuCtxGetDevice => get_device(out: Out<i32>);
    cuCtxGetDevice_v2 => get_device_of(out: Out<i32>, context: usize);
    cuCtxGetId => get_id(context: usize, out: Out<u64>);
    cuCtxGetApiVersion => get_api_version(context: usize, out: Out<u32>);
    cuCtxGetFlags => get_flags(out: Out<u32>);
    cuCtxSetFlags => set_flags(flags: u32);
    cuCtxSynchronize => synchronize();
    cuCtxSynchronize_v2 => synchronize_given(context: usize);
}
