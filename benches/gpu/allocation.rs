//! Allocation from a pool against CUDA's two allocators. An operation is one allocation and one free.
#![expect(unsafe_code, reason = "calls the CUDA driver for comparison")]

use std::hint::black_box;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use vkgdr::cudarc::driver::sys::{self, CUmemPool_attribute};
use vkgdr::cudarc::driver::{CudaContext, CudaStream, DriverError, result};
use vkgdr::{Memory, MemoryKind, Pool, PoolOptions};

use crate::report::Goal;
use crate::{Bench, Result, contest, must, size};

const SIZES: [usize; 4] = [256, 4 << 10, 64 << 10, 1 << 20];

pub(crate) fn measure(bench: &mut Bench, limit: Duration) -> Result {
    let pool = Pool::new(&bench.gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let stream = bench.context.new_stream()?;
    let asynchronous = prepare_asynchronous(&bench.context, &stream);
    let ways = if asynchronous.is_ok() { 4 } else { 3 };
    for len in SIZES {
        let times = contest::measure(ways, limit / u32::try_from(SIZES.len())?, |way| match way {
            0 => drop(black_box(must(pool.allocate(black_box(len))))),
            1 => must(black_box(must(Memory::allocate(&bench.gpu, len, MemoryKind::Mapped))).free()),
            2 => must(synchronous(black_box(len))),
            _ => must(in_stream(black_box(len), &stream)),
        });
        must(stream.synchronize());
        let report = &mut bench.report;
        let name = size(len);
        let pooled = format!("pooled allocate + free, {name}");
        report.add(&pooled, "cuMemAlloc + cuMemFree", times.pairs(0, 2), Goal::Ratio(0.01));
        match &asynchronous {
            Ok(()) => {
                report.add(&pooled, "cuMemAllocAsync + cuMemFreeAsync", times.pairs(0, 3), Goal::Ratio(0.2));
            }
            Err(DriverError(code)) => report.skip(format!("{pooled}, against cuMemAllocAsync"), format!("{code:?}")),
        }
        let alone = format!("Memory::allocate + free, {name}");
        report.add(alone, "cuMemAlloc + cuMemFree", times.pairs(1, 2), Goal::None);
        println!("    {name}");
    }
    Ok(())
}

fn synchronous(len: usize) -> Result<(), DriverError> {
    // SAFETY: the context is current.
    let pointer = black_box(unsafe { result::malloc_sync(len) }?);
    // SAFETY: just allocated, and not used.
    unsafe { result::free_sync(pointer) }
}

fn in_stream(len: usize, stream: &CudaStream) -> Result<(), DriverError> {
    // SAFETY: the stream is live.
    let pointer = black_box(unsafe { result::malloc_async(stream.cu_stream(), len) }?);
    // SAFETY: just allocated, and not used.
    unsafe { result::free_async(pointer, stream.cu_stream()) }
}

/// The driver's pool in its best configuration: freed memory is kept instead of being released at each synchronisation.
fn prepare_asynchronous(context: &Arc<CudaContext>, stream: &CudaStream) -> Result<(), DriverError> {
    in_stream(4096, stream)?;
    let mut pool = ptr::null_mut();
    // SAFETY: `pool` is live, and the device is the context's.
    unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()) }.result()?;
    let mut threshold = u64::MAX;
    let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute is a `u64`, and `threshold` is live.
    unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()) }.result()?;
    stream.synchronize()
}
