//! Queries about memory: its size, and the allocation of an address.

use super::table;
use crate::boundary::exports;
use crate::code::{NOT_FOUND, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::heap;

fn info(free: Out<usize>, total: Out<usize>) -> Outcome {
    free.required()?;
    total.required()?;
    context::usable()?;
    free.set(heap::available())?;
    total.set(heap::capacity())
}

// The form of CUDA 2, with 32-bit sizes.
fn info_legacy(free: Out<u32>, total: Out<u32>) -> Outcome {
    free.required()?;
    total.required()?;
    context::usable()?;
    free.set(u32::try_from(heap::available()).unwrap_or(u32::MAX))?;
    total.set(u32::try_from(heap::capacity()).unwrap_or(u32::MAX))
}

fn address_range(base: Out<usize>, size: Out<usize>, pointer: usize) -> Outcome {
    context::usable()?;
    let window = table::find(pointer).ok_or(NOT_FOUND)?.window;
    base.set_if_wanted(window.address);
    size.set_if_wanted(window.size);
    Ok(())
}

exports! {
    cuMemGetInfo_v2 => info(free: Out<usize>, total: Out<usize>);
    cuMemGetInfo => info_legacy(free: Out<u32>, total: Out<u32>);
    cuMemGetAddressRange_v2 => address_range(base: Out<usize>, size: Out<usize>, pointer: usize);
}
