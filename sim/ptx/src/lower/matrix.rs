//! Lowers the products of matrices by a warp, and what loads, stores and transposes their fragments.

use super::operand::Address;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, append, operands};
use crate::arithmetic::lanewise::lanewise;
use crate::arithmetic::matrix::{Element, Fragment, Layout, Product};
use crate::ast::Operand;
use crate::op::{Access, Matrix, Op, Slot, Special, Tile, WarpKind};
use crate::types::Type;
use crate::window::Window;

/// Rows of the result, its columns, and the length of the sums.
type Shape = (u32, u32, u32);

const ALL_LANES: u64 = 0xffff_ffff;

impl<'a> Lower<'_, 'a> {
    pub(super) fn matrix(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let what =
            if i.opcode == "wmma" { m.take_any(&["load", "store", "mma"]).ok_or(UNSUPPORTED)? } else { i.opcode };
        if !m.take("sync") || !m.take("aligned") {
            return Err(UNSUPPORTED);
        }
        match what {
            "ldmatrix" => self.load_matrices(i, m),
            "movmatrix" => self.transpose(i, m),
            "load" => self.load_tile(i, m),
            "store" => self.store_tile(i, m),
            _ => self.product(i, m),
        }
    }

    fn product(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let of_wmma = i.opcode == "wmma";
        let (first, second) = (layout(m)?, layout(m)?);
        let shape = shape(m)?;
        let types: Vec<Element> = std::iter::from_fn(|| m.take_with(Element::parse)).collect();
        let (d, a, b, c) = match types[..] {
            [d, a, b, c] => (d, a, b, c),
            [d, c] if of_wmma => (d, Element::F16, Element::F16, c),
            _ => return Err(UNSUPPORTED),
        };
        // The factors of mma are always a matrix of rows and one of columns.
        let is_known = if of_wmma { has_tiles(a, shape) } else { has_product(a, shape) && first && !second };
        if !is_known || !match_types([d, a, b, c], !of_wmma) {
            return Err(UNSUPPORTED);
        }
        if a == Element::F64 {
            m.take("rn");
        }
        let saturate = d == Element::S32 && m.take("satfinite");
        let [of_d, of_a, of_b, of_c] = if of_wmma {
            [tile("d", d, shape), tile("a", a, shape), tile("b", b, shape), tile("c", c, shape)]
        } else {
            let (rows, columns, k) = shape;
            let factor = |element, outer| Fragment::new(element, outer, k, Layout::Factor);
            let accumulator = |element| Fragment::new(element, rows, columns, Layout::Accumulator);
            [accumulator(d), factor(a, rows), factor(b, columns), accumulator(c)]
        };
        let [d, a, b, c] = operands(i)?;
        let a = self.sources(a, of_a)?;
        let b = self.sources(b, of_b)?;
        let c = self.sources(c, of_c)?;
        let d = self.destinations(d, of_d)?;
        let product = Product { a: of_a, b: of_b, c: of_c, d: of_d, saturate };
        self.emit_matrix(Matrix::Product { product, a, b, c, d })
    }

    /// The registers of an operand in braces.
    fn sources(&mut self, operand: &Operand<'a>, fragment: Fragment) -> Lowered<Vec<Slot>> {
        let registers = vector(operand, fragment.registers)?;
        registers.iter().map(|register| self.source(register, fragment.element.register())).collect()
    }

    fn destinations(&mut self, operand: &Operand<'a>, fragment: Fragment) -> Lowered<Vec<Slot>> {
        let registers = vector(operand, fragment.registers)?;
        registers.iter().map(|register| self.destination(register, fragment.element.register())).collect()
    }

    fn emit_matrix(&mut self, matrix: Matrix) -> Lowered<()> {
        let matrix = append(&mut self.function.matrices, matrix);
        self.all_lanes(WarpKind::Matrix { matrix })
    }

    /// A collective operation that needs every lane.
    fn all_lanes(&mut self, kind: WarpKind) -> Lowered<()> {
        let d = self.temporary();
        let all = Operand::Number(crate::lexer::Number::Integer(ALL_LANES));
        self.lanes(kind, d, None, [None; 3], Some(&all))
    }

    /// The lanes wait for each other: each may read what another has written before.
    fn meet(&mut self) -> Lowered<()> {
        self.all_lanes(WarpKind::Sync)
    }

    /// Eight lanes read the rows of each matrix; then all lanes get their elements.
    fn load_matrices(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let count = match (m.take("m8n8"), m.take_any(&["x1", "x2", "x4"])) {
            (true, Some("x1")) => 1,
            (true, Some("x2")) => 2,
            (true, Some(_)) => 4,
            _ => return Err(UNSUPPORTED),
        };
        let transposed = m.take("trans");
        let window = match self.take_window(m).unwrap_or(Window::Generic) {
            window @ (Window::Shared | Window::Generic) => window,
            _ => return Err(UNSUPPORTED),
        };
        if !m.take("b16") {
            return Err(UNSUPPORTED);
        }
        let [d, address] = operands(i)?;
        let Address { base, offset, window, wraps } = self.address(address, window)?;
        let registers = vector(d, count)?;
        let d: Lowered<Vec<Slot>> = registers.iter().map(|d| self.destination(d, Type::B32)).collect();
        self.meet()?;
        let (lane, after) = (self.temporary(), self.new_label());
        self.emit(Op::Special { d: lane, what: Special::Lane });
        let rows = self.value(u64::from(8 * count));
        let reads = self.applied(lanewise!(|lane, rows| u64::from(lane < rows)), lane, rows);
        self.emit(Op::BranchIf { p: reads, negated: true, target: after });
        let rows = [self.temporary(), self.temporary()];
        let access = Access { window, bytes: 8, align: 16, extend: 0, weak: false, wraps };
        self.emit(Op::Load { d: rows[0], base, offset, access });
        let access = Access { align: 8, ..access };
        self.emit(Op::Load { d: rows[1], base, offset: offset.wrapping_add(8), access });
        self.place(after);
        self.emit_matrix(Matrix::Spread { rows, d: d?, transposed })
    }

    fn transpose(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if !(m.take("m8n8") && m.take("trans") && m.take("b16")) {
            return Err(UNSUPPORTED);
        }
        let [d, a] = operands(i)?;
        let a = self.source(a, Type::B32)?;
        let d = self.destination(d, Type::B32)?;
        self.emit_matrix(Matrix::Transpose { d, a })
    }

    fn load_tile(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let which = m.take_any(&["a", "b", "c"]).ok_or(UNSUPPORTED)?;
        let (r, address, stride) = match i.operands.as_slice() {
            [r, address] => (r, address, None),
            [r, address, stride] => (r, address, Some(stride)),
            _ => return Err("2 or 3 operands were expected".into()),
        };
        let (tile, fragment) = self.tile(m, which, address, stride)?;
        let registers = self.destinations(r, fragment)?;
        self.meet()?;
        let tile = append(&mut self.function.tiles, Tile { registers, ..tile });
        self.emit(Op::LoadTile { tile });
        Ok(())
    }

    fn store_tile(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        if !m.take("d") {
            return Err(UNSUPPORTED);
        }
        let (address, r, stride) = match i.operands.as_slice() {
            [address, r] => (address, r, None),
            [address, r, stride] => (address, r, Some(stride)),
            _ => return Err("2 or 3 operands were expected".into()),
        };
        let (tile, fragment) = self.tile(m, "d", address, stride)?;
        let registers = self.sources(r, fragment)?;
        self.meet()?;
        let tile = append(&mut self.function.tiles, Tile { registers, ..tile });
        self.emit(Op::StoreTile { tile });
        self.meet()
    }

    /// A matrix in memory, without its registers.
    fn tile(
        &mut self,
        m: &mut Modifiers<'a>,
        which: &str,
        address: &Operand<'a>,
        stride: Option<&Operand<'a>>,
    ) -> Lowered<(Tile, Fragment)> {
        let (by_rows, shape) = (layout(m)?, shape(m)?);
        let window = match self.take_window(m).unwrap_or(Window::Generic) {
            window @ (Window::Shared | Window::Global | Window::Generic) => window,
            _ => return Err(UNSUPPORTED),
        };
        let element = m.take_with(Element::parse).ok_or(UNSUPPORTED)?;
        let is_factor = matches!(which, "a" | "b");
        // A second factor is a matrix of columns.
        let outer_first = by_rows != (which == "b");
        let is_known = if is_factor { has_tiles(element, shape) } else { has_accumulator(element, shape) };
        if !is_known || element.bits() < 8 && !outer_first {
            return Err(UNSUPPORTED);
        }
        let fragment = tile(which, element, shape);
        let Address { base, offset, window, wraps } = self.address(address, window)?;
        let stride = match stride {
            Some(stride) => self.source(stride, Type::B32)?,
            None => self.value(u64::from(if outer_first { fragment.inner } else { fragment.outer })),
        };
        let bytes = u8::try_from(element.bits().div_ceil(8)).unwrap_or(8);
        let access = Access { window, bytes, align: bytes, extend: 0, weak: false, wraps };
        Ok((Tile { fragment, registers: Vec::new(), base, offset, stride, outer_first, access }, fragment))
    }
}

