//! Parses variables, parameters and registers, and initial values.

use super::Parser;
use crate::ast::{Declaration, Initial, Linkage};
use crate::error::{LoadError, Reason};
use crate::lexer::{Kind, Number};
use crate::span::Span;
use crate::types::{Space, Type};

/// More than a GPU's memory: anything larger is a mistake.
const LARGEST_VARIABLE: u64 = 1 << 40;
const MOST_DIMENSIONS: usize = 16;

impl<'a> Parser<'a> {
    /// `.global .align 4 .u32 a = 1, b[4];` with its semicolon.
    pub(super) fn variables(&mut self, linkage: Linkage, start: Span) -> Result<Vec<Declaration<'a>>, LoadError> {
        let prefix = self.prefix(linkage, start)?;
        let mut declared = Vec::new();
        loop {
            let mut one = prefix.clone();
            self.declarator(&mut one, start)?;
            declared.push(one);
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';', start)?;
        Ok(declared)
    }

    /// `.param .u64 .ptr .global .align 4 name[8]`, without what follows.
    pub(super) fn parameter(&mut self) -> Result<Declaration<'a>, LoadError> {
        let start = self.span();
        let mut parameter = self.prefix(Linkage::Here, start)?;
        if !matches!(parameter.space, Space::Param | Space::Register) {
            return Err(self.error(start, "a parameter must be in .param or .reg"));
        }
        self.declarator(&mut parameter, start)?;
        Ok(parameter)
    }

    /// Everything before the first name.
    fn prefix(&mut self, linkage: Linkage, start: Span) -> Result<Declaration<'a>, LoadError> {
        let (mut space, mut type_, mut vector, mut align, mut is_managed) = (None, None, 1, None, false);
        while let Kind::Dot(name) = self.kind() {
            self.next();
            match name {
                "align" => align = Some(self.alignment(start)?),
                "ptr" => self.pointer_attributes(start)?,
                "attribute" => is_managed |= self.attributes(start)?,
                "v2" => vector = 2,
                "v4" => vector = 4,
                _ if space.is_none() && Space::parse(name).is_some() => space = Space::parse(name),
                _ if type_.is_none() && Type::parse(name).is_some() => type_ = Type::parse(name),
                _ => return Err(self.error(start, Reason::unsupported(format!("directive .{name} is not supported")))),
            }
        }
        let (Some(space), Some(type_)) = (space, type_) else {
            return Err(self.error(start, "a declaration needs a state space and a type"));
        };
        let (name, range, elements, is_array, initial) = ("", None, Some(1), false, Vec::new());
        let span = start;
        if is_managed && space != Space::Global {
            return Err(self.error(start, "a managed variable must be in .global"));
        }
        Ok(Declaration {
            linkage,
            space,
            type_,
            vector,
            name,
            range,
            elements,
            is_array,
            align,
            is_managed,
            initial,
            span,
        })
    }

    fn alignment(&mut self, start: Span) -> Result<u64, LoadError> {
        let align = self.integer(start)?;
        if align.is_power_of_two() && align <= 1 << 20 {
            return Ok(align);
        }
        Err(self.error(start, "an alignment must be a power of two"))
    }

    /// The attributes of a pointer's target, which are ignored.
    fn pointer_attributes(&mut self, start: Span) -> Result<(), LoadError> {
        if matches!(self.kind(), Kind::Dot("global" | "shared" | "const" | "local")) {
            self.next();
        }
        if self.kind() == Kind::Dot("align") {
            self.next();
            self.alignment(start)?;
        }
        Ok(())
    }

    /// `(.managed)`: whether the variable is managed. Unified variables, with the name that other modules have for them, are
    /// not supported.
    fn attributes(&mut self, start: Span) -> Result<bool, LoadError> {
        self.expect(b'(', start)?;
        if self.kind() != Kind::Dot("managed") {
            return Err(self.error(start, Reason::unsupported("this attribute is not supported")));
        }
        self.next();
        self.expect(b')', start)?;
        Ok(true)
    }

    fn declarator(&mut self, one: &mut Declaration<'a>, start: Span) -> Result<(), LoadError> {
        one.name = self.word(start)?;
        if self.eat(b'<') {
            let count = self.integer(start)?;
            let Ok(count) = u32::try_from(count) else {
                return Err(self.error(start, "this number of registers is not supported"));
            };
            one.range = Some(count);
            self.expect(b'>', start)?;
        }
        let dimensions = self.dimensions(one, start)?;
        if self.eat(b'=') {
            self.initialiser(one, dimensions, start)?;
        }
        one.span = start.to(self.last_span());
        Ok(())
    }

    /// Returns the lengths. That of `[]`, which the values give, counts as 1.
    fn dimensions(&mut self, one: &mut Declaration<'a>, start: Span) -> Result<Vec<u64>, LoadError> {
        let (mut dimensions, mut open) = (Vec::new(), None);
        while self.eat(b'[') {
            one.is_array = true;
            if self.eat(b']') {
                open = Some(dimensions.len());
                dimensions.push(1);
                continue;
            }
            dimensions.push(self.integer(start)?);
            self.expect(b']', start)?;
        }
        let product = dimensions.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
        let size = product.and_then(|count| count.checked_mul(one.element_size()));
        if dimensions.len() > MOST_DIMENSIONS || size.is_none_or(|size| size > LARGEST_VARIABLE) {
            return Err(self.error(start, "the array is too large"));
        }
        if open.is_some_and(|dimension| dimension > 0) {
            return Err(self.error(start, "only the first length of an array can be left out"));
        }
        one.elements = product.filter(|_| open.is_none());
        Ok(dimensions)
    }

    /// A value, or values in braces. An inner brace fills a row, however many values it has.
    fn initialiser(&mut self, one: &mut Declaration<'a>, mut shape: Vec<u64>, start: Span) -> Result<(), LoadError> {
        if one.vector > 1 {
            shape.push(u64::from(one.vector));
        }
        let (mut depth, mut at) = (0usize, 0u64);
        loop {
            if self.eat(b'{') {
                depth += 1;
            } else if depth > 0 && self.eat(b'}') {
                depth -= 1;
                // With a dimension of length 0, the others may be of any length.
                let row = shape.get(depth..).unwrap_or_default();
                let row = row.iter().try_fold(1u64, |product, &length| product.checked_mul(length));
                let end = row.and_then(|row| at.checked_next_multiple_of(row.max(1)));
                let end = end.filter(|&end| end <= LARGEST_VARIABLE);
                at = end.ok_or_else(|| self.error(start, "the array is too large"))?;
            } else {
                if depth != shape.len() {
                    return Err(self.error(start, "an initial value is not within the braces of every dimension"));
                }
                let initial = self.initial(start)?;
                if one.type_.is_float() && matches!(initial, Initial::Number(Number::Integer(_))) {
                    return Err(self.error(start, "the initial value of a floating-point variable is an integer"));
                }
                one.initial.push((at, initial));
                at += 1;
            }
            if depth == 0 {
                break;
            }
            if depth > MOST_DIMENSIONS {
                return Err(self.error(start, "the initialiser nests too deeply"));
            }
            // A comma follows a value or a closing brace.
            let _ = self.eat(b',');
        }
        if one.elements.is_none() {
            // `a[][2] = {…}` has as many rows as the values need.
            let row: u64 = shape.iter().product();
            one.elements = Some(at.next_multiple_of(row.max(1)) / u64::from(one.vector));
        }
        let room = one.elements.unwrap_or(0).saturating_mul(u64::from(one.vector));
        match one.initial.last() {
            Some(&(last, _)) if last >= room => {
                Err(self.error(start, "the initialiser has more values than the array"))
            }
            _ => Ok(()),
        }
    }

    /// A number, `symbol+4`, `generic(symbol)+4` or `0xFF00(generic(symbol)+4)`.
    fn initial(&mut self, start: Span) -> Result<Initial<'a>, LoadError> {
        match self.number(start)? {
            Some(Number::Integer(mask)) if self.eat(b'(') => {
                let (name, addend) = self.symbol(start)?;
                self.expect(b')', start)?;
                Ok(Initial::Symbol { name, addend, mask: Some(mask) })
            }
            Some(number) => Ok(Initial::Number(number)),
            None => {
                let (name, addend) = self.symbol(start)?;
                Ok(Initial::Symbol { name, addend, mask: None })
            }
        }
    }

    fn symbol(&mut self, start: Span) -> Result<(&'a str, u64), LoadError> {
        let mut name = self.word(start)?;
        if name == "generic" && self.eat(b'(') {
            name = self.word(start)?;
            self.expect(b')', start)?;
        }
        Ok((name, self.addend(start)?))
    }
}
