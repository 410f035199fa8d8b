//! Sets of a warp's lanes, a bit for each.

/// Accesses memory for each lane of a set, in order.
///
/// # Errors
///
/// The first lane for which `access` finds no memory.
pub fn each_lane(lanes: u32, mut access: impl FnMut(usize) -> Option<()>) -> Result<(), usize> {
    members(lanes).try_for_each(|lane| access(lane).ok_or(lane))
}

/// The lanes of a set, in order.
pub fn members(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}
