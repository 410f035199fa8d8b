//! Special registers.

use super::grid::Grid;
use crate::arithmetic::lanewise::{LANES, Lanes};
use crate::op::Special;
use std::time::{SystemTime, UNIX_EPOCH};

/// A special register's value for each lane.
pub(super) fn special(what: Special, grid: &Grid<'_>, block: [u32; 3], index: &[[u32; LANES]; 3], first: u32) -> Lanes {
    let axis = |of: [u32; 3], axis: u8, beyond: u32| of.get(usize::from(axis)).copied().unwrap_or(beyond);
    let by_lane = |f: fn(u64) -> u64| std::array::from_fn(|lane| f(lane as u64));
    let narrow = match what {
        Special::Thread(axis) => return index.get(usize::from(axis)).map_or([0; LANES], |axis| axis.map(u64::from)),
        Special::Lane => return by_lane(|lane| lane),
        Special::LanesEqual => return by_lane(|lane| 1 << lane),
        Special::LanesLess => return by_lane(|lane| (1 << lane) - 1),
        Special::LanesLessEqual => return by_lane(|lane| (2 << lane) - 1),
        Special::LanesGreater => return by_lane(|lane| 0xffff_ffff & !((2 << lane) - 1)),
        Special::LanesGreaterEqual => return by_lane(|lane| 0xffff_ffff & !((1 << lane) - 1)),
        Special::BlockSize(which) => axis(grid.block_size, which, 1),
        Special::Block(which) => axis(block, which, 0),
        Special::GridSize(which) => axis(grid.size, which, 1),
        Special::Warp => first / 32,
        Special::WarpCount => grid.block_size.iter().product::<u32>().div_ceil(32),
        Special::DynamicShared => grid.dynamic_shared,
        Special::Zero => 0,
        Special::One => 1,
        Special::Clock => return [clock(grid); LANES],
        Special::ClockHigh => return [clock(grid) >> 32; LANES],
        Special::GlobalTimer => return [wall_clock(); LANES],
        Special::GlobalTimerHigh => return [wall_clock() >> 32; LANES],
        Special::TotalShared => return [grid.shared_bytes; LANES],
        Special::DynamicSharedBase => return [grid.dynamic_shared_base; LANES],
        Special::GridWorkspace => return [grid.workspace & 0xffff_ffff; LANES],
        Special::GridWorkspaceHigh => return [grid.workspace >> 32; LANES],
    };
    [u64::from(narrow); LANES]
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
