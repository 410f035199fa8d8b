//! Logic, shifts, and bits within words.
#![allow(clippy::cast_possible_truncation, clippy::cast_lossless, reason = "values are cut to their type's width")]

use crate::{Case, agrees};

const B16: &[&str] = &["b16", "b16", "b32"];
const B32: &[&str] = &["b32", "b32", "b32", "b32"];
const B64: &[&str] = &["b64", "b64", "b64", "b64"];
const B64_32: &[&str] = &["b64", "b64", "b32", "b32"];

fn byte(a: u64, b: u64, index: u64) -> u64 {
    (b << 32 | a) >> (8 * (index % 8)) & 0xff
}

/// Four bytes, the lowest first.
fn word(bytes: [u64; 4]) -> u64 {
    bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24
}

agrees!(
    logic_works_bit_by_bit,
    &[
        Case { text: "and.b32 %d, %a, %b;", types: B32, model: |a, b, _| a & b },
        Case { text: "or.b64 %d, %a, %b;", types: B64, model: |a, b, _| a | b },
        Case { text: "xor.b32 %d, %a, 0xff00ff00;", types: B32, model: |a, _, _| a ^ 0xff00_ff00 },
        Case { text: "not.b64 %d, %a;", types: B64, model: |a, _, _| !a },
        Case { text: "not.b16 %d, %a;", types: B16, model: |a, _, _| !a },
        Case { text: "cnot.b32 %d, %a;", types: B32, model: |a, _, _| (a == 0).into() },
        Case { text: "lop3.b32 %d, %a, %b, %c, 0x96;", types: B32, model: |a, b, c| a ^ b ^ c },
        Case { text: "lop3.b32 %d, %a, %b, %c, 0xca;", types: B32, model: |a, b, c| a & b | !a & c },
        Case { text: "lop3.b32 %d, %a, %b, %c, 0x01;", types: B32, model: |a, b, c| !a & !b & !c },
    ]
);

agrees!(
    shifts_of_the_width_and_more_leave_nothing,
    &[
        Case { text: "shl.b16 %d, %a, %b;", types: B16, model: |a, b, _| a.checked_shl(b as u32).unwrap_or(0) },
        Case { text: "shl.b32 %d, %a, %b;", types: B32, model: |a, b, _| a.checked_shl(b as u32).unwrap_or(0) },
        Case { text: "shl.b64 %d, %a, %b;", types: B64_32, model: |a, b, _| a.checked_shl(b as u32).unwrap_or(0) },
        Case { text: "shr.u32 %d, %a, %b;", types: B32, model: |a, b, _| a.checked_shr(b as u32).unwrap_or(0) },
        Case { text: "shr.s16 %d, %a, %b;", types: B16, model: |a, b, _| (i64::from(a as i16) >> b.min(63)) as u64 },
        Case { text: "shr.s32 %d, %a, %b;", types: B32, model: |a, b, _| (i64::from(a as i32) >> b.min(63)) as u64 },
        Case { text: "shr.s64 %d, %a, %b;", types: B64_32, model: |a, b, _| (a.cast_signed() >> b.min(63)) as u64 },
        Case { text: "shf.l.wrap.b32 %d, %a, %b, %c;", types: B32, model: |a, b, c| (b << 32 | a) << (c % 32) >> 32 },
        Case {
            text: "shf.l.clamp.b32 %d, %a, %b, %c;",
            types: B32,
            model: |a, b, c| if c >= 32 { a } else { (b << 32 | a) << c >> 32 }
        },
        Case { text: "shf.r.wrap.b32 %d, %a, %b, %c;", types: B32, model: |a, b, c| (b << 32 | a) >> (c % 32) },
        Case { text: "shf.r.clamp.b32 %d, %a, %b, %c;", types: B32, model: |a, b, c| (b << 32 | a) >> c.min(32) },
    ]
);

agrees!(
    bits_are_counted_and_found,
    &[
        Case { text: "popc.b32 %d, %a;", types: B32, model: |a, _, _| a.count_ones().into() },
        Case { text: "popc.b64 %d, %a;", types: &["b32", "b64"], model: |a, _, _| a.count_ones().into() },
        Case { text: "clz.b32 %d, %a;", types: B32, model: |a, _, _| (a as u32).leading_zeros().into() },
        Case { text: "clz.b64 %d, %a;", types: &["b32", "b64"], model: |a, _, _| a.leading_zeros().into() },
        Case { text: "brev.b32 %d, %a;", types: B32, model: |a, _, _| (a as u32).reverse_bits().into() },
        Case { text: "brev.b64 %d, %a;", types: B64, model: |a, _, _| a.reverse_bits() },
        Case { text: "bfind.u32 %d, %a;", types: B32, model: |a, _, _| a.checked_ilog2().map_or(u64::MAX, u64::from) },
        Case {
            text: "bfind.s32 %d, %a;",
            types: B32,
            model: |a, _, _| ((a as i32) ^ ((a as i32) >> 31))
                .cast_unsigned()
                .checked_ilog2()
                .map_or(u64::MAX, u64::from)
        },
        Case {
            text: "bfind.shiftamt.u64 %d, %a;",
            types: &["b32", "b64"],
            model: |a, _, _| a.checked_ilog2().map_or(u64::MAX, |bit| 63 - u64::from(bit))
        },
        Case {
            text: "bfind.s64 %d, %a;",
            types: &["b32", "b64"],
            model: |a, _, _| (a ^ (a.cast_signed() >> 63).cast_unsigned()).checked_ilog2().map_or(u64::MAX, u64::from)
        },
        Case {
            text: "fns.b32 %d, %a, 0, 3;",
            types: B32,
            model: |a, _, _| (0..32).filter(|bit| a >> bit & 1 == 1).nth(2).unwrap_or(u64::MAX),
        },
    ]
);

