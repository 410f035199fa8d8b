//! Lowers moves, comparisons, selections and conversions of addresses.

use super::arithmetic::type_of;
use super::{Instruction, Lower, Lowered, Modifiers, UNSUPPORTED, operands};
use crate::arithmetic::compare::compare;
use crate::arithmetic::comparison::Comparison;
use crate::arithmetic::lanewise::{WideBinary, lanewise};
use crate::ast::Operand;
use crate::op::{Op, Slot};
use crate::types::Type;
use crate::window::Window;

impl<'a> Lower<'_, 'a> {
    pub(super) fn data(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        match i.opcode {
            "mov" => self.mov(i, m),
            "setp" => self.setp(i, m),
            "set" => self.set(i, m),
            "selp" => {
                let t = type_of(m)?;
                self.ternary(i, [t, t, t, Type::Pred], Some(lanewise!(|a, b, p| if p == 0 { b } else { a })))
            }
            "slct" => self.slct(i, m),
            "cvt" => self.convert(i, m),
            "cvta" => self.cvta(i, m),
            _ => self.isspacep(i, m),
        }
    }

    fn mov(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let type_ = type_of(m)?;
        if type_.bytes() == 1 && type_ != Type::Pred {
            return Err(UNSUPPORTED);
        }
        match operands(i)? {
            [Operand::Vector(parts), a] => self.unpack(parts, a, type_),
            [d, Operand::Vector(parts)] => self.pack(d, parts, type_),
            [d, a] => {
                let slots = self.function.constants.len();
                let a = self.source(a, type_)?;
                let is_temporary = a as usize >= slots;
                let d = self.destination(d, type_)?;
                match self.function.code.last_mut() {
                    // A special register needs no detour.
                    Some(Op::Special { d: last, .. }) if is_temporary && *last == a => *last = d,
                    _ => self.emit(Op::Move { d, a }),
                }
                Ok(())
            }
        }
    }

    fn unpack(&mut self, parts: &[Operand<'a>], a: &Operand<'a>, type_: Type) -> Lowered<()> {
        let part = part_type(type_, parts.len())?;
        let source = self.source(a, type_)?;
        // A part may be the source register.
        let whole = self.copied(source);
        let f = match part.bits() {
            8 => lanewise!(|a, shift| a >> (shift & 63) & 0xff),
            16 => lanewise!(|a, shift| a >> (shift & 63) & 0xffff),
            _ => lanewise!(|a, shift| a >> (shift & 63) & 0xffff_ffff),
        };
        for (operand, at) in parts.iter().zip(0u64..) {
            let (d, _) = self.wide_destination(operand, part)?;
            let b = self.value(at * u64::from(part.bits()));
            self.emit(Op::Binary { f, d, a: whole, b });
        }
        Ok(())
    }

    fn pack(&mut self, d: &Operand<'a>, parts: &[Operand<'a>], type_: Type) -> Lowered<()> {
        let part = part_type(type_, parts.len())?;
        let f = match part.bits() {
            8 => lanewise!(|low, high| low | high << 8),
            16 => lanewise!(|low, high| low | high << 16),
            _ => lanewise!(|low, high| low | high << 32),
        };
        // From the last: `low | high << bits`.
        let mut whole: Option<Slot> = None;
        for operand in parts.iter().rev() {
            let low = self.source(operand, part)?;
            whole = Some(match whole {
                None => low,
                Some(high) => self.applied(f, low, high),
            });
        }
        let d = self.destination(d, type_)?;
        let a = whole.ok_or("a vector has parts")?;
        self.emit(Op::Move { d, a });
        Ok(())
    }

    /// The two operands of a comparison.
    fn compared(&mut self, operands: &[Operand<'a>], type_: Type) -> Lowered<(Slot, Slot)> {
        let [_, a, b, ..] = operands else { return Err("3 operands were expected".into()) };
        Ok((self.source(a, type_)?, self.source(b, type_)?))
    }

    /// `p` combined with the third operand.
    fn combined(&mut self, how: Option<&str>, p: Slot, operands: &[Operand<'a>]) -> Lowered<Slot> {
        let (f, other) = match (how, operands) {
            (None, [_, _, _]) => return Ok(p),
            (Some("and"), [_, _, _, other]) => (lanewise!(|a, b| a & b), other),
            (Some("or"), [_, _, _, other]) => (lanewise!(|a, b| a | b), other),
            (Some("xor"), [_, _, _, other]) => (lanewise!(|a, b| a ^ b), other),
            _ => return Err("the number of operands is wrong".into()),
        };
        let (slot, negated) = self.negatable(other)?;
        let b = if negated { self.negated(slot) } else { slot };
        Ok(self.applied(f, p, b))
    }

    fn negated(&mut self, p: Slot) -> Slot {
        let d = self.temporary();
        self.emit(Op::Unary { f: lanewise!(|p| p ^ 1), d, a: p });
        d
    }

    /// The second predicate is the inverse of the first; for pairs of halves, it is the result of the upper halves.
    fn setp(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let how = m.take_any(&["and", "or", "xor"]);
        let (f, type_) = comparison(m)?;
        let (a, b) = self.compared(&i.operands, type_)?;
        let of_halves = matches!(type_, Type::F16x2 | Type::BF16x2);
        if let ([d @ Operand::Name(_), _, _], None, false) = (i.operands.as_slice(), how, of_halves) {
            let d = self.destination(d, Type::Pred)?;
            self.emit(Op::Binary { f, d, a, b });
            return Ok(());
        }
        let p = self.applied(f, a, b);
        let first = self.combined(how, p, &i.operands)?;
        match &i.operands[0] {
            Operand::Pair(d, q) => {
                let other = if of_halves {
                    let (a, b) = (self.upper_half(a), self.upper_half(b));
                    self.applied(f, a, b)
                } else {
                    self.negated(p)
                };
                let second = self.combined(how, other, &i.operands)?;
                self.move_to_predicate(d, first)?;
                self.move_to_predicate(q, second)
            }
            _ if of_halves => Err("a pair of predicates was expected".into()),
            Operand::Name(d) => self.move_to_predicate(d, first),
            _ => Err("the result needs a predicate".into()),
        }
    }

    fn upper_half(&mut self, a: Slot) -> Slot {
        let d = self.temporary();
        self.emit(Op::Unary { f: lanewise!(|a| a >> 16), d, a });
        d
    }

    fn move_to_predicate(&mut self, name: &'a str, a: Slot) -> Lowered<()> {
        let d = self.destination(&Operand::Name(name), Type::Pred)?;
        self.emit(Op::Move { d, a });
        Ok(())
    }

    /// True is 1, or an integer of ones. Of pairs of halves, each half has a result of its own.
    fn set(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let how = m.take_any(&["and", "or", "xor"]);
        let to = type_of(m)?;
        let (comparison, type_) = comparison(m)?;
        let of_halves = matches!(type_, Type::F16x2 | Type::BF16x2);
        let f = match (to, of_halves) {
            (Type::U16 | Type::S16, false) | (Type::U32 | Type::S32, true) => {
                lanewise!(|p| if p == 0 { 0 } else { 0xffff })
            }
            (Type::U32 | Type::S32, false) => lanewise!(|p| if p == 0 { 0 } else { 0xffff_ffff }),
            (Type::F32, false) => lanewise!(|p| if p == 0 { 0 } else { u64::from(1f32.to_bits()) }),
            (Type::F16, false) => lanewise!(|p| if p == 0 { 0 } else { 0x3c00 }),
            (Type::BF16, false) => lanewise!(|p| if p == 0 { 0 } else { 0x3f80 }),
            (Type::F16x2, true) if to == type_ => lanewise!(|p| if p == 0 { 0 } else { 0x3c00 }),
            (Type::BF16x2, true) if to == type_ => lanewise!(|p| if p == 0 { 0 } else { 0x3f80 }),
            _ => return Err(UNSUPPORTED),
        };
        let (a, b) = self.compared(&i.operands, type_)?;
        let p = self.applied(comparison, a, b);
        let low = self.combined(how, p, &i.operands)?;
        if !of_halves {
            let d = self.destination(&i.operands[0], to)?;
            self.emit(Op::Unary { f, d, a: low });
            return Ok(());
        }
        let (a, b) = (self.upper_half(a), self.upper_half(b));
        let p = self.applied(comparison, a, b);
        let high = self.combined(how, p, &i.operands)?;
        for a in [low, high] {
            self.emit(Op::Unary { f, d: a, a });
        }
        let d = self.destination(&i.operands[0], to)?;
        self.emit(Op::Binary { f: lanewise!(|low, high| low | high << 16), d, a: low, b: high });
        Ok(())
    }

    fn slct(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let flush = m.take("ftz");
        let (t, by) = (type_of(m)?, type_of(m)?);
        match by {
            Type::S32 if !flush => {
                self.ternary(i, [t, t, t, by], Some(lanewise!(|a, b, c| if c >> 31 == 0 { a } else { b })))
            }
            // Negative zero counts as zero, NaN selects b. With .ftz, subnormal numbers count as zero.
            Type::F32 if flush => {
                let f = lanewise!(|a, b, c| if c & 0x7fff_ffff < 0x80_0000 || c <= 0x7f80_0000 { a } else { b });
                self.ternary(i, [t, t, t, by], Some(f))
            }
            Type::F32 => {
                let f = lanewise!(|a, b, c| if c == 0x8000_0000 || c <= 0x7f80_0000 { a } else { b });
                self.ternary(i, [t, t, t, by], Some(f))
            }
            _ => Err(UNSUPPORTED),
        }
    }

    fn cvta(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let to = m.take("to");
        let window = take_space(m).ok_or(UNSUPPORTED)?;
        if type_of(m)? != Type::U64 {
            return Err(UNSUPPORTED);
        }
        let [d, a] = operands(i)?;
        let a = self.source(a, Type::U64)?;
        let d = self.destination(d, Type::U64)?;
        if window == Window::Global {
            self.emit(Op::Move { d, a });
            return Ok(());
        }
        let b = self.value(window.base());
        let f = if to { lanewise!(2, u64::wrapping_sub) } else { lanewise!(2, u64::wrapping_add) };
        self.emit(Op::Binary { f, d, a, b });
        Ok(())
    }

    fn isspacep(&mut self, i: &Instruction<'a>, m: &mut Modifiers<'a>) -> Lowered<()> {
        let is_const = m.first() == Some("const");
        let window = take_space(m).ok_or(UNSUPPORTED)?;
        let [p, a] = operands(i)?;
        let a = self.source(a, Type::U64)?;
        let d = self.destination(p, Type::Pred)?;
        self.emit(if is_const { Op::InConst { d, a } } else { Op::InWindow { d, a, window } });
        Ok(())
    }

    /// The window of the state space in which an access is made. In a function, `.param` without a qualifier is the
    /// function's own parameters, which are in its frame.
    pub(super) fn take_window(&self, m: &mut Modifiers<'a>) -> Option<Window> {
        if !self.is_entry && m.take("param") {
            return Some(Window::Local);
        }
        take_space(m)
    }
}

/// The window of the state space that the modifiers name. `.param` without a qualifier is the kernel's parameters, in
/// functions too (PTX ISA, `cvta` and `isspacep`).
fn take_space(m: &mut Modifiers<'_>) -> Option<Window> {
    const SPACES: [&str; 8] =
        ["global", "const", "shared", "shared::cta", "local", "param", "param::entry", "param::func"];
    Some(match m.take_any(&SPACES)? {
        "global" | "const" => Window::Global,
        "shared" | "shared::cta" => Window::Shared,
        "local" | "param::func" => Window::Local,
        _ => Window::Param,
    })
}

/// The comparison that the modifiers select, and the type of its operands.
fn comparison(m: &mut Modifiers<'_>) -> Lowered<(WideBinary, Type)> {
    let comparison = m.take_with(Comparison::parse).ok_or("a comparison was expected")?;
    let flush = m.take("ftz");
    let type_ = type_of(m)?;
    if flush && (!type_.is_float() || type_ == Type::F64) {
        return Err(UNSUPPORTED);
    }
    Ok((compare(type_, comparison, flush).ok_or(UNSUPPORTED)?, type_))
}

/// The type of one of `count` parts.
fn part_type(type_: Type, count: usize) -> Lowered<Type> {
    match (type_.bits(), count) {
        (64, 2) => Ok(Type::B32),
        (64, 4) | (32, 2) => Ok(Type::B16),
        (32, 4) | (16, 2) => Ok(Type::B8),
        _ => Err("a vector of so many parts does not fit the type".into()),
    }
}