/// The registers of a vector of that length. One register needs no braces.
fn vector<'o, 'a>(operand: &'o Operand<'a>, count: u32) -> Lowered<&'o [Operand<'a>]> {
    match operand {
        Operand::Vector(parts) if parts.len() == count as usize => Ok(parts),
        Operand::Name(_) if count == 1 => Ok(std::slice::from_ref(operand)),
        _ => Err(format!("a vector of {count} was expected").into()),
    }
}

/// Whether a matrix is stored by rows.
fn layout(m: &mut Modifiers<'_>) -> Lowered<bool> {
    m.take_any(&["row", "col"]).map(|layout| layout == "row").ok_or(UNSUPPORTED)
}

/// `m16n8k16`
fn shape(m: &mut Modifiers<'_>) -> Lowered<Shape> {
    let parse = |name: &str| {
        let (rows, rest) = name.strip_prefix('m')?.split_once('n')?;
        let (columns, k) = rest.split_once('k')?;
        Some((rows.parse().ok()?, columns.parse().ok()?, k.parse().ok()?))
    };
    m.take_with(parse).ok_or(UNSUPPORTED)
}

/// The products of `mma` (PTX ISA, "mma").
fn has_product(element: Element, shape: Shape) -> bool {
    match element {
        Element::F16 | Element::BF16 => matches!(shape, (16, 8, 8 | 16)),
        Element::TF32 => matches!(shape, (16, 8, 4 | 8)),
        Element::F64 => shape == (8, 8, 4),
        Element::S8 | Element::U8 => matches!(shape, (8, 8, 16) | (16, 8, 16 | 32)),
        Element::S4 | Element::U4 => matches!(shape, (8, 8, 32) | (16, 8, 32 | 64)),
        Element::F32 | Element::S32 => false,
    }
}

