//! Create and destroy contexts.

use super::destroy::destroy as destroy_context;
use super::primary;
use crate::boundary::exports;
use crate::code::{INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::context::{self, Context, check_flags, stack, stale, table};
use crate::device;
use crate::ffi::{In, Out};
use crate::layout::ContextParameters;

/// The number of live contexts of `cuCtxCreate`.
pub(crate) fn count() -> usize {
    table::handles().into_iter().filter(|&handle| !primary::is(handle)).count()
}

fn create(out: Out<usize>, flags: u32, device: i32) -> Outcome {
    out.required()?;
    device::check(device)?;
    check_flags(flags)?;
    let context = Context::new(stale::address(), device, flags);
    let owner = context.owner();
    table::insert(context);
    stack::push(owner);
    out.set(owner.context)
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
    destroy_context(context)?;
    // Unlike the release of a primary context (CUDA driver API, cuDevicePrimaryCtxRelease).
    stack::pop_if_top(context);
    Ok(())
}

fn attach(out: Out<usize>, flags: u32) -> Outcome {
    out.required()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let context = context::current()?;
    context.attach();
    out.set(context.owner().context)
}

fn detach(context: usize) -> Outcome {
    if primary::is(context) {
        return Err(INVALID_CONTEXT);
    }
    let last = table::get(context)?.detach();
    if last { destroy(context) } else { Ok(()) }
}

exports! {
    cuCtxCreate_v2, cuCtxCreate => create(out: Out<usize>, flags: u32, device: i32);
    cuCtxCreate_v3 => create_v3(out: Out<usize>, affinities: usize, count: i32, flags: u32, device: i32);
    cuCtxCreate_v4 => create_v4(out: Out<usize>, parameters: In<ContextParameters>, flags: u32, device: i32);
    cuCtxDestroy_v2, cuCtxDestroy => destroy(context: usize), Release;
    cuCtxAttach => attach(out: Out<usize>, flags: u32);
    cuCtxDetach => detach(context: usize), Release;
}