/// Bit by bit, as PTX describes it.
fn bfe(a: u64, position: u64, length: u64, width: u64, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let top = width - 1;
    let sign = if !signed || length == 0 { 0 } else { a >> (position + length - 1).min(top) & 1 };
    (0..width).fold(0, |d, i| {
        let bit = if i < length && position + i <= top { a >> (position + i) & 1 } else { sign };
        d | bit << i
    })
}

/// Bit by bit, as PTX describes it.
fn bfi(a: u64, b: u64, position: u64, length: u64, width: u64) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    (0..length).filter(|i| position + i < width).fold(b, |d, i| {
        let at = position + i;
        d & !(1 << at) | (a >> i & 1) << at
    })
}

agrees!(
    fields_are_taken_out_and_put_in,
    &[
        Case { text: "bfe.u32 %d, %a, %b, %c;", types: B32, model: |a, b, c| bfe(a, b, c, 32, false) },
        Case { text: "bfe.s32 %d, %a, %b, %c;", types: B32, model: |a, b, c| bfe(a, b, c, 32, true) },
        Case { text: "bfe.u64 %d, %a, %b, %c;", types: B64_32, model: |a, b, c| bfe(a, b, c, 64, false) },
        Case { text: "bfe.s64 %d, %a, %b, %c;", types: B64_32, model: |a, b, c| bfe(a, b, c, 64, true) },
        Case {
            text: "bfi.b32 %d, %a, 0x12345678, %b, %c;",
            types: B32,
            model: |a, b, c| bfi(a, 0x1234_5678, b, c, 32)
        },
        Case {
            text: "bfi.b64 %d, %a, 0x123456789abcdef0, %b, %c;",
            types: B64_32,
            model: |a, b, c| bfi(a, 0x1234_5678_9abc_def0, b, c, 64)
        },
        Case {
            text: "bmsk.clamp.b32 %d, %a, %b;",
            types: B32,
            model: |a, b, _| (0..32).filter(|i| *i >= a && *i - a < b).fold(0, |d, i| d | 1 << i)
        },
        Case {
            text: "bmsk.wrap.b32 %d, %a, %b;",
            types: B32,
            model: |a, b, _| (0..32).filter(|i| *i >= a % 32 && *i - a % 32 < b % 32).fold(0, |d, i| d | 1 << i)
        },
        Case { text: "szext.wrap.s32 %d, %a, %b;", types: B32, model: |a, b, _| bfe(a, 0, b % 32, 32, true) },
        Case { text: "szext.clamp.u32 %d, %a, %b;", types: B32, model: |a, b, _| bfe(a, 0, b.min(32), 32, false) },
    ]
);

agrees!(
    bytes_are_permuted_in_every_mode,
    &[
        Case {
            text: "prmt.b32 %d, %a, %b, %c;",
            types: B32,
            model: |a, b, c| {
                word([0, 1, 2, 3].map(|i| {
                    let selector = c >> (4 * i) & 15;
                    let value = byte(a, b, selector);
                    if selector >= 8 { if value >= 128 { 0xff } else { 0 } } else { value }
                }))
            },
        },
        Case {
            text: "prmt.b32.f4e %d, %a, %b, %c;",
            types: B32,
            model: |a, b, c| word([0, 1, 2, 3].map(|i| byte(a, b, c % 4 + i)))
        },
        Case {
            text: "prmt.b32.b4e %d, %a, %b, %c;",
            types: B32,
            model: |a, b, c| word([0, 7, 6, 5].map(|i| byte(a, b, c % 4 + i)))
        },
        Case { text: "prmt.b32.rc8 %d, %a, %b, %c;", types: B32, model: |a, b, c| word([byte(a, b, c % 4); 4]) },
        Case {
            text: "prmt.b32.ecl %d, %a, %b, %c;",
            types: B32,
            model: |a, b, c| word(
                [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]][c as usize % 4].map(|i| byte(a, b, i))
            )
        },
        Case {
            text: "prmt.b32.ecr %d, %a, %b, %c;",
            types: B32,
            model: |a, b, c| word(
                [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]][c as usize % 4].map(|i| byte(a, b, i))
            )
        },
        Case {
            text: "prmt.b32.rc16 %d, %a, %b, %c;",
            types: B32,
            model: |a, b, c| word([[0, 1, 0, 1], [2, 3, 2, 3]][c as usize % 2].map(|i| byte(a, b, i)))
        },
    ]
);
