//! Atomic operations, and those on mbarriers.

use super::access::{View, sums};
use super::active::Active;
use crate::arithmetic::lanewise::{LANES, Lanes};
use crate::arithmetic::mbarrier::perform;
use crate::fault::FaultKind;
use crate::op::{Atomic, Mbarrier};
use crate::window::Window;

/// Performs an operation for every active lane. Returns the lane that failed.
pub(super) fn atomic(
    view: &mut View<'_>,
    registers: &mut [Lanes],
    active: &impl Active,
    atomic: &Atomic,
) -> Result<(), (usize, FaultKind)> {
    if let Some(scope) = atomic.fence_before {
        view.memory.fence(scope);
    }
    let (b, c) = (&registers[atomic.b as usize], &registers[atomic.c as usize]);
    let mut addresses = sums(&registers[atomic.base as usize], atomic.offset);
    let mut old = [0; LANES];
    if let Some(elsewhere) = atomic.elsewhere {
        let asked = addresses;
        let change = |lane: usize, old| {
            let f = if Window::of(asked[lane]).0 == Window::Global { atomic.f } else { elsewhere };
            f(old, b[lane], c[lane])
        };
        view.update_all(active, &mut addresses, atomic.access, change, &mut old)?;
    } else {
        let change = |lane: usize, old| (atomic.f)(old, b[lane], c[lane]);
        view.update_all(active, &mut addresses, atomic.access, change, &mut old)?;
    }
    if let Some(scope) = atomic.fence_after {
        view.memory.fence(scope);
    }
    if let Some(d) = atomic.d {
        active.write(&mut registers[d as usize], &old);
    }
    Ok(())
}

/// Performs an operation on an mbarrier.
pub(super) fn mbarrier(
    view: &mut View<'_>,
    registers: &mut [Lanes],
    lane: usize,
    mbarrier: &Mbarrier,
    address: u64,
) -> Result<(), (FaultKind, &'static str)> {
    let a = registers[mbarrier.a as usize][lane];
    if mbarrier.access.window == Window::Generic && Window::of(address).0 != Window::Shared {
        return Err((FaultKind::InvalidBarrier, "an mbarrier is in shared memory"));
    }
    let mut outcome = Ok(0);
    let change = |word| match perform(mbarrier.what, word, a) {
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
    Ok(())
}
