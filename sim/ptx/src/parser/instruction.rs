//! Parses instructions and their operands.

use super::Parser;
use crate::ast::{Guard, Instruction, Operand};
use crate::error::LoadError;
use crate::lexer::Kind;
use crate::lower::{UNSUPPORTED, is_known};
use crate::span::Span;

impl<'a> Parser<'a> {
    pub(super) fn instruction(&mut self) -> Result<Instruction<'a>, LoadError> {
        let start = self.span();
        let guard = self.guard(start)?;
        let opcode = self.word(start)?;
        // Unsupported instructions may have operands of an unknown syntax.
        if !is_known(opcode) {
            return Err(self.error(start, UNSUPPORTED));
        }
        let mut modifiers = Vec::new();
        while let Kind::Dot(name) = self.kind() {
            self.next();
            modifiers.push(name);
        }
        let mut operands = Vec::new();
        if !self.eat(b';') {
            loop {
                operands.push(self.operand(opcode, start)?);
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(b';', start)?;
        }
        // Without the semicolon.
        let end = self.last_span();
        let span = Span { end: end.start.max(start.start), ..start };
        Ok(Instruction { guard, opcode, modifiers, operands, span })
    }

    fn guard(&mut self, start: Span) -> Result<Option<Guard<'a>>, LoadError> {
        if !self.eat(b'@') {
            return Ok(None);
        }
        let negated = self.eat(b'!');
        Ok(Some(Guard { name: self.word(start)?, negated }))
    }

    fn operand(&mut self, opcode: &str, start: Span) -> Result<Operand<'a>, LoadError> {
        match self.kind() {
            Kind::Mark(b'[') => {
                self.next();
                self.address(start)
            }
            Kind::Mark(b'{') => {
                self.next();
                Ok(Operand::Vector(self.operands(b'}', start)?))
            }
            // Elsewhere, a constant expression begins.
            Kind::Mark(b'(') if opcode == "call" => {
                self.next();
                Ok(Operand::List(self.operands(b')', start)?))
            }
            _ => self.simple(start),
        }
    }

    fn operands(&mut self, close: u8, start: Span) -> Result<Vec<Operand<'a>>, LoadError> {
        let mut operands = Vec::new();
        if self.eat(close) {
            return Ok(operands);
        }
        loop {
            operands.push(self.simple(start)?);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(close, start)?;
        Ok(operands)
    }

    fn simple(&mut self, start: Span) -> Result<Operand<'a>, LoadError> {
        if self.eat(b'!') {
            return Ok(Operand::Not(self.word(start)?));
        }
        match self.number(start)? {
            Some(number) => Ok(Operand::Number(number)),
            None => self.named(start),
        }
    }

    /// `name`, `name.x`, `name|name` or `name+4`.
    fn named(&mut self, start: Span) -> Result<Operand<'a>, LoadError> {
        let name = self.word(start)?;
        if let Kind::Dot(member) = self.kind() {
            self.next();
            return Ok(Operand::Member(name, member));
        }
        if self.eat(b'|') {
            return Ok(Operand::Pair(name, self.word(start)?));
        }
        if matches!(self.kind(), Kind::Mark(b'+' | b'-')) {
            return Ok(Operand::Sum(name, self.addend(start)?));
        }
        Ok(Operand::Name(name))
    }

    /// After the bracket.
    fn address(&mut self, start: Span) -> Result<Operand<'a>, LoadError> {
        let base = match self.kind() {
            Kind::Word(name) => {
                self.next();
                Some(name)
            }
            _ => None,
        };
        let offset = if base.is_none() { self.constant(start)? } else { self.addend(start)? };
        self.expect(b']', start)?;
        Ok(Operand::Address(base, offset))
    }
}
