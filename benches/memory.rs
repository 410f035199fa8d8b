//! The overhead of this crate over the drivers' own time to allocate and free.
#![expect(unsafe_code, reason = "frees raw memory by hand")]

use std::hint::black_box;
use std::time::Duration;

use support::cuda::Context;
use vkgdr::{MemoryKind, OpenFlags, RawMemory, Vkgdr};

use crate::bare::Bare;
use crate::contest::pairs;
use crate::report::{Goal, Report};
use crate::{Result, must, size};

/// Allocates and frees.
fn cycle(gpu: &Vkgdr, len: usize) {
    let mut memory = black_box(must(RawMemory::allocate(gpu, len, MemoryKind::Mapped)));
    // SAFETY: nothing uses the memory.
    must(unsafe { memory.free() });
}

pub(crate) fn run() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let bare = Bare::open(gpu.uuid())?;
    let mut report = Report::new("allocation", gpu.name(), false)?;
    for len in [4096, 1 << 20] {
        let pairs = pairs(Duration::from_secs(4), || cycle(&gpu, len), || must(bare.cycle(len as u64)));
        report.add(format!("RawMemory allocate + free, {}", size(len)), "ash + cudarc", &pairs, Goal::Ratio(1.03));
    }
    Ok(())
}
