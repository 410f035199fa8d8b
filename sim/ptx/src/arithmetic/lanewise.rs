//! Functions over the values of all lanes of a warp at once.
//!
//! Each exists twice: for one value, and as a loop over the lanes that the compiler turns into vector instructions. The
//! loop covers every lane, so the function must be total: it must not panic for any bits of a lane that does not execute.

use super::{Binary, Ternary, Unary};

/// The number of lanes of a warp.
pub(crate) const LANES: usize = 32;

/// A value for each lane.
pub(crate) type Lanes = [u64; LANES];

macro_rules! wide {
    ($name:ident, $one:ident, $($operand:ident),+) => {
        #[doc = concat!("A [`", stringify!($one), "`] with its loop over the lanes; without one, each lane is a call.")]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name {
            pub(crate) one: $one,
            pub(crate) all: Option<fn($(wide!(@lanes $operand)),+, &mut Lanes)>,
        }

        impl From<$one> for $name {
            fn from(one: $one) -> $name {
                $name { one, all: None }
            }
        }
    };
    (@lanes $operand:ident) => { &Lanes };
}

wide!(WideUnary, Unary, a);
wide!(WideBinary, Binary, a, b);
wide!(WideTernary, Ternary, a, b, c);

impl WideBinary {
    /// The function without its loop.
    pub(crate) fn one_by_one(self) -> WideBinary {
        WideBinary::from(self.one)
    }
}

