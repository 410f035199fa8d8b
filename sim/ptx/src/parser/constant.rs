//! Parses constants: numbers with their signs. Expressions, which compilers compute themselves, are not known.

use super::Parser;
use crate::error::LoadError;
use crate::lexer::{Kind, Number};
use crate::span::Span;

impl<'a> Parser<'a> {
    /// An integer, perhaps with a sign.
    pub(super) fn constant(&mut self, start: Span) -> Result<u64, LoadError> {
        let is_negative = self.eat(b'-');
        self.integer(start).map(|value| if is_negative { value.wrapping_neg() } else { value })
    }

    /// A number, perhaps with a sign, if one comes next.
    pub(super) fn number(&mut self, start: Span) -> Result<Option<Number>, LoadError> {
        let is_negative = self.kind() == Kind::Mark(b'-');
        match if is_negative { self.kind_after(1) } else { self.kind() } {
            Kind::Number(Number::Integer(_)) => self.constant(start).map(|value| Some(Number::Integer(value))),
            Kind::Number(number) => {
                self.eat(b'-');
                self.next();
                Ok(Some(if is_negative { number.negated() } else { number }))
            }
            _ if is_negative => Err(self.error(start, format!("a number was expected {}", self.place()))),
            _ => Ok(None),
        }
    }

    /// `+4`, `-4` or `+-4` after a name, which adds nothing if it is missing.
    pub(super) fn addend(&mut self, start: Span) -> Result<u64, LoadError> {
        let mut sum = 0u64;
        // In a difference, the sign belongs to the number.
        while self.eat(b'+') || self.kind() == Kind::Mark(b'-') {
            sum = sum.wrapping_add(self.constant(start)?);
        }
        Ok(sum)
    }
}
