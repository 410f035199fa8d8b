//! Conversions between all types.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]
#![expect(clippy::cast_precision_loss, reason = "the processor rounds to nearest, as asked")]

use super::float::{NAN_F32, f32_of, f64_of};
use super::half::to_f64;
use super::lanewise::{WideUnary, lanewise};
use super::rounding::{self, DOWN, NEAREST, UP, ZERO};
use super::{mask, sign_extend};
use crate::types::Type;
use rustc_apfloat::ieee::{BFloat, Double, Half, Single};

/// A `cvt`, except between integers without saturation, which is [`extend`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convert {
    pub(crate) from: Type,
    pub(crate) to: Type,
    /// A mode of [`rounding`].
    pub(crate) round: u8,
    /// Between values of one type: round to an integer.
    pub(crate) integral: bool,
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    /// Negative results become zero, and NaN the canonical one.
    pub(crate) relu: bool,
    /// The width of the destination's register, to which signed results are extended.
    pub(crate) width: u8,
}

impl Convert {
    pub(crate) fn apply(&self, value: u64) -> u64 {
        match (self.from.is_float(), self.to.is_float()) {
            (false, false) => self.fit(self.integer(value)),
            (false, true) => self.float_from(self.integer(value)),
            (true, false) => self.integer_from(self.flushed(value)),
            (true, true) => self.finish(self.between(value)),
        }
    }

    /// The conversion as one function, for the most frequent ones.
    pub(crate) fn common(&self) -> Option<WideUnary> {
        let whole = u32::from(self.width) == self.to.bits();
        if self.flush || self.saturate || self.relu || !whole {
            return None;
        }
        Some(match (self.from, self.to, self.round, self.integral) {
            (Type::S32, Type::F32, NEAREST, _) => lanewise!(|a| u64::from((a as i32 as f32).to_bits())),
            (Type::U32, Type::F32, NEAREST, _) => lanewise!(|a| u64::from((a as u32 as f32).to_bits())),
            (Type::S64, Type::F32, NEAREST, _) => lanewise!(|a| u64::from((a.cast_signed() as f32).to_bits())),
            (Type::U64, Type::F32, NEAREST, _) => lanewise!(|a| u64::from((a as f32).to_bits())),
            (Type::S32, Type::F64, NEAREST, _) => lanewise!(|a| f64::from(a as i32).to_bits()),
            (Type::U32, Type::F64, NEAREST, _) => lanewise!(|a| f64::from(a as u32).to_bits()),
            (Type::S64, Type::F64, NEAREST, _) => lanewise!(|a| (a.cast_signed() as f64).to_bits()),
            (Type::U64, Type::F64, NEAREST, _) => lanewise!(|a| (a as f64).to_bits()),
            (Type::F32, Type::F64, ..) => lanewise!(|a| {
                let a = f64::from(f32_of(a));
                if a.is_nan() { nan(Type::F64) } else { a.to_bits() }
            }),
            (Type::F64, Type::F32, NEAREST, _) => lanewise!(|a| {
                let a = f64_of(a) as f32;
                if a.is_nan() { NAN_F32 } else { u64::from(a.to_bits()) }
            }),
            // The casts saturate, and make zero of NaN.
            (Type::F32, Type::S32, ZERO, _) => lanewise!(|a| u64::from((f32_of(a) as i32).cast_unsigned())),
            (Type::F32, Type::U32, ZERO, _) => lanewise!(|a| u64::from(f32_of(a) as u32)),
            _ => return None,
        })
    }

    fn integer(&self, value: u64) -> i128 {
        let bits = self.from.bits();
        if self.from.is_signed() {
            i128::from(sign_extend(value, bits).cast_signed())
        } else {
            i128::from(value & mask(bits))
        }
    }

    /// Clamps if required, truncates, and extends to the register.
    fn fit(&self, value: i128) -> u64 {
        self.cut(if self.saturate { clamp(value, self.to) } else { value })
    }

    /// Truncates, and extends to the register.
    fn cut(&self, value: i128) -> u64 {
        let bits = self.to.bits();
        let low = value as u64 & mask(bits);
        let wide = if self.to.is_signed() { sign_extend(low, bits) } else { low };
        wide & mask(u32::from(self.width))
    }

    /// Values out of range are always clamped. NaN becomes zero; from f64 or to 64 bits, only the highest bit, which no clamp
    /// changes.
    fn integer_from(&self, value: f64) -> u64 {
        if value.is_nan() {
            let wide = self.from == Type::F64 || self.to.bits() == 64;
            return if wide { self.cut(1 << (self.to.bits() - 1)) } else { 0 };
        }
        // The cast saturates, and holds every 64-bit integer.
        self.cut(clamp(integral(value, self.round) as i128, self.to))
    }

