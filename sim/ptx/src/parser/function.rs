//! Parses kernels and functions: their signatures, and the statements of their bodies.

use super::Parser;
use crate::ast::{Declaration, Function, Signature, Statement};
use crate::error::LoadError;
use crate::lexer::Kind;
use crate::span::Span;

impl<'a> Parser<'a> {
    /// From `.entry` or `.func` to the closing brace, or the semicolon of a declaration.
    pub(super) fn function(&mut self, start: Span) -> Result<Function<'a>, LoadError> {
        let is_entry = self.next().kind == Kind::Dot("entry");
        let returns = if is_entry { Vec::new() } else { self.parameter_list()? };
        let name = self.word(start)?;
        let signature = Signature { returns, parameters: self.parameter_list()? };
        let span = start.to(self.last_span());
        let (max_threads, required_block, body) = (None, None, None);
        let is_weak = false;
        let mut function = Function { is_entry, is_weak, name, signature, max_threads, required_block, body, span };
        let mut statements = Vec::new();
        self.performance(&mut function, start)?;
        if !self.eat(b';') {
            self.body(&mut statements, start)?;
            function.body = Some(statements);
        }
        Ok(function)
    }

    /// Parameters in parentheses, if any.
    fn parameter_list(&mut self) -> Result<Vec<Declaration<'a>>, LoadError> {
        let mut parameters = Vec::new();
        let start = self.span();
        if !self.eat(b'(') {
            return Ok(parameters);
        }
        while !self.eat(b')') {
            parameters.push(self.parameter()?);
            if !self.eat(b',') {
                self.expect(b')', start)?;
                break;
            }
        }
        Ok(parameters)
    }

    /// The directives between signature and body.
    fn performance(&mut self, function: &mut Function<'a>, start: Span) -> Result<(), LoadError> {
        while let Kind::Dot(name) = self.kind() {
            match name {
                "maxntid" | "reqntid" => {
                    self.next();
                    let shape = self.shape(start)?;
                    let threads = shape.iter().fold(1u32, |product, &length| product.saturating_mul(length));
                    function.max_threads = Some(function.max_threads.unwrap_or(u32::MAX).min(threads));
                    if name == "reqntid" {
                        function.required_block = Some(shape);
                    }
                }
                "minnctapersm" | "maxnctapersm" | "maxnreg" => {
                    self.next();
                    self.integer(start)?;
                }
                "noreturn" => {
                    self.next();
                }
                "pragma" => self.skip_statement()?,
                _ => return Err(self.error(self.span(), "directive is not supported")),
            }
        }
        Ok(())
    }

    /// One to three lengths; missing ones are 1.
    fn shape(&mut self, start: Span) -> Result<[u32; 3], LoadError> {
        let mut shape = [1; 3];
        for length in &mut shape {
            let value = self.integer(start)?;
            *length = u32::try_from(value).unwrap_or(u32::MAX);
            if !self.eat(b',') {
                break;
            }
        }
        Ok(shape)
    }

    fn body(&mut self, statements: &mut Vec<Statement<'a>>, start: Span) -> Result<(), LoadError> {
        self.expect(b'{', start)?;
        let mut depth = 1u32;
        loop {
            let span = self.span();
            if self.eat(b'{') {
                depth += 1;
                statements.push(Statement::Open(span));
            } else if self.eat(b'}') {
                depth -= 1;
                if depth == 0 {
                    return Ok(());
                }
                statements.push(Statement::Close);
            } else if self.kind() == Kind::End {
                return Err(self.error(start, "the body does not end"));
            } else {
                self.supported(statements)?;
            }
        }
    }

    /// A statement. One that is not supported is passed over, and refuses its function only.
    fn supported(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
        let (at, start) = (self.at, self.span());
        match self.statement(statements) {
            Err(error) if error.is_unsupported => {
                self.at = at;
                self.skip_statement()?;
                let span = Span { end: self.last_span().start, ..start };
                statements.push(Statement::Unsupported(error.reason, span));
                Ok(())
            }
            parsed => parsed,
        }
    }

    fn statement(&mut self, statements: &mut Vec<Statement<'a>>) -> Result<(), LoadError> {
        let start = self.span();
        match self.kind() {
            Kind::Mark(b';') => {
                self.next();
            }
            Kind::Dot(name @ ("loc" | "file")) => self.skip_line_information(name, start)?,
            Kind::Dot("pragma") => self.skip_statement()?,
            Kind::Dot("section") => self.skip_section()?,
            Kind::Dot(_) => {
                let linkage = self.linkage();
                for declaration in self.variables(linkage, start)? {
                    statements.push(Statement::Declaration(declaration));
                }
            }
            Kind::Word(label) if self.kind_after(1) == Kind::Mark(b':') => {
                self.next();
                self.next();
                statements.push(self.labelled(label, start)?);
            }
            _ => statements.push(Statement::Instruction(self.instruction()?)),
        }
        Ok(())
    }

    /// A label for the next instruction, or the name of a table of targets.
    fn labelled(&mut self, label: &'a str, start: Span) -> Result<Statement<'a>, LoadError> {
        let statement = match self.kind() {
            Kind::Dot("branchtargets") => {
                self.next();
                let names = self.names(start)?;
                Statement::BranchTargets(label, names, start.to(self.last_span()))
            }
            Kind::Dot("calltargets") => {
                self.next();
                let names = self.names(start)?;
                Statement::CallTargets(label, names, start.to(self.last_span()))
            }
            Kind::Dot("callprototype") => {
                self.next();
                let returns = self.parameter_list()?;
                self.word(start)?;
                let parameters = self.parameter_list()?;
                if self.kind() == Kind::Dot("noreturn") {
                    self.next();
                }
                self.expect(b';', start)?;
                Statement::Prototype(label, Signature { returns, parameters }, start.to(self.last_span()))
            }
            _ => Statement::Label(label, start),
        };
        Ok(statement)
    }
}
