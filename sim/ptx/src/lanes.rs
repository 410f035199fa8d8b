//! Sets of a warp's lanes, a bit for each.

/// The lanes of a set, in order.
pub fn members(mut set: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}
