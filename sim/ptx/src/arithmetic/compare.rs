//! Comparisons, whose results are predicates.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]
#![allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "one expression serves all widths")]

use super::comparison::Comparison;
use super::float::operand;
use super::lanewise::{WideBinary, lanewise};
use crate::types::Type;

macro_rules! ordered {
    ($comparison:expr, $t:ty) => {
        match $comparison {
            Comparison::Eq => lanewise!(|a, b| u64::from(a as $t == b as $t)),
            Comparison::Ne => lanewise!(|a, b| u64::from(a as $t != b as $t)),
            Comparison::Lt | Comparison::Lo => lanewise!(|a, b| u64::from((a as $t) < b as $t)),
            Comparison::Le | Comparison::Ls => lanewise!(|a, b| u64::from(a as $t <= b as $t)),
            Comparison::Gt | Comparison::Hi => lanewise!(|a, b| u64::from(a as $t > b as $t)),
            Comparison::Ge | Comparison::Hs => lanewise!(|a, b| u64::from(a as $t >= b as $t)),
            _ => return None,
        }
    };
}

macro_rules! unordered {
    ($comparison:expr, $read:expr, $($name:ident),+) => {
        match $comparison {
            $(Comparison::$name => lanewise!(|a, b| u64::from(Comparison::$name.holds($read(a), $read(b)))),)+
            _ => return None,
        }
    };
}

/// A comparison of two values of a type.
pub(crate) fn compare(type_: Type, comparison: Comparison, flush: bool) -> Option<WideBinary> {
    let unsigned_only = matches!(comparison, Comparison::Lo | Comparison::Ls | Comparison::Hi | Comparison::Hs);
    if unsigned_only && !type_.is_unsigned() {
        return None;
    }
    Some(match type_ {
        Type::B16 | Type::B32 | Type::B64 if !matches!(comparison, Comparison::Eq | Comparison::Ne) => return None,
        Type::U16 | Type::U32 | Type::B16 | Type::B32 => ordered!(comparison, u32),
        Type::U64 | Type::B64 => ordered!(comparison, u64),
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
        _ => return super::half::compare(type_, comparison, flush).map(WideBinary::from),
    })
}

fn flushed(bits: u64) -> f64 {
    f64::from(operand::<true>(bits))
}

fn single(bits: u64) -> f64 {
    f64::from(operand::<false>(bits))
}
