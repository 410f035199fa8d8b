//! The overhead of this crate over the drivers' own time: allocate and free, and later opens.
#![expect(unsafe_code, reason = "frees raw memory by hand")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use support::cuda::Context;
use vkgdr::{MemoryKind, OpenFlags, RawMemory, Vkgdr};

use crate::bare::Bare;
use crate::contest::{Pairs, pairs};
use crate::report::{Goal, Report};
use crate::{Result, must, size};

const LEN: usize = 4096;

/// Allocates and frees.
fn cycle(gpu: &Vkgdr, len: usize) {
    let mut memory = black_box(must(RawMemory::allocate(gpu, len, MemoryKind::Mapped)));
    // SAFETY: nothing uses the memory.
    must(unsafe { memory.free() });
}

/// Nanoseconds of an open.
fn open() -> Result<(Vkgdr, f64)> {
    let start = Instant::now();
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    Ok((black_box(gpu), start.elapsed().as_secs_f64() * 1e9))
}

pub(crate) fn run() -> Result {
    // CUDA is initialised before, as in a program that uses it, so that the first open is Vulkan's share only.
    let _context = Context::create(0);
    let (gpu, first) = open()?;
    let bare = Bare::open(gpu.uuid())?;
    let mut report = Report::new("allocation", gpu.name(), false)?;
    for len in [LEN, 1 << 20] {
        let pairs = pairs(Duration::from_secs(4), || cycle(&gpu, len), || must(bare.cycle(len as u64)));
        report.add(format!("RawMemory allocate + free, {}", size(len)), "ash + cudarc", &pairs, Goal::Ratio(1.03));
    }
    let later = (0..100).map(|_| Ok(open()?.1)).collect::<Result<Vec<_>>>()?;
    let opens = Pairs { peer: vec![first; later.len()], ours: later };
    report.add("Vkgdr::open again", "first open", &opens, Goal::Ratio(0.01));
    Ok(())
}
