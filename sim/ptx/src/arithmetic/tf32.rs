//! tf32: f32 with 10 bits of mantissa, in the upper 19 bits of a 32-bit register.

/// The bits of an f32 that tf32 does not have.
const REST: u64 = 0x1fff;
const INFINITY: u64 = 0x7f80_0000;
const NAN: u64 = 0x7fff_ffff;

/// The value of a register as f32.
pub(crate) fn value(bits: u64) -> f32 {
    f32::from_bits(u32::try_from(bits & 0xffff_ffff & !REST).unwrap_or(0))
}

/// An f32 rounded to the nearest tf32, ties away from zero. NaN stays NaN.
pub(crate) fn round(a: u64) -> u64 {
    let (sign, magnitude) = (a & 0x8000_0000, a & 0x7fff_ffff);
    match magnitude {
        INFINITY => a & 0xffff_ffff,
        ..INFINITY => sign | (magnitude + REST.div_ceil(2)) & !REST,
        _ => NAN,
    }
}