/// Makes a wide function of a closure, or of the name of a function after the number of its operands.
macro_rules! lanewise {
    (|$a:ident| $body:expr) => {
        $crate::arithmetic::lanewise::lanewise!(1, |$a: u64| -> u64 { $body })
    };
    (|$a:ident, $b:ident| $body:expr) => {
        $crate::arithmetic::lanewise::lanewise!(2, |$a: u64, $b: u64| -> u64 { $body })
    };
    (|$a:ident, $b:ident, $c:ident| $body:expr) => {
        $crate::arithmetic::lanewise::lanewise!(3, |$a: u64, $b: u64, $c: u64| -> u64 { $body })
    };
    // Shifts: processors shift several lanes by one count.
    (shift |$a:ident, $b:ident| $body:expr) => {
        $crate::arithmetic::lanewise::WideBinary {
            one: |$a: u64, $b: u64| -> u64 { $body },
            all: Some(|a, b, out| {
                let f = |$a: u64, $b: u64| -> u64 { $body };
                let first = b[0];
                if b.iter().fold(0, |differs, b| differs | (b ^ first)) == 0 {
                    for (out, &a) in out.iter_mut().zip(a) {
                        *out = f(a, first);
                    }
                } else {
                    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                        *out = f(a, b);
                    }
                }
            }),
        }
    };
    (1, $f:expr) => {
        $crate::arithmetic::lanewise::WideUnary {
            one: $f,
            all: Some(|a, out| {
                for (out, &a) in out.iter_mut().zip(a) {
                    *out = ($f)(a);
                }
            }),
        }
    };
    (2, $f:expr) => {
        $crate::arithmetic::lanewise::WideBinary {
            one: $f,
            all: Some(|a, b, out| {
                for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
                    *out = ($f)(a, b);
                }
            }),
        }
    };
    (3, $f:expr) => {
        $crate::arithmetic::lanewise::WideTernary {
            one: $f,
            all: Some(|a, b, c, out| {
                for (((out, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) {
                    *out = ($f)(a, b, c);
                }
            }),
        }
    };
}
pub(crate) use lanewise;

#[cfg(test)]
mod tests {
    use super::{LANES, Lanes, WideBinary, WideTernary, WideUnary};
    use crate::arithmetic::comparison::Comparison;
    use crate::arithmetic::convert::{Convert, extend};
    use crate::arithmetic::float::{self, Extreme, Style};
    use crate::arithmetic::{bits, compare, integer};
    use crate::types::Type;
    use proptest::prelude::*;

    const TYPES: [Type; 15] = [
        Type::Pred,
        Type::B8,
        Type::B16,
        Type::B32,
        Type::B64,
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::S8,
        Type::S16,
        Type::S32,
        Type::S64,
        Type::F32,
        Type::F64,
    ];

    fn flags() -> impl Iterator<Item = (bool, bool)> {
        [(false, false), (false, true), (true, false), (true, true)].into_iter()
    }

    fn styles() -> impl Iterator<Item = Style> {
        flags().map(|(flush, saturate)| Style { round: 0, flush, saturate })
    }

    fn unary(t: Type) -> Vec<WideUnary> {
        let mut all = vec![integer::abs(t), integer::neg(t), bits::not(t), bits::cnot(t), bits::popc(t)];
        all.extend([bits::clz(t), bits::brev(t), float::neg(t, true), float::neg(t, false)]);
        all.extend([float::abs(t, true), float::abs(t, false)]);
        all.extend(styles().flat_map(|style| [float::rcp(t, style), float::sqrt(t, style)]));
        for to in TYPES {
            all.extend([16, 32, 64].map(|width| extend(t, to, width)));
            for round in 0..2 {
                let width = u8::try_from(to.bits()).unwrap_or(64);
                let (integral, flush, saturate, relu) = (t.is_float(), false, false, false);
                all.push(Convert { from: t, to, round, integral, flush, saturate, relu, width }.common());
            }
        }
        all.into_iter().flatten().collect()
    }

    fn binary(t: Type) -> Vec<WideBinary> {
        use integer::{add, div, max, min, mul_high, mul_low, mul_wide, rem, sub};
        let mut all: Vec<_> =
            [add, sub, mul_low, mul_high, mul_wide, div, rem, min, max].iter().map(|f| f(t)).collect();
        all.extend([bits::and(t), bits::or(t), bits::xor(t), bits::shl(t), bits::shr(t), float::copysign(t)]);
        all.extend(styles().flat_map(|style| [float::add, float::sub, float::mul, float::div].map(|f| f(t, style))));
        for ((larger, flush), (nan, xor_sign)) in flags().flat_map(|first| flags().map(move |second| (first, second))) {
            all.push(float::extreme(t, Extreme { larger, flush, nan, xor_sign }));
        }
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "lo", "hs", "equ", "neu", "ltu", "geu", "num", "nan"] {
            let comparison = Comparison::parse(name);
            all.extend(comparison.map(|comparison| compare::compare(t, comparison, t == Type::F32)));
            all.extend(comparison.map(|comparison| compare::compare(t, comparison, false)));
        }
        all.into_iter().flatten().collect()
    }

    fn ternary(t: Type) -> Vec<WideTernary> {
        let mut all = vec![integer::mad_low(t), integer::mad_high(t), integer::mad_wide(t), integer::sad(t)];
        all.extend(styles().map(|style| float::fma(t, style)));
        all.into_iter().flatten().collect()
    }

    /// NaNs of f64 keep bits of an operand, and which operand is up to the compiler.
    fn same(a: u64, b: u64) -> bool {
        a == b || f64::from_bits(a).is_nan() && f64::from_bits(b).is_nan()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Inactive lanes have any bits, even more than the type: no function panics, nor differs from that for one value.
        #[test]
        fn a_loop_over_lanes_is_total_and_agrees_with_the_function(
            a in any::<Lanes>(), b in any::<Lanes>(), c in any::<Lanes>(), shift in any::<Option<u8>>(), cut in 0u32..64,
        ) {
            let a = a.map(|a| a >> cut);
            let b = shift.map_or(b, |shift| [u64::from(shift); LANES]);
            let mut out = [0; LANES];
            for t in TYPES {
                for f in unary(t) {
                    let Some(all) = f.all else { continue };
                    all(&a, &mut out);
                    prop_assert!((0..LANES).all(|i| same(out[i], (f.one)(a[i]))), "{t:?}");
                }
                for f in binary(t) {
                    let Some(all) = f.all else { continue };
                    all(&a, &b, &mut out);
                    prop_assert!((0..LANES).all(|i| same(out[i], (f.one)(a[i], b[i]))), "{t:?}");
                }
                for f in ternary(t) {
                    let Some(all) = f.all else { continue };
                    all(&a, &b, &c, &mut out);
                    prop_assert!((0..LANES).all(|i| same(out[i], (f.one)(a[i], b[i], c[i]))), "{t:?}");
                }
            }
        }
    }
}
