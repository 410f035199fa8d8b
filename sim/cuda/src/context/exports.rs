//! Make contexts current, ask about them, set their limits.

use std::sync::Arc;

use super::current::{current, usable};
use super::state::{Context, check_flags};
use super::{stack, table};

use crate::boundary::exports;
use crate::code::{Code, INVALID_CONTEXT, INVALID_VALUE, Outcome, PEER_ACCESS_NOT_ENABLED, PEER_ACCESS_UNSUPPORTED};
use crate::ffi::Out;
use crate::graph::capture;
use crate::pool;
use crate::queue::{GREATEST_PRIORITY, LEAST_PRIORITY};

// What cuCtxGetApiVersion says on every driver since CUDA 3.2.
const API_VERSION: u32 = 3020;

fn push(context: usize) -> Outcome {
    stack::push(table::get(context)?.owner());
    Ok(())
}

fn pop(out: Out<usize>) -> Outcome {
    let owner = stack::pop().ok_or(INVALID_CONTEXT)?;
    out.set_if_wanted(owner.context);
    Ok(())
}

fn set_current(context: usize) -> Outcome {
    let next = if context == 0 { None } else { Some(table::get(context)?.owner()) };
    stack::pop();
    next.into_iter().for_each(stack::push);
    Ok(())
}

fn get_current(out: Out<usize>) -> Outcome {
    out.set(stack::top().map_or(0, |owner| owner.context))
}

fn get_device(out: Out<i32>) -> Outcome {
    out.required()?;
    out.set(current()?.owner().device)
}

// Null means the current context.
fn given_or_current(context: usize) -> Result<Arc<Context>, Code> {
    if context == 0 { current() } else { table::get(context) }
}

fn get_device_of(out: Out<i32>, context: usize) -> Outcome {
    out.required()?;
    out.set(given_or_current(context)?.owner().device)
}

fn get_id(context: usize, out: Out<u64>) -> Outcome {
    out.required()?;
    out.set(given_or_current(context)?.owner().id)
}

fn get_api_version(context: usize, out: Out<u32>) -> Outcome {
    out.required()?;
    given_or_current(context)?;
    out.set(API_VERSION)
}

fn get_flags(out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(current()?.flags())
}

fn set_flags(flags: u32) -> Outcome {
    check_flags(flags)?;
    current()?.set_flags(flags);
    Ok(())
}

fn synchronize() -> Outcome {
    wait_for(&current()?)
}

fn synchronize_given(context: usize) -> Outcome {
    wait_for(&given_or_current(context)?)
}

fn wait_for(context: &Arc<Context>) -> Outcome {
    capture::refuse_context(context.owner())?;
    let outcome = context.streams.synchronize();
    pool::release_unused();
    outcome
}

/// No device can access another's memory.
fn enable_peer_access(peer: usize, flags: u32) -> Outcome {
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    check_peer(peer)?;
    Err(PEER_ACCESS_UNSUPPORTED)
}

fn disable_peer_access(peer: usize) -> Outcome {
    check_peer(peer)?;
    Err(PEER_ACCESS_NOT_ENABLED)
}

/// Fails unless this is another context than the current one.
fn check_peer(peer: usize) -> Outcome {
    let current = current()?.owner().context;
    if table::get(peer).map_err(|_| INVALID_CONTEXT)?.owner().context == current {
        Err(INVALID_CONTEXT)
    } else {
        Ok(())
    }
}

fn get_limit(out: Out<usize>, limit: u32) -> Outcome {
    out.required()?;
    out.set(usable()?.limits.get(limit)?)
}

fn set_limit(limit: u32, value: usize) -> Outcome {
    usable()?.limits.set(limit, value)
}

fn get_cache(out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(usable()?.limits.cache())
}

fn set_cache(value: u32) -> Outcome {
    usable()?.limits.set_cache(value)
}

fn get_bank_size(out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(usable()?.limits.bank_size())
}

fn set_bank_size(value: u32) -> Outcome {
    usable()?.limits.set_bank_size(value)
}

fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Outcome {
    current()?;
    least.set_if_wanted(LEAST_PRIORITY);
    greatest.set_if_wanted(GREATEST_PRIORITY);
    Ok(())
}

exports! {
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
    cuCtxEnablePeerAccess => enable_peer_access(peer: usize, flags: u32);
    cuCtxDisablePeerAccess => disable_peer_access(peer: usize);
    cuCtxSynchronize => synchronize();
    cuCtxSynchronize_v2 => synchronize_given(context: usize);
    cuCtxGetLimit => get_limit(out: Out<usize>, limit: u32);
    cuCtxSetLimit => set_limit(limit: u32, value: usize);
    cuCtxGetCacheConfig => get_cache(out: Out<u32>);
    cuCtxSetCacheConfig => set_cache(value: u32);
    cuCtxGetSharedMemConfig => get_bank_size(out: Out<u32>);
    cuCtxSetSharedMemConfig => set_bank_size(value: u32);
    cuCtxGetStreamPriorityRange => priority_range(least: Out<i32>, greatest: Out<i32>);
}
