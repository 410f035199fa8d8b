//! Parses constant expressions of integers, which PTX evaluates in 64 bits (PTX ISA, "Integer Constant Expression
//! Evaluation"). Comparisons, logical operators and casts are not known.

use super::Parser;
use crate::error::LoadError;
use crate::lexer::{Kind, Number};
use crate::span::Span;

/// The maximum number of parentheses and signs within each other.
const DEEPEST: u32 = 64;

#[derive(Clone, Copy)]
struct Value {
    bits: u64,
    /// Other values are signed.
    is_unsigned: bool,
}

/// From the one that binds least.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Precedence {
    Or,
    Xor,
    And,
    Shift,
    Sum,
    Product,
}

#[derive(Clone, Copy)]
enum Operator {
    Or,
    Xor,
    And,
    Left,
    Right,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    fn precedence(self) -> Precedence {
        match self {
            Operator::Or => Precedence::Or,
            Operator::Xor => Precedence::Xor,
            Operator::And => Precedence::And,
            Operator::Left | Operator::Right => Precedence::Shift,
            Operator::Add | Operator::Subtract => Precedence::Sum,
            Operator::Multiply | Operator::Divide | Operator::Remainder => Precedence::Product,
        }
    }

    /// None for a division by zero.
    fn apply(self, a: Value, b: Value) -> Option<Value> {
        let either = a.is_unsigned || b.is_unsigned;
        let (x, y) = (a.bits, b.bits);
        // A count that is too large leaves nothing, or only signs.
        let count = u32::try_from(y).unwrap_or(u32::MAX);
        let (bits, is_unsigned) = match self {
            Operator::Or => (x | y, true),
            Operator::Xor => (x ^ y, true),
            Operator::And => (x & y, true),
            Operator::Left => (x.checked_shl(count).unwrap_or(0), a.is_unsigned),
            Operator::Right if a.is_unsigned => (x.checked_shr(count).unwrap_or(0), true),
            Operator::Right => ((x.cast_signed() >> count.min(63)).cast_unsigned(), false),
            Operator::Add => (x.wrapping_add(y), either),
            Operator::Subtract => (x.wrapping_sub(y), either),
            Operator::Multiply => (x.wrapping_mul(y), either),
            Operator::Divide | Operator::Remainder if y == 0 => return None,
            Operator::Divide if either => (x / y, true),
            Operator::Divide => (x.cast_signed().wrapping_div(y.cast_signed()).cast_unsigned(), false),
            Operator::Remainder if either => (x % y, true),
            Operator::Remainder => (x.cast_signed().wrapping_rem(y.cast_signed()).cast_unsigned(), false),
        };
        Some(Value { bits, is_unsigned })
    }
}

impl<'a> Parser<'a> {
    /// An integer, or an expression of integers.
    pub(super) fn constant(&mut self, start: Span) -> Result<u64, LoadError> {
        self.expression(Precedence::Or, 0, start).map(|value| value.bits)
    }

    /// A floating-point number with its sign, or a constant expression, if one comes next.
    pub(super) fn number(&mut self, start: Span) -> Result<Option<Number>, LoadError> {
        let is_negative = self.kind() == Kind::Mark(b'-');
        match if is_negative { self.kind_after(1) } else { self.kind() } {
            Kind::Number(number @ (Number::Single(_) | Number::Double(_))) => {
                self.eat(b'-');
                self.next();
                Ok(Some(if is_negative { number.negated() } else { number }))
            }
            Kind::Number(Number::Integer(_)) | Kind::Mark(b'(' | b'-' | b'+' | b'~') => {
                self.constant(start).map(|value| Some(Number::Integer(value)))
            }
            _ if is_negative => Err(self.error(start, format!("a number was expected {}", self.place()))),
            _ => Ok(None),
        }
    }

    /// `+4`, `-4` or `+4*2-8` after a name, which adds nothing if it is missing.
    pub(super) fn addend(&mut self, start: Span) -> Result<u64, LoadError> {
        let mut sum = 0u64;
        // In a difference, the sign belongs to the number.
        while self.eat(b'+') || self.kind() == Kind::Mark(b'-') {
            sum = sum.wrapping_add(self.expression(Precedence::Product, 0, start)?.bits);
        }
        Ok(sum)
    }

    /// Operators of at least this precedence. Those of one precedence are applied from the left.
    fn expression(&mut self, least: Precedence, depth: u32, start: Span) -> Result<Value, LoadError> {
        let mut value = self.term(depth, start)?;
        while let Some((operator, marks)) = self.operator().filter(|(operator, _)| operator.precedence() >= least) {
            for _ in 0..marks {
                self.next();
            }
            let right = match operator.precedence() {
                Precedence::Or => self.expression(Precedence::Xor, depth, start)?,
                Precedence::Xor => self.expression(Precedence::And, depth, start)?,
                Precedence::And => self.expression(Precedence::Shift, depth, start)?,
                Precedence::Shift => self.expression(Precedence::Sum, depth, start)?,
                Precedence::Sum => self.expression(Precedence::Product, depth, start)?,
                Precedence::Product => self.term(depth, start)?,
            };
            value = operator.apply(value, right).ok_or_else(|| self.error(start, "a constant is divided by zero"))?;
        }
        Ok(value)
    }

    /// The operator that comes next, and the number of its marks.
    fn operator(&self) -> Option<(Operator, usize)> {
        let Kind::Mark(mark) = self.kind() else { return None };
        Some(match mark {
            b'|' => (Operator::Or, 1),
            b'^' => (Operator::Xor, 1),
            b'&' => (Operator::And, 1),
            b'<' if self.kind_after(1) == Kind::Mark(b'<') => (Operator::Left, 2),
            b'>' if self.kind_after(1) == Kind::Mark(b'>') => (Operator::Right, 2),
            b'+' => (Operator::Add, 1),
            b'-' => (Operator::Subtract, 1),
            b'*' => (Operator::Multiply, 1),
            b'/' => (Operator::Divide, 1),
            b'%' => (Operator::Remainder, 1),
            _ => return None,
        })
    }

    /// An integer, with signs, or an expression in parentheses.
    fn term(&mut self, depth: u32, start: Span) -> Result<Value, LoadError> {
        if depth == DEEPEST {
            return Err(self.error(start, "the constant expression nests too deeply"));
        }
        if self.eat(b'-') {
            let Value { bits, is_unsigned } = self.term(depth + 1, start)?;
            return Ok(Value { bits: bits.wrapping_neg(), is_unsigned });
        }
        if self.eat(b'+') {
            return self.term(depth + 1, start);
        }
        if self.eat(b'~') {
            return Ok(Value { bits: !self.term(depth + 1, start)?.bits, is_unsigned: true });
        }
        if self.eat(b'(') {
            let value = self.expression(Precedence::Or, depth + 1, start)?;
            self.expect(b')', start)?;
            return Ok(value);
        }
        let has_suffix = self.span().text(self.source).ends_with(['u', 'U']);
        let bits = self.integer(start)?;
        Ok(Value { bits, is_unsigned: has_suffix || bits.cast_signed() < 0 })
    }
}
