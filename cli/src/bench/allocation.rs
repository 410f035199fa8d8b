//! Pairs of an allocation and its free: of memory by itself, and from a pool.

use vkgdr::{Memory, MemoryKind, Pool, PoolOptions};

use super::timing::{self, Times};
use super::{Point, Run, sizes};
use crate::Result;
use crate::text::size;

pub(super) fn measure(run: &mut Run<'_>, sizes: &[usize], kinds: &[MemoryKind]) -> Result {
    let largest = sizes.iter().copied().max().unwrap_or(0);
    let mut failures = Vec::new();
    for kind in kinds {
        if let Err(error) = run.gpu.memory_info(*kind) {
            run.skip(&format!("{kind} memory"), &error.to_string())?;
            continue;
        }
        if let Err(error) = sizes::check_room(run.gpu, *kind, largest, 0) {
            failures.push(error);
            continue;
        }
        for len in sizes {
            run.progress.show(&format!("{kind} memory of {}", size(*len as u64)));
            let times = pairs(|| Memory::allocate(run.gpu, *len, *kind)?.free())?;
            run.add(Point {
                kind: *kind,
                operation: "memory",
                by: None,
                threads: 1,
                bytes: Some(*len),
                times,
                rate: None,
            })?;
        }
        let pool = Pool::new(run.gpu, PoolOptions::new(*kind))?;
        for len in sizes.iter().filter(|len| **len <= pool.block_len()) {
            run.progress.show(&format!("{kind} memory of {} from a pool", size(*len as u64)));
            let times = pairs(|| pool.allocate(*len)?.free())?;
            run.add(Point {
                kind: *kind,
                operation: "pool",
                by: None,
                threads: 1,
                bytes: Some(*len),
                times,
                rate: None,
            })?;
        }
    }
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn pairs(mut pair: impl FnMut() -> vkgdr::Result<()>) -> vkgdr::Result<Times> {
    let batch = timing::batch(&mut pair)?;
    timing::measure(batch, pair)
}
