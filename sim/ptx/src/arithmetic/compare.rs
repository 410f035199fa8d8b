//! Comparisons, whose results are predicates.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]
#![allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "one expression serves all widths")]

use super::Binary;
use super::float::operand;
use crate::types::Type;

/// The unordered ones (`Equ` and so on) are also true if an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Unsigned, like those of `.u` types.
    Lo,
    Ls,
    Hi,
    Hs,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

impl Comparison {
    /// From its name in the source, without the dot.
    pub(crate) fn parse(name: &str) -> Option<Comparison> {
        Some(match name {
            "eq" => Comparison::Eq,
            "ne" => Comparison::Ne,
            "lt" => Comparison::Lt,
            "le" => Comparison::Le,
            "gt" => Comparison::Gt,
            "ge" => Comparison::Ge,
            "lo" => Comparison::Lo,
            "ls" => Comparison::Ls,
            "hi" => Comparison::Hi,
            "hs" => Comparison::Hs,
            "equ" => Comparison::Equ,
            "neu" => Comparison::Neu,
            "ltu" => Comparison::Ltu,
            "leu" => Comparison::Leu,
            "gtu" => Comparison::Gtu,
            "geu" => Comparison::Geu,
            "num" => Comparison::Num,
            "nan" => Comparison::Nan,
            _ => return None,
        })
    }
}

/// Compares floating-point values.
pub(crate) fn floats(comparison: Comparison, a: f64, b: f64) -> bool {
    let unordered = a.is_nan() || b.is_nan();
    match comparison {
        Comparison::Eq => a == b,
        Comparison::Ne => !unordered && a != b,
        Comparison::Lt | Comparison::Lo => a < b,
        Comparison::Le | Comparison::Ls => a <= b,
        Comparison::Gt | Comparison::Hi => a > b,
        Comparison::Ge | Comparison::Hs => a >= b,
        Comparison::Equ => unordered || a == b,
        Comparison::Neu => a != b,
        Comparison::Ltu => unordered || a < b,
        Comparison::Leu => unordered || a <= b,
        Comparison::Gtu => unordered || a > b,
        Comparison::Geu => unordered || a >= b,
        Comparison::Num => !unordered,
        Comparison::Nan => unordered,
    }
}

macro_rules! ordered {
    ($comparison:expr, $t:ty) => {
        match $comparison {
            Comparison::Eq => |a, b| u64::from(a as $t == b as $t),
            Comparison::Ne => |a, b| u64::from(a as $t != b as $t),
            Comparison::Lt | Comparison::Lo => |a, b| u64::from((a as $t) < b as $t),
            Comparison::Le | Comparison::Ls => |a, b| u64::from(a as $t <= b as $t),
            Comparison::Gt | Comparison::Hi => |a, b| u64::from(a as $t > b as $t),
            Comparison::Ge | Comparison::Hs => |a, b| u64::from(a as $t >= b as $t),
            _ => return None,
        }
    };
}

macro_rules! unordered {
    ($comparison:expr, $read:expr, $($name:ident),+) => {
        match $comparison {
            $(Comparison::$name => |a, b| u64::from(floats(Comparison::$name, $read(a), $read(b))),)+
            _ => return None,
        }
    };
}

/// A comparison of two values of a type.
pub(crate) fn compare(type_: Type, comparison: Comparison, flush: bool) -> Option<Binary> {
    let unsigned_only = matches!(comparison, Comparison::Lo | Comparison::Ls | Comparison::Hi | Comparison::Hs);
    if unsigned_only && !type_.is_unsigned() {
        return None;
    }
    Some(match type_ {
        Type::B16 | Type::B32 | Type::B64 if !matches!(comparison, Comparison::Eq | Comparison::Ne) => return None,
        Type::U16 | Type::U32 | Type::U64 | Type::B16 | Type::B32 | Type::B64 => ordered!(comparison, u64),
        Type::S16 => ordered!(comparison, i16),
        Type::S32 => ordered!(comparison, i32),
        Type::S64 => ordered!(comparison, i64),
        Type::F32 if flush => {
            unordered!(comparison, flushed, Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan)
        }
        Type::F32 => unordered!(comparison, single, Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan),
        Type::F64 => {
            unordered!(comparison, f64::from_bits, Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan)
        }
        _ => return super::half::compare(type_, comparison, flush),
    })
}

fn flushed(bits: u64) -> f64 {
    f64::from(operand::<true>(bits))
}

fn single(bits: u64) -> f64 {
    f64::from(operand::<false>(bits))
}
