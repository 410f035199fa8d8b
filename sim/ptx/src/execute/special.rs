//! Special registers.

use super::grid::Grid;
use crate::arithmetic::lanewise::LANES;
use crate::op::Special;
use crate::window::RESERVED_SHARED;
use std::time::{SystemTime, UNIX_EPOCH};

/// The value of a special register that all lanes of a warp share, which starts with thread `first` of its block.
pub(super) fn common(what: Special, grid: &Grid<'_>, block: [u32; 3], first: u32) -> Option<u64> {
    // The fourth element, `.w`, is always zero.
    let axis = |of: [u32; 3], axis: u8| of.get(usize::from(axis)).copied().unwrap_or(0);
    let narrow = match what {
        Special::Thread(_)
        | Special::Lane
        | Special::LanesEqual
        | Special::LanesLess
        | Special::LanesLessEqual
        | Special::LanesGreater
        | Special::LanesGreaterEqual => return None,
        Special::BlockSize(which) => axis(grid.block_size, which),
        Special::Block(which) => axis(block, which),
        Special::GridSize(which) => axis(grid.size, which),
        Special::Warp => first / 32,
        Special::WarpCount => grid.block_size.iter().product::<u32>().div_ceil(32),
        Special::DynamicShared => grid.dynamic_shared,
        Special::Zero => 0,
        Special::One => 1,
        Special::Clock => return Some(clock(grid)),
        Special::ClockHigh => return Some(clock(grid) >> 32),
        Special::GlobalTimer => return Some(wall_clock()),
        Special::GlobalTimerHigh => return Some(wall_clock() >> 32),
        Special::TotalShared => return Some(grid.shared_bytes),
        Special::ReservedShared(offset) => return Some(grid.reserved_shared_base + u64::from(offset)),
        Special::ReservedSharedSize => u32::from(RESERVED_SHARED),
        Special::DynamicSharedBase => return Some(grid.dynamic_shared_base),
        Special::GridWorkspace => return Some(grid.workspace & 0xffff_ffff),
        Special::GridWorkspaceHigh => return Some(grid.workspace >> 32),
    };
    Some(u64::from(narrow))
}

/// The value of a special register that each lane has its own of; `index` are the lanes' places in their block, by axis.
pub(super) fn of_lane(what: Special, index: &[[u32; LANES]; 3], lane: usize) -> u64 {
    match what {
        Special::Thread(axis) => index.get(usize::from(axis)).map_or(0, |axis| u64::from(axis[lane])),
        Special::LanesEqual => 1 << lane,
        Special::LanesLess => (1 << lane) - 1,
        Special::LanesLessEqual => (2 << lane) - 1,
        Special::LanesGreater => 0xffff_ffff & !((2 << lane) - 1),
        Special::LanesGreaterEqual => 0xffff_ffff & !((1 << lane) - 1),
        _ => lane as u64,
    }
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
