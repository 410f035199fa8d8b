//! Resets of the primary context.
#![expect(unsafe_code, reason = "resets the primary context")]

use support::{Result, refused, skip};
use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr};

#[test]
fn an_allocation_after_a_reset_does_not_speak_of_the_context_of_memory() -> Result {
    if support::simcuda().is_none() {
        return skip("a reset of the primary context affects every user of a real GPU");
    }
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    // SAFETY: nothing uses the context at this time.
    let code = unsafe { cudarc::driver::sys::cuDevicePrimaryCtxReset_v2(0) };
    assert_eq!(code as i32, 0);
    let text = refused(Memory::allocate(&gpu, 4096, MemoryKind::Mapped)).to_string();
    assert!(text.contains("CUDA_ERROR_CONTEXT_IS_DESTROYED"), "{text}");
    assert!(!text.contains("the memory's"), "there is no memory: {text}");
    assert!(text.contains("reset") || text.contains("destroyed"), "the remedy: {text}");
    Ok(())
}
