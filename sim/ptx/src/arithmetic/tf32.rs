//! tf32: f32 with 10 bits of mantissa, in the upper 19 bits of a 32-bit register.

/// To the nearest, ties away from zero.
pub(crate) const AWAY: u8 = 0;
/// To the nearest, ties to even.
pub(crate) const EVEN: u8 = 1;
/// Towards zero.
pub(crate) const ZERO: u8 = 2;

/// The bits of an f32 that tf32 does not have.
const REST: u64 = 0x1fff;
const LARGEST: u64 = 0x7f7f_e000;
const INFINITY: u64 = 0x7f80_0000;
const NAN: u64 = 0x7fff_ffff;

/// The value of a register as f32.
pub(crate) fn value(bits: u64) -> f32 {
    f32::from_bits(u32::try_from(bits & 0xffff_ffff & !REST).unwrap_or(0))
}

/// An f32 rounded to tf32. `SATURATE` keeps it finite, `RELU` makes negative values zero, and NaN stays NaN.
pub(crate) fn round<const MODE: u8, const SATURATE: bool, const RELU: bool>(a: u64) -> u64 {
    let (sign, magnitude) = (a & 0x8000_0000, a & 0x7fff_ffff);
    if magnitude > INFINITY {
        return NAN;
    }
    if RELU && sign != 0 {
        return 0;
    }
    let up = match MODE {
        AWAY => REST.div_ceil(2),
        EVEN => REST / 2 + (magnitude >> 13 & 1),
        _ => 0,
    };
    let rounded = if magnitude == INFINITY { magnitude } else { (magnitude + up) & !REST };
    sign | if SATURATE { rounded.min(LARGEST) } else { rounded }
}
