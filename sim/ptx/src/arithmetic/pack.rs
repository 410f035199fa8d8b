//! `cvt.pack`: saturates integers and packs them.

use super::mask;

/// Two 32-bit integers as saturated elements of `BITS` bits, `a` above `b`, and `c` above both.
pub(crate) fn pack<const BITS: u32, const SIGNED: bool>(a: u64, b: u64, c: u64) -> u64 {
    let (least, most) = if SIGNED { (-(1 << (BITS - 1)), (1 << (BITS - 1)) - 1) } else { (0, (1 << BITS) - 1) };
    let element = |value: u64| {
        let value = super::sign_extend(value, 32).cast_signed().clamp(least, most);
        value.cast_unsigned() & mask(BITS)
    };
    (c << (2 * BITS) | element(a) << BITS | element(b)) & mask(32)
}
