//! Pools in a forked child: nothing is allocated, and drops release nothing of the parent's.
#![expect(unsafe_code, reason = "allocates on a raw stream")]

use std::cell::RefCell;

use support::fork::{assert_forked, in_quiet_child};
use support::ledger::Live;
use support::{Result, host_read, host_write, pattern};
use vkgdr::cudarc::driver::CudaContext;
use vkgdr::{MemoryKind, OpenFlags, Pool, PoolOptions};

#[test]
fn a_forked_child_allocates_nothing_and_releases_nothing() -> Result {
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let before = Live::now();
    let (chunk, exposed, large) = (pool.allocate(4096)?, pool.allocate(4096)?, pool.allocate(8 << 20)?);
    let shared = pool.allocate(4096)?;
    let region = shared.slice(1..)?;
    drop(pool.allocate(4096)?);
    assert_ne!((exposed.device_ptr(), large.device_ptr()), (0, 0));
    host_write(&chunk, 0, &pattern(4096, 1))?;
    let all = RefCell::new(Some((pool, chunk, exposed, large, shared, region)));
    in_quiet_child(|| {
        let Some((pool, chunk, exposed, large, shared, region)) = all.take() else { return Err("gone".into()) };
        for len in [4096, 100_000, 8 << 20] {
            assert_forked(pool.allocate(len), &format!("{len} bytes"));
            assert_forked(pool.allocate_on(len, &stream), &format!("{len} bytes on a stream"));
            // SAFETY: refused.
            let on_raw = unsafe { pool.allocate_on_raw(len, stream.cu_stream()) };
            assert_forked(on_raw, &format!("{len} bytes on a raw stream"));
        }
        assert_forked(Pool::new(&gpu, PoolOptions::default()), "Pool::new");
        pool.release_unused();
        pool.disable_caching();
        assert_eq!((pool.trim(0), pool.free_chunks(), pool.active_bytes()), (0, 0, 0));
        chunk.free()?;
        drop((exposed, large, shared, region.clone()));
        drop(pool.clone());
        drop(pool);
        drop(region);
        Ok(())
    })?;
    let Some((pool, chunk, ..)) = all.take() else { return Err("gone".into()) };
    assert!(host_read(&chunk, 0, 4096)? == pattern(4096, 1));
    assert_eq!(pool.used_chunks(), 1);
    drop((pool, chunk));
    assert_eq!(Live::now(), before);
    Ok(())
}
