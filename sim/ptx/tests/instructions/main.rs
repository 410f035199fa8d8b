//! Single instructions against a model: over random operands and over those at the edges.

#![expect(clippy::expect_used, reason = "a test that panics fails")]

#[path = "../common/mod.rs"]
mod common;

mod bits;
mod cache;
mod compare;
mod constant;
mod convert;
mod float;
mod integer;
mod narrow;
mod pack;
mod parameters;
mod state;

use common::{Argument, Bench};
use proptest::prelude::*;

/// Three operands; an instruction looks at the low bits of those that it has.
pub(crate) type Operands = [u64; 3];

/// An instruction, which computes `%d` from `%a`, `%b` and `%c`; the types of those that are there, in this
/// order; and what it should compute.
pub(crate) struct Case(
    pub(crate) &'static str,
    pub(crate) &'static [&'static str],
    pub(crate) fn(u64, u64, u64) -> u64,
);

fn bits_of(type_: &str) -> u32 {
    type_.trim_start_matches(|letter: char| letter.is_ascii_alphabetic()).parse().expect("a type ends in its width")
}

/// The low bits that a type has.
pub(crate) fn cut(value: u64, type_: &str) -> u64 {
    let bits = bits_of(type_);
    if bits == 64 { value } else { value & ((1 << bits) - 1) }
}

/// A kernel whose thread `i` applies the instruction to the operands `i`.
pub(crate) fn kernel(text: &str, types: &[&str]) -> String {
    let mut source = String::from(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{\n\
         .reg .b64 %in, %out, %at; .reg .b32 %i; .reg .pred %p, %q;\n\
         ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %i, %tid.x;\n\
         mul.wide.u32 %at, %i, 24; add.u64 %in, %in, %at; mul.wide.u32 %at, %i, 8; add.u64 %out, %out, %at;\n",
    );
    for (index, (name, type_)) in ["d", "a", "b", "c"].iter().zip(types).enumerate() {
        let bits = bits_of(type_);
        source.push_str(&format!(".reg .b{bits} %{name};\n"));
        if index > 0 {
            source.push_str(&format!("ld.global.b{bits} %{name}, [%in+{}];\n", 8 * (index - 1)));
        }
    }
    source.push_str(&format!("{text}\nst.global.b{} [%out], %d;\nret;\n}}\n", bits_of(types[0])));
    source
}

/// The instruction's result for each set of operands.
pub(crate) fn evaluate(text: &str, types: &[&str], operands: &[Operands]) -> Vec<u64> {
    let mut bench = Bench::new(&kernel(text, types));
    let input = bench.array(&operands.concat());
    let out = bench.room(8 * operands.len());
    let threads = u32::try_from(operands.len()).expect("there are few");
    bench.run("k", 1, threads, &[input, out].map(Argument::P));
    bench.ram.read(out, operands.len())
}

/// Applies every case to the operands.
pub(crate) fn check(cases: &[Case], operands: &[Operands]) {
    for Case(text, types, model) in cases {
        let results = evaluate(text, types, operands);
        for (result, given) in results.iter().zip(operands) {
            let mut values = *given;
            for (value, type_) in values.iter_mut().zip(&types[1..]) {
                *value = cut(*value, type_);
            }
            let [a, b, c] = values;
            let expected = cut(model(a, b, c), types[0]);
            assert_eq!(*result, expected, "{text} of {a:#x}, {b:#x}, {c:#x}: {result:#x}, not {expected:#x}");
        }
    }
}

/// Values at the edges of the types, and any others.
pub(crate) fn value() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![
        0,
        1,
        2,
        31,
        32,
        33,
        63,
        64,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0xffff,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x1_0000_0000,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
        // Of f32: 1, -1, infinities, NaN, subnormal, largest.
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x0000_1234,
        0x8000_0001,
        0x7f7f_ffff,
        // Of f64: the same.
        0x3ff0_0000_0000_0000,
        0xbff0_0000_0000_0000,
        0x7ff0_0000_0000_0000,
        0xfff0_0000_0000_0000,
        0x7ff8_0000_0000_0000,
        0x0000_0000_1234_5678,
        0x7fef_ffff_ffff_ffff,
    ]);
    prop_oneof![edges, any::<u64>(), any::<u32>().prop_map(u64::from), any::<u8>().prop_map(u64::from)]
}

pub(crate) fn operands() -> impl Strategy<Value = Vec<Operands>> {
    prop::collection::vec([value(), value(), value()], 32..64)
}

/// A property test of a table of cases.
macro_rules! agrees {
    ($name:ident, $cases:expr) => {
        proptest::proptest! {
            #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, cases: 24, ..Default::default() })]
            #[test]
            fn $name(operands in crate::operands()) {
                crate::check($cases, &operands);
            }
        }
    };
}
pub(crate) use agrees;