    fn float_from(&self, value: i128) -> u64 {
        let value = if self.saturate { value.clamp(0, 1) } else { value };
        match (self.to, self.round) {
            (Type::F32, NEAREST) => u64::from((value as f32).to_bits()),
            (Type::F64, NEAREST) => (value as f64).to_bits(),
            (Type::F32, mode) => rounding::from_integer::<Single>(value, mode),
            (Type::F64, mode) => rounding::from_integer::<Double>(value, mode),
            (Type::BF16, mode) => rounding::from_integer::<BFloat>(value, mode),
            (_, mode) => rounding::from_integer::<Half>(value, mode),
        }
    }

    /// The operand as f64, which holds every value of the other formats.
    fn flushed(&self, value: u64) -> f64 {
        match self.from {
            Type::F64 => f64_of(value),
            Type::F32 => f64::from(flush(f32_of(value), self.flush)),
            narrow => to_f64(narrow, value),
        }
    }

    fn between(&self, value: u64) -> u64 {
        let wide = self.flushed(value);
        if wide.is_nan() {
            return nan(self.to);
        }
        let wide = if self.integral { integral(wide, self.round) } else { wide };
        if self.from == self.to && !self.integral && !self.flush {
            return value;
        }
        match (self.to, self.round) {
            (Type::F64, _) => wide.to_bits(),
            (Type::F32, NEAREST) => u64::from((wide as f32).to_bits()),
            (Type::F32, mode) => rounding::convert::<Double, Single>(wide.to_bits(), mode),
            (Type::BF16, mode) => rounding::convert::<Double, BFloat>(wide.to_bits(), mode),
            (_, mode) => rounding::convert::<Double, Half>(wide.to_bits(), mode),
        }
    }

    /// Flushes and saturates a result.
    fn finish(&self, bits: u64) -> u64 {
        let as_number = Convert { from: self.to, flush: false, ..*self }.flushed(bits);
        if self.relu && as_number <= 0.0 {
            return 0;
        }
        if self.saturate {
            let one = || Convert { from: Type::S32, saturate: false, ..*self }.float_from(1);
            return if as_number >= 1.0 {
                one()
            } else if as_number > 0.0 {
                bits
            } else {
                0
            };
        }
        if self.to == Type::F32 && self.flush && !as_number.is_nan() {
            return u64::from(flush(f32_of(bits), true).to_bits());
        }
        bits
    }
}

fn flush(value: f32, flushes: bool) -> f32 {
    if flushes && value.is_subnormal() { 0f32.copysign(value) } else { value }
}

fn nan(type_: Type) -> u64 {
    match type_ {
        Type::F64 => 0x7fff_ffff_ffff_ffff,
        Type::F32 => NAN_F32,
        _ => 0x7fff,
    }
}

fn integral(value: f64, mode: u8) -> f64 {
    match mode {
        ZERO => value.trunc(),
        DOWN => value.floor(),
        UP => value.ceil(),
        _ => value.round_ties_even(),
    }
}

fn clamp(value: i128, type_: Type) -> i128 {
    let bits = type_.bits();
    if type_.is_signed() {
        value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        value.clamp(0, (1 << bits) - 1)
    }
}

/// Conversions between integers, the common cases in one step; [`Convert`] does the others.
pub(crate) fn extend(from: Type, to: Type, width: u32) -> Option<WideUnary> {
    let (signed, bits, width) = if to.bits() <= from.bits() {
        (to.is_signed(), to.bits(), width)
    } else if width == to.bits() {
        (from.is_signed(), from.bits(), width)
    } else {
        return None;
    };
    Some(match (signed, bits, width) {
        (false, 8, _) | (true, 8, 8) => lanewise!(|a| a & 0xff),
        (false, 16, _) | (true, 16, 16) => lanewise!(|a| a & 0xffff),
        (false, 32, _) | (true, 32, 32) => lanewise!(|a| a & 0xffff_ffff),
        (_, 64, _) => lanewise!(|a| a),
        (true, 8, 16) => lanewise!(|a| sign_extend(a, 8) & 0xffff),
        (true, 8, 32) => lanewise!(|a| sign_extend(a, 8) & 0xffff_ffff),
        (true, 8, 64) => lanewise!(|a| sign_extend(a, 8)),
        (true, 16, 32) => lanewise!(|a| sign_extend(a, 16) & 0xffff_ffff),
        (true, 16, 64) => lanewise!(|a| sign_extend(a, 16)),
        (true, 32, 64) => lanewise!(|a| sign_extend(a, 32)),
        _ => return None,
    })
}
