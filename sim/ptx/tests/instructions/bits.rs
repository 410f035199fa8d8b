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
        Case("and.b32 %d, %a, %b;", B32, |a, b, _| a & b),
        Case("or.b64 %d, %a, %b;", B64, |a, b, _| a | b),
        Case("xor.b32 %d, %a, 0xff00ff00;", B32, |a, _, _| a ^ 0xff00_ff00),
        Case("not.b64 %d, %a;", B64, |a, _, _| !a),
        Case("not.b16 %d, %a;", B16, |a, _, _| !a),
        Case("cnot.b32 %d, %a;", B32, |a, _, _| (a == 0).into()),
        Case("lop3.b32 %d, %a, %b, %c, 0x96;", B32, |a, b, c| a ^ b ^ c),
        Case("lop3.b32 %d, %a, %b, %c, 0xca;", B32, |a, b, c| a & b | !a & c),
        Case("lop3.b32 %d, %a, %b, %c, 0x01;", B32, |a, b, c| !a & !b & !c),
    ]
);

agrees!(
    shifts_of_the_width_and_more_leave_nothing,
    &[
        Case("shl.b16 %d, %a, %b;", B16, |a, b, _| a.checked_shl(b as u32).unwrap_or(0)),
        Case("shl.b32 %d, %a, %b;", B32, |a, b, _| a.checked_shl(b as u32).unwrap_or(0)),
        Case("shl.b64 %d, %a, %b;", B64_32, |a, b, _| a.checked_shl(b as u32).unwrap_or(0)),
        Case("shr.u32 %d, %a, %b;", B32, |a, b, _| a.checked_shr(b as u32).unwrap_or(0)),
        Case("shr.s16 %d, %a, %b;", B16, |a, b, _| (i64::from(a as i16) >> b.min(63)) as u64),
        Case("shr.s32 %d, %a, %b;", B32, |a, b, _| (i64::from(a as i32) >> b.min(63)) as u64),
        Case("shr.s64 %d, %a, %b;", B64_32, |a, b, _| (a.cast_signed() >> b.min(63)) as u64),
        Case("shf.l.wrap.b32 %d, %a, %b, %c;", B32, |a, b, c| (b << 32 | a) << (c % 32) >> 32),
        Case("shf.l.clamp.b32 %d, %a, %b, %c;", B32, |a, b, c| if c >= 32 { a } else { (b << 32 | a) << c >> 32 }),
        Case("shf.r.wrap.b32 %d, %a, %b, %c;", B32, |a, b, c| (b << 32 | a) >> (c % 32)),
        Case("shf.r.clamp.b32 %d, %a, %b, %c;", B32, |a, b, c| (b << 32 | a) >> c.min(32)),
    ]
);

agrees!(
    bits_are_counted_and_found,
    &[
        Case("popc.b32 %d, %a;", B32, |a, _, _| a.count_ones().into()),
        Case("popc.b64 %d, %a;", &["b32", "b64"], |a, _, _| a.count_ones().into()),
        Case("clz.b32 %d, %a;", B32, |a, _, _| (a as u32).leading_zeros().into()),
        Case("clz.b64 %d, %a;", &["b32", "b64"], |a, _, _| a.leading_zeros().into()),
        Case("brev.b32 %d, %a;", B32, |a, _, _| (a as u32).reverse_bits().into()),
        Case("brev.b64 %d, %a;", B64, |a, _, _| a.reverse_bits()),
        Case("bfind.u32 %d, %a;", B32, |a, _, _| a.checked_ilog2().map_or(u64::MAX, u64::from)),
        Case("bfind.s32 %d, %a;", B32, |a, _, _| ((a as i32) ^ ((a as i32) >> 31))
            .cast_unsigned()
            .checked_ilog2()
            .map_or(u64::MAX, u64::from)),
        Case("bfind.shiftamt.u64 %d, %a;", &["b32", "b64"], |a, _, _| a
            .checked_ilog2()
            .map_or(u64::MAX, |bit| 63 - u64::from(bit))),
        Case("bfind.s64 %d, %a;", &["b32", "b64"], |a, _, _| (a ^ (a.cast_signed() >> 63).cast_unsigned())
            .checked_ilog2()
            .map_or(u64::MAX, u64::from)),
        Case("fns.b32 %d, %a, 0, 3;", B32, |a, _, _| (0..32)
            .filter(|bit| a >> bit & 1 == 1)
            .nth(2)
            .unwrap_or(u64::MAX)),
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
        Case("bfe.u32 %d, %a, %b, %c;", B32, |a, b, c| bfe(a, b, c, 32, false)),
        Case("bfe.s32 %d, %a, %b, %c;", B32, |a, b, c| bfe(a, b, c, 32, true)),
        Case("bfe.u64 %d, %a, %b, %c;", B64_32, |a, b, c| bfe(a, b, c, 64, false)),
        Case("bfe.s64 %d, %a, %b, %c;", B64_32, |a, b, c| bfe(a, b, c, 64, true)),
        Case("bfi.b32 %d, %a, 0x12345678, %b, %c;", B32, |a, b, c| bfi(a, 0x1234_5678, b, c, 32)),
        Case("bfi.b64 %d, %a, 0x123456789abcdef0, %b, %c;", B64_32, |a, b, c| bfi(a, 0x1234_5678_9abc_def0, b, c, 64)),
        Case("bmsk.clamp.b32 %d, %a, %b;", B32, |a, b, _| (0..32)
            .filter(|i| *i >= a && *i - a < b)
            .fold(0, |d, i| d | 1 << i)),
        Case("bmsk.wrap.b32 %d, %a, %b;", B32, |a, b, _| (0..32)
            .filter(|i| *i >= a % 32 && *i - a % 32 < b % 32)
            .fold(0, |d, i| d | 1 << i)),
        Case("szext.wrap.s32 %d, %a, %b;", B32, |a, b, _| bfe(a, 0, b % 32, 32, true)),
        Case("szext.clamp.u32 %d, %a, %b;", B32, |a, b, _| bfe(a, 0, b.min(32), 32, false)),
    ]
);

agrees!(
    bytes_are_permuted_in_every_mode,
    &[
        Case("prmt.b32 %d, %a, %b, %c;", B32, |a, b, c| {
            word([0, 1, 2, 3].map(|i| {
                let selector = c >> (4 * i) & 15;
                let value = byte(a, b, selector);
                if selector >= 8 { if value >= 128 { 0xff } else { 0 } } else { value }
            }))
        }),
        Case("prmt.b32.f4e %d, %a, %b, %c;", B32, |a, b, c| word([0, 1, 2, 3].map(|i| byte(a, b, c % 4 + i)))),
        Case("prmt.b32.b4e %d, %a, %b, %c;", B32, |a, b, c| word([0, 7, 6, 5].map(|i| byte(a, b, c % 4 + i)))),
        Case("prmt.b32.rc8 %d, %a, %b, %c;", B32, |a, b, c| word([byte(a, b, c % 4); 4])),
        Case("prmt.b32.ecl %d, %a, %b, %c;", B32, |a, b, c| word(
            [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3, 3, 3, 3]][c as usize % 4].map(|i| byte(a, b, i))
        )),
        Case("prmt.b32.ecr %d, %a, %b, %c;", B32, |a, b, c| word(
            [[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]][c as usize % 4].map(|i| byte(a, b, i))
        )),
        Case("prmt.b32.rc16 %d, %a, %b, %c;", B32, |a, b, c| word(
            [[0, 1, 0, 1], [2, 3, 2, 3]][c as usize % 2].map(|i| byte(a, b, i))
        )),
    ]
);
