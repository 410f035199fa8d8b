//! Pools in a forked child: nothing is allocated, and what goes there stays the parent's.
#![expect(unsafe_code, reason = "allocates on a raw stream")]

mod common;

use std::cell::RefCell;

use common::fork::in_child;
use common::ledger::Live;
use common::{Result, host_read, host_write, logs, pattern};
use support::{simcuda, vklayer};
use vkgdr::cudarc::driver::CudaContext;
use vkgdr::{Error, MemoryKind, OpenFlags, Pool, PoolOptions};

/// The calls of all functions of both drivers, where they are counted.
fn calls() -> [u64; 2] {
    let cuda = simcuda().map_or(0, |sim| sim.calls(None));
    [cuda, vklayer().map_or(0, |layer| layer.calls(None))]
}

#[test]
fn a_forked_child_allocates_nothing_and_gives_nothing_back() -> Result {
    let (_context, gpu) = common::open(OpenFlags::empty())?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped))?;
    let before = Live::now();
    let (piece, exposed, large) = (pool.allocate(4096)?, pool.allocate(4096)?, pool.allocate(8 << 20)?);
    let shared = pool.allocate(4096)?;
    let region = shared.region(1..)?;
    drop(pool.allocate(4096)?);
    assert_ne!((exposed.device_ptr(), large.device_ptr()), (0, 0));
    host_write(&piece, 0, &pattern(4096, 1))?;
    let all = RefCell::new(Some((pool, piece, exposed, large, shared, region)));
    calls();
    logs::capture();
    in_child(|| {
        let before = calls();
        let Some((pool, piece, exposed, large, shared, region)) = all.take() else { return Err("gone".into()) };
        for len in [4096, 100_000, 8 << 20] {
            assert!(matches!(pool.allocate(len), Err(Error::Forked)), "{len} bytes");
            assert!(matches!(pool.allocate_on(len, &stream), Err(Error::Forked)), "{len} bytes on a stream");
            // SAFETY: refused.
            let on_raw = unsafe { pool.allocate_on_raw(len, stream.cu_stream()) };
            assert!(matches!(on_raw, Err(Error::Forked)), "{len} bytes on a raw stream");
        }
        assert!(matches!(Pool::new(&gpu, PoolOptions::default()), Err(Error::Forked)));
        pool.free_held();
        pool.stop_holding();
        assert_eq!((pool.trim(0), pool.held_blocks(), pool.active_bytes()), (0, 0, 0));
        piece.free()?;
        drop((exposed, large, shared, region.clone()));
        drop(pool.clone());
        drop(pool);
        drop(region);
        assert_eq!((calls(), logs::captured()), (before, vec![]), "calls of CUDA and Vulkan, and log lines");
        Ok(())
    })?;
    let Some((pool, piece, ..)) = all.take() else { return Err("gone".into()) };
    assert!(host_read(&piece, 0, 4096)? == pattern(4096, 1));
    assert_eq!(pool.active_blocks(), 1);
    drop((pool, piece));
    assert_eq!(Live::now(), before);
    Ok(())
}
