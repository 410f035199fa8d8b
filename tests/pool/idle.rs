//! Memory that is freed as idle: the caller knows that the device has finished with it.
#![expect(unsafe_code, reason = "frees memory without a wait, and binds it to streams")]

use support::Result;
use support::cuda::Stream;
use vkgdr::Memory;

use crate::chunks::{LEN, addresses, exposed, host_address, make_block, open};

/// Frees memory that the device does not use.
fn free_idle(chunk: Memory) -> Result {
    // SAFETY: the device does not use it.
    Ok(unsafe { chunk.free_unsynchronized() }?)
}

#[test]
fn memory_freed_as_idle_is_reused_at_once_whatever_its_binding() -> Result {
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    make_block(&pool)?;
    let gate = stream.hold();
    for bound in [false, true] {
        let (chunk, address) = exposed(&pool)?;
        if bound {
            support::bind(&chunk, &stream)?;
        }
        free_idle(chunk)?;
        assert_eq!(exposed(&pool)?.1, address, "bound: {bound}");
    }
    gate.open();
    Ok(())
}

#[test]
fn the_promise_of_one_holder_covers_no_other() -> Result {
    let (_context, _gpu, pool) = open()?;
    let stream = Stream::create();
    make_block(&pool)?;
    let gate = stream.hold();
    for _ in 0..2 {
        let chunk = pool.allocate(LEN)?;
        let address = host_address(&chunk);
        let region = chunk.slice(..1)?;
        free_idle(chunk)?;
        assert_eq!(pool.used_chunks(), 1);
        assert!(!addresses(&pool, 10)?.contains(&address), "the region keeps it");
        assert_ne!(region.device_ptr(), 0);
        region.free()?;
        assert_eq!(pool.used_chunks(), 0);
        assert!(!addresses(&pool, 10)?.contains(&address), "reused while the stream may use it");
    }
    gate.open();
    Ok(())
}
