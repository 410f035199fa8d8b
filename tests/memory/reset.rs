//! Resets of the primary context.
#![expect(unsafe_code, reason = "resets the primary context")]

use support::cuda::PrimaryContext;
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

#[test]
fn a_handle_of_the_new_context_allocates_where_the_old_one_is_still_current() -> Result {
    if support::simcuda().is_none() {
        return skip("a reset of the primary context affects every user of a real GPU");
    }
    let _current = PrimaryContext::retain_and_push(0);
    let old = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    // SAFETY: nothing uses the context at this time.
    let code = unsafe { cudarc::driver::sys::cuDevicePrimaryCtxReset_v2(0) };
    assert_eq!(code as i32, 0);
    assert!(old.context_is_destroyed());
    let new = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    assert!(!new.context_is_destroyed());
    Memory::allocate(&new, 4096, MemoryKind::Mapped)?.free()?;
    assert!(old.context_is_destroyed());
    Ok(())
}
