//! Products of matrices whose elements are spread over the registers of a warp.
//!
//! The fragments of `mma` are those of the PTX ISA, "Matrix fragments for mma.m16n8k16" and its neighbours (9.7.14.5). Those
//! of `wmma` are unspecified there ("Matrix Fragments for WMMA", 9.7.14.4.1): any layout is right in which load, product and
//! store agree. Sums of f16, bf16 and tf32 are exact to 53 bits and rounded once, to the accumulator's type: the ISA asks for
//! single precision at least, in any order.
#![expect(clippy::cast_possible_truncation, reason = "values are cut to their type's width")]

use super::float::NAN_F32;
use super::half::to_f64;
use super::{sign_extend, tf32};
use crate::types::Type;
use half::f16;

/// The lanes of a warp.
pub(crate) const LANES: usize = 32;

/// The type of a matrix's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    BF16,
    TF32,
    F32,
    F64,
    S32,
    S8,
    U8,
    S4,
    U4,
}

impl Element {
    /// From its name in the source, without the dot.
    pub(crate) fn parse(name: &str) -> Option<Element> {
        Some(match name {
            "f16" => Element::F16,
            "bf16" => Element::BF16,
            "tf32" => Element::TF32,
            "f32" => Element::F32,
            "f64" => Element::F64,
            "s32" => Element::S32,
            "s8" => Element::S8,
            "u8" => Element::U8,
            "s4" => Element::S4,
            "u4" => Element::U4,
            _ => return None,
        })
    }

    pub(crate) fn bits(self) -> u32 {
        match self {
            Element::S4 | Element::U4 => 4,
            Element::S8 | Element::U8 => 8,
            Element::F16 | Element::BF16 => 16,
            Element::TF32 | Element::F32 | Element::S32 => 32,
            Element::F64 => 64,
        }
    }

    /// The type of the registers that hold such elements.
    pub(crate) fn register(self) -> Type {
        if self == Element::F64 { Type::B64 } else { Type::B32 }
    }

    /// The number of elements in a register.
    pub(crate) fn packed(self) -> u32 {
        self.register().bits() / self.bits()
    }

    fn is_integer(self) -> bool {
        matches!(self, Element::S32 | Element::S8 | Element::U8 | Element::S4 | Element::U4)
    }

    fn to_integer(self, bits: u64) -> i64 {
        match self {
            Element::U8 | Element::U4 => bits.cast_signed(),
            _ => sign_extend(bits, self.bits()).cast_signed(),
        }
    }

    fn to_float(self, bits: u64) -> f64 {
        match self {
            Element::F16 => to_f64(Type::F16, bits),
            Element::BF16 => to_f64(Type::BF16, bits),
            Element::TF32 => f64::from(tf32::value(bits)),
            Element::F64 => f64::from_bits(bits),
            _ => f64::from(f32::from_bits(bits as u32)),
        }
    }

    /// The bits of an accumulator's element.
    fn rounded(self, value: f64) -> u64 {
        match self {
            Element::F64 => value.to_bits(),
            Element::F16 if value.is_nan() => 0x7fff,
            Element::F16 => u64::from(f16::from_f64(value).to_bits()),
            _ if value.is_nan() => NAN_F32,
            _ => u64::from((value as f32).to_bits()),
        }
    }
}

/// The lane and register of each element of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// A factor of `mma`.
    Factor,
    /// An accumulator of `mma`; of `wmma` with 16 columns, two of them beside each other.
    Accumulator,
    /// Consecutive elements in each lane. Elements for which there are more registers than needed are repeated.
    Consecutive,
}

/// A matrix in the registers of a warp: `outer` by `inner`, of which the inner one is the sum's in a factor. Hence the
/// second factor is a matrix of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) element: Element,
    pub(crate) outer: u32,
    pub(crate) inner: u32,
    /// The number of registers in each lane.
    pub(crate) registers: u32,
    pub(crate) layout: Layout,
}

impl Fragment {
    /// A matrix in the fewest registers.
    pub(crate) fn new(element: Element, outer: u32, inner: u32, layout: Layout) -> Fragment {
        let registers = outer * inner * element.bits() / (element.register().bits() * LANES as u32);
        Fragment { element, outer, inner, registers, layout }
    }

    /// The outer and the inner index of element `part` of a register.
    pub(crate) fn place(&self, lane: u32, register: u32, part: u32) -> (u32, u32) {
        let packed = self.element.packed();
        let (group, member) = (lane / 4, lane % 4);
        match self.layout {
            Layout::Factor => {
                let halves = (self.outer / 8).max(1);
                (group + 8 * (register % halves), member * packed + part + 4 * packed * (register / halves))
            }
            Layout::Accumulator => {
                let at = register * packed + part;
                (group + 8 * (at / 2 % 2), member * 2 + at % 2 + 8 * (at / 4))
            }
            Layout::Consecutive => {
                let distinct = self.outer * self.inner / LANES as u32;
                let at = lane * distinct + (register * packed + part) % distinct;
                (at / self.inner, at % self.inner)
            }
        }
    }

