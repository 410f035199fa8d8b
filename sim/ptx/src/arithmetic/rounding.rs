//! Rounding modes that the processor does not provide: towards zero, down and up, and rounding to halves.

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

/// The rounding modes `.rn` and so on, as integers for use as const parameters.
pub(crate) const NEAREST: u8 = 0;
pub(crate) const ZERO: u8 = 1;
pub(crate) const DOWN: u8 = 2;
pub(crate) const UP: u8 = 3;

pub(crate) fn round(mode: u8) -> Round {
    match mode {
        ZERO => Round::TowardZero,
        DOWN => Round::TowardNegative,
        UP => Round::TowardPositive,
        _ => Round::NearestTiesToEven,
    }
}

/// A format of rustc_apfloat whose values we hold as bits.
pub(crate) trait Format: Float {
    /// The value of these bits.
    fn of(bits: u64) -> Self {
        Self::from_bits(u128::from(bits))
    }

    /// The bits of the value.
    fn bits(self) -> u64 {
        // No format here has more than 64 bits.
        u64::try_from(self.to_bits()).unwrap_or_default()
    }
}

impl Format for Half {}
impl Format for BFloat {}
impl Format for Single {}
impl Format for Double {}

pub(crate) fn add<F: Format>(a: u64, b: u64, mode: u8) -> u64 {
    F::of(a).add_r(F::of(b), round(mode)).value.bits()
}

pub(crate) fn sub<F: Format>(a: u64, b: u64, mode: u8) -> u64 {
    F::of(a).sub_r(F::of(b), round(mode)).value.bits()
}

pub(crate) fn mul<F: Format>(a: u64, b: u64, mode: u8) -> u64 {
    F::of(a).mul_r(F::of(b), round(mode)).value.bits()
}

pub(crate) fn div<F: Format>(a: u64, b: u64, mode: u8) -> u64 {
    F::of(a).div_r(F::of(b), round(mode)).value.bits()
}

pub(crate) fn fma<F: Format>(a: u64, b: u64, c: u64, mode: u8) -> u64 {
    F::of(a).mul_add_r(F::of(b), F::of(c), round(mode)).value.bits()
}

/// From one format to another.
pub(crate) fn convert<F: Format + FloatConvert<T>, T: Format>(value: u64, mode: u8) -> u64 {
    F::of(value).convert_r(round(mode), &mut false).value.bits()
}

pub(crate) fn from_integer<F: Format>(value: i128, mode: u8) -> u64 {
    F::from_i128_r(value, round(mode)).value.bits()
}

/// The nearest root, adjusted by one unit in the last place if it is on the wrong side.
pub(crate) fn sqrt_f32(x: f32, mode: u8) -> f32 {
    let root = x.sqrt();
    if mode == NEAREST || !root.is_finite() || root == 0.0 {
        return root;
    }
    // The square of 24 bits is exact in 53.
    let square = f64::from(root) * f64::from(root);
    step(square, f64::from(x), mode, root, f32::next_down, f32::next_up)
}

/// The nearest root, adjusted by one unit in the last place if it is on the wrong side.
pub(crate) fn sqrt_f64(x: f64, mode: u8) -> f64 {
    let root = x.sqrt();
    if mode == NEAREST || !root.is_finite() || root == 0.0 {
        return root;
    }
    // Scaled by powers of two, so that the residue of small numbers does not vanish.
    let (big, small) = if x < 1e-200 { (x * 2f64.powi(400), root * 2f64.powi(200)) } else { (x, root) };
    let residue = small.mul_add(small, -big);
    step(residue, 0.0, mode, root, f64::next_down, f64::next_up)
}

fn step<T>(square: f64, x: f64, mode: u8, root: T, down: fn(T) -> T, up: fn(T) -> T) -> T {
    match mode {
        UP if square < x => up(root),
        ZERO | DOWN if square > x => down(root),
        _ => root,
    }
}
