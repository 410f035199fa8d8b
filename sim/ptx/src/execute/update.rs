//! Atomic operations of one lane, and those on mbarriers.

use super::access::View;
use crate::arithmetic::lanewise::Lanes;
use crate::arithmetic::mbarrier::perform;
use crate::fault::FaultKind;
use crate::op::{Atomic, Mbarrier};
use crate::window::Window;

pub(super) fn atomic(
    view: &mut View<'_>,
    registers: &mut [Lanes],
    lane: usize,
    atomic: &Atomic,
    address: u64,
) -> Result<(), FaultKind> {
    let (b, c) = (registers[atomic.b as usize][lane], registers[atomic.c as usize][lane]);
    if let Some(scope) = atomic.fence_before {
        view.memory.fence(scope);
    }
    let old = view.update(lane, address, atomic.access, |old| (atomic.f)(old, b, c))?;
    if let Some(scope) = atomic.fence_after {
        view.memory.fence(scope);
    }
    if let Some(d) = atomic.d {
        registers[d as usize][lane] = old;
    }
    Ok(())
}

/// Performs an operation on an mbarrier; returns whether its result is not 0.
pub(super) fn mbarrier(
    view: &mut View<'_>,
    registers: &mut [Lanes],
    lane: usize,
    mbarrier: &Mbarrier,
    address: u64,
) -> Result<bool, (FaultKind, &'static str)> {
    let (a, b) = (registers[mbarrier.a as usize][lane], registers[mbarrier.b as usize][lane]);
    if mbarrier.access.window == Window::Generic && Window::of(address).0 != Window::Shared {
        return Err((FaultKind::InvalidBarrier, "an mbarrier is in shared memory"));
    }
    let mut outcome = Ok(0);
    let change = |word| match perform(mbarrier.what, word, a, b) {
        Ok((word, result)) => {
            outcome = Ok(result);
            word
        }
        Err(wrong) => {
            outcome = Err((FaultKind::InvalidBarrier, wrong));
            word
        }
    };
    view.update(lane, address, mbarrier.access, change).map_err(|kind| (kind, ""))?;
    let result = outcome?;
    if let Some(d) = mbarrier.d {
        registers[d as usize][lane] = result;
    }
    Ok(result != 0)
}
