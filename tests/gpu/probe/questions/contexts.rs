//! What the driver says of memory and contexts once a context is not current, or is gone. Asked last: a driver may crash.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;

use super::{kind_named, yes_no};
use crate::cuda::{self, Answer, Cuda};
use crate::{Probe, allocate};

/// Pointer attributes of the library's memory with its context current, with none current, and after the context was reset.
/// Without differences between the first two, they show whether a context still exists.
pub(super) fn witnesses(probe: &Probe, kind: &str) -> Answer<String> {
    // Never dropped: the process ends with this question, and nothing of the context may be touched after the reset.
    let memory = ManuallyDrop::new(allocate(&probe.vkgdr()?, 1 << 20, kind_named(kind))?);
    let address = memory.device_ptr();
    let ask = || cuda::pointer_attributes(address).unwrap_or_else(|refusal| refusal);
    let current = ask();
    probe.cuda.leave_context()?;
    let not_current = ask();
    probe.cuda.reset()?;
    Ok(format!("current: {current}; none current: {not_current}; after a reset: {}", ask()))
}

/// Whether a primary context has another id after a reset, and another address.
pub(super) fn reset(probe: &Probe) -> Answer<String> {
    let (address, id) = probe.cuda.current_context()?;
    probe.cuda.reset()?;
    let gone = probe.cuda.current_context();
    println!(
        "the current context after the reset: {}",
        gone.map_or_else(|refusal| refusal, |found| format!("{found:x?}"))
    );
    let again = Cuda::open()?;
    let (new_address, new_id) = again.current_context()?;
    println!("before {address:#x}, id {id}; after {new_address:#x}, id {new_id}");
    let works = cuda::Buffer::new(4096).map(drop);
    let same = |is_same| if is_same { "the same" } else { "another" };
    let (address, id) = (same(address == new_address), same(id == new_id));
    Ok(format!("{address} address, {id} id; the new context allocates: {}", yes_no(&works)))
}
