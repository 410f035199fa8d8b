//! Special registers.

use super::grid::Grid;
use crate::op::Special;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn special(what: Special, grid: &Grid<'_>, block: [u32; 3], thread: [u32; 3], number: u32) -> u64 {
    let lane = number % 32;
    let bit = 1u64 << lane;
    let axis = |of: [u32; 3], axis: u8, beyond: u32| of.get(usize::from(axis)).copied().unwrap_or(beyond);
    let narrow = match what {
        Special::Thread(which) => axis(thread, which, 0),
        Special::BlockSize(which) => axis(grid.block_size, which, 1),
        Special::Block(which) => axis(block, which, 0),
        Special::GridSize(which) => axis(grid.size, which, 1),
        Special::Lane => lane,
        Special::Warp => number / 32,
        Special::WarpCount => grid.block_size.iter().product::<u32>().div_ceil(32),
        Special::DynamicShared => grid.dynamic_shared,
        Special::Zero => 0,
        Special::One => 1,
        Special::Clock => return clock(grid),
        Special::ClockHigh => return clock(grid) >> 32,
        Special::GlobalTimer => return wall_clock(),
        Special::GlobalTimerHigh => return wall_clock() >> 32,
        Special::LanesEqual => return bit,
        Special::LanesLess => return bit - 1,
        Special::LanesLessEqual => return bit | (bit - 1),
        Special::LanesGreater => return 0xffff_ffff & !(bit | (bit - 1)),
        Special::LanesGreaterEqual => return 0xffff_ffff & !(bit - 1),
        Special::TotalShared => return grid.shared_bytes,
        Special::DynamicSharedBase => return grid.dynamic_shared_base,
        Special::GridWorkspace => return grid.workspace & 0xffff_ffff,
        Special::GridWorkspaceHigh => return grid.workspace >> 32,
    };
    u64::from(narrow)
}

/// A clock of 1 GHz.
fn clock(grid: &Grid<'_>) -> u64 {
    u64::try_from(grid.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// In nanoseconds, since 1970 as on Linux.
fn wall_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