    /// The matrix, of registers in the order of the lanes.
    fn gathered<T: Copy + Default>(&self, registers: &[u64], convert: impl Fn(u64) -> T) -> Vec<T> {
        let mut matrix = vec![T::default(); (self.outer * self.inner) as usize];
        self.each(|slot, shift, at| matrix[at] = convert(registers[slot] >> shift & self.mask()));
        matrix
    }

    fn scattered<T: Copy>(&self, matrix: &[T], convert: impl Fn(T) -> u64) -> Vec<u64> {
        let mut registers = vec![0; self.registers as usize * LANES];
        self.each(|slot, shift, at| registers[slot] |= (convert(matrix[at]) & self.mask()) << shift);
        registers
    }

    fn mask(&self) -> u64 {
        super::mask(self.element.bits())
    }

    /// Calls `f` with each element's register, its shift in it and its index in the matrix.
    fn each(&self, mut f: impl FnMut(usize, u32, usize)) {
        for lane in 0..LANES as u32 {
            for register in 0..self.registers {
                for part in 0..self.element.packed() {
                    let (outer, inner) = self.place(lane, register, part);
                    let slot = (lane * self.registers + register) as usize;
                    f(slot, part * self.element.bits(), (outer * self.inner + inner) as usize);
                }
            }
        }
    }
}

/// A product of matrices and a sum: `d = a * b + c`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) a: Fragment,
    pub(crate) b: Fragment,
    pub(crate) c: Fragment,
    pub(crate) d: Fragment,
    /// Whether integer sums are clamped to 32 bits, not cut.
    pub(crate) saturate: bool,
}

impl Product {
    /// The registers of the result. All registers are in the order of the lanes.
    pub(crate) fn of(&self, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
        let element = self.a.element;
        if element.is_integer() {
            let factors = (
                self.a.gathered(a, |bits| element.to_integer(bits)),
                self.b.gathered(b, |bits| self.b.element.to_integer(bits)),
            );
            let sum = self.c.gathered(c, |bits| Element::S32.to_integer(bits));
            let sum = self.sums(&factors.0, &factors.1, sum, |sum, a, b| sum + a * b);
            let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
            let fit = |sum: i64| if self.saturate { sum.clamp(*range.start(), *range.end()) } else { sum };
            return self.d.scattered(&sum, |sum| fit(sum).cast_unsigned());
        }
        let (a, b) =
            (self.a.gathered(a, |bits| element.to_float(bits)), self.b.gathered(b, |bits| element.to_float(bits)));
        let sum = self.c.gathered(c, |bits| self.c.element.to_float(bits));
        let sum = if element == Element::F64 {
            self.sums(&a, &b, sum, |sum, a, b| a.mul_add(b, sum))
        } else {
            self.sums(&a, &b, sum, |sum, a, b| sum + a * b)
        };
        self.d.scattered(&sum, |sum| self.d.element.rounded(sum))
    }

    fn sums<T: Copy>(&self, a: &[T], b: &[T], mut sum: Vec<T>, add: impl Fn(T, T, T) -> T) -> Vec<T> {
        let (k, columns) = (self.a.inner as usize, self.d.inner as usize);
        for (a, sums) in a.chunks(k).zip(sum.chunks_mut(columns)) {
            for (b, sum) in b.chunks(k).zip(sums) {
                *sum = a.iter().zip(b).fold(*sum, |sum, (&a, &b)| add(sum, a, b));
            }
        }
        sum
    }
}

/// Matrices of 8 by 8 elements of 16 bits.
const SIDE: usize = 8;

/// `ldmatrix`: what a lane gets of a matrix, whose rows are 16 bytes, as two words.
pub(crate) fn spread(rows: &[[u64; 2]], lane: usize, transposed: bool) -> u64 {
    let element = |row: usize, column: usize| rows[row][column / 4] >> (16 * (column % 4)) & 0xffff;
    let (group, member) = (lane / 4, lane % 4 * 2);
    if transposed {
        element(member, group) | element(member + 1, group) << 16
    } else {
        element(group, member) | element(group, member + 1) << 16
    }
}

/// `movmatrix`: what a lane gets of the transposed matrix.
pub(crate) fn transposed(a: &[u64], lane: usize) -> u64 {
    let element = |row: usize, column: usize| a[row * SIDE / 2 + column / 2] >> (16 * (column % 2)) & 0xffff;
    let (group, member) = (lane / 4, lane % 4 * 2);
    element(member, group) | element(member + 1, group) << 16
}