/// The factors of `wmma` (PTX ISA, "wmma.load").
fn has_tiles(element: Element, shape: Shape) -> bool {
    match element {
        Element::F16 | Element::BF16 | Element::S8 | Element::U8 => {
            matches!(shape, (16, 16, 16) | (8, 32, 16) | (32, 8, 16))
        }
        Element::TF32 => shape == (16, 16, 8),
        Element::F64 => shape == (8, 8, 4),
        Element::S4 | Element::U4 => shape == (8, 8, 32),
        Element::F32 | Element::S32 => false,
    }
}

fn has_accumulator(element: Element, shape: Shape) -> bool {
    match element {
        Element::F16 => has_tiles(Element::F16, shape),
        Element::F32 => has_tiles(Element::F16, shape) || has_tiles(Element::TF32, shape),
        Element::F64 => has_tiles(Element::F64, shape),
        Element::S32 => has_tiles(Element::S8, shape) || has_tiles(Element::S4, shape),
        _ => false,
    }
}

/// Whether there is a product of these types. Only mma can mix signed and unsigned factors.
fn match_types([d, a, b, c]: [Element; 4], may_mix: bool) -> bool {
    use Element::{BF16, F16, F32, F64, S4, S8, S32, TF32, U4, U8};
    match (a, b) {
        (F16, F16) => matches!((d, c), (F16 | F32, F16 | F32)),
        (BF16, BF16) | (TF32, TF32) => (d, c) == (F32, F32),
        (F64, F64) => (d, c) == (F64, F64),
        (S8, S8) | (U8, U8) | (S4, S4) | (U4, U4) => (d, c) == (S32, S32),
        (S8 | U8, S8 | U8) | (S4 | U4, S4 | U4) => may_mix && (d, c) == (S32, S32),
        _ => false,
    }
}

/// The fragment of one matrix of `wmma`.
fn tile(which: &str, element: Element, (rows, columns, k): Shape) -> Fragment {
    let mut fragment = match which {
        "a" => Fragment::new(element, rows, k, Layout::Consecutive),
        "b" => Fragment::new(element, columns, k, Layout::Consecutive),
        _ if rows <= 16 && columns <= 16 => Fragment::new(element, rows, columns, Layout::Accumulator),
        _ => Fragment::new(element, rows, columns, Layout::Consecutive),
    };
    // Factors of f16 have eight registers in every shape.
    if element == Element::F16 && matches!(which, "a" | "b") {
        fragment.registers = 8;
    }
    fragment
}
