//! What cudarc's types of contexts leave behind.
#![expect(unsafe_code, reason = "calls mallinfo2")]

use support::cuda::Context;
use support::{Result, simcuda, skip};
use vkgdr::cudarc::driver::DeviceSlice;
use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};

/// The live bytes of malloc.
fn allocated() -> usize {
    // SAFETY: no arguments.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// A context comes and goes, and cudarc is asked for its stream or not.
fn come_and_go(gpu: &Vkgdr, asked: bool) -> Result {
    let context = Context::create(0);
    let memory = Memory::allocate(gpu, 4096, MemoryKind::Mapped)?;
    if asked {
        assert_eq!(DeviceSlice::<u8>::stream(&memory).context().cu_ctx(), context.raw());
    }
    memory.free()?;
    context.destroy();
    Ok(())
}

#[test]
fn streams_of_contexts_that_are_gone_are_forgotten() -> Result {
    const COUNT: usize = 500;
    /// The simulated driver and malloc keep a few bytes; a stream with its context took 160.
    const MOST: usize = 32;
    if simcuda().is_none() {
        return skip("a context of a GPU takes long, and its driver's memory is not ours");
    }
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let mut grown = [0_usize; 2];
    for (asked, grown) in [false, true].into_iter().zip(&mut grown) {
        (0..20).try_for_each(|_| come_and_go(&gpu, asked))?;
        let before = allocated();
        (0..COUNT).try_for_each(|_| come_and_go(&gpu, asked))?;
        *grown = allocated().saturating_sub(before) / COUNT;
    }
    let [without, with] = grown;
    assert!(with <= without + MOST, "{with} bytes stay for each context, {without} if cudarc is not asked");
    Ok(())
}
