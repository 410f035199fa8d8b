//! The parser. This file has a module's top level, and the token cursor that the other files share.

mod constant;
mod declaration;
mod function;
mod instruction;

use crate::ast::{Function, Linkage, Source};
use crate::error::{LoadError, Reason};
use crate::lexer::{Kind, Number, Token, tokens};
use crate::span::Span;

/// Reads a module.
pub(crate) fn parse(source: &str) -> Result<Source<'_>, LoadError> {
    let tokens = tokens(source)?;
    let mut parser = Parser { source, tokens, at: 0 };
    let mut module = Source::default();
    while parser.kind() != Kind::End {
        parser.item(&mut module)?;
    }
    match module.version {
        (0, _) => Err(LoadError {
            line: 1,
            text: String::new(),
            reason: "the module has no .version".to_owned(),
            is_unsupported: false,
        }),
        _ => Ok(module),
    }
}

pub(crate) struct Parser<'a> {
    source: &'a str,
    /// Never empty: the last is [`Kind::End`].
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn item(&mut self, module: &mut Source<'a>) -> Result<(), LoadError> {
        let start = self.span();
        let Kind::Dot(name) = self.kind() else {
            return Err(self.error(start, "a directive was expected here"));
        };
        match name {
            "version" => module.version = self.version()?,
            "target" => module.target = self.target()?,
            "address_size" => self.address_size()?,
            "file" | "loc" => self.skip_line_information(name, start)?,
            "section" => self.skip_section()?,
            "pragma" => self.skip_statement()?,
            "entry" | "func" => {
                let function = self.function(start)?;
                module.functions.push(function);
            }
            _ => {
                let is_weak = self.kind() == Kind::Dot("weak");
                let linkage = self.linkage();
                if matches!(self.kind(), Kind::Dot("entry" | "func")) {
                    let function = self.function(start)?;
                    module.functions.push(Function { is_weak, ..function });
                } else {
                    module.variables.extend(self.variables(linkage, start)?);
                }
            }
        }
        Ok(())
    }

    fn version(&mut self) -> Result<(u32, u32), LoadError> {
        let start = self.span();
        self.next();
        let text = self.next().span.text(self.source);
        let parts = text.split_once('.').map(|(major, minor)| (major.parse(), minor.parse()));
        match parts {
            Some((Ok(major), Ok(minor))) if major > 0 => Ok((major, minor)),
            _ => Err(self.error(start, "a version such as 8.0 was expected")),
        }
    }

    /// `sm_NN`, and options after commas, which are ignored.
    fn target(&mut self) -> Result<u32, LoadError> {
        let start = self.span();
        self.next();
        let mut target = None;
        while let Kind::Word(word) = self.next().kind {
            if let Some(number) = word.strip_prefix("sm_") {
                target = number.trim_end_matches(['a', 'f']).parse().ok();
            } else if !(word == "debug" || word.starts_with("texmode_")) {
                return Err(self.error(start, "this target is not supported"));
            }
            if !self.eat(b',') {
                break;
            }
        }
        target.ok_or_else(|| self.error(start, "a target such as sm_70 was expected"))
    }

    fn address_size(&mut self) -> Result<(), LoadError> {
        let start = self.span();
        self.next();
        match self.next().kind {
            Kind::Number(Number::Integer(64)) => Ok(()),
            _ => Err(self.error(start, "addresses have 64 bits here")),
        }
    }

    fn linkage(&mut self) -> Linkage {
        let linkage = match self.kind() {
            Kind::Dot("visible") => Linkage::Here,
            Kind::Dot("weak") => Linkage::Weak,
            Kind::Dot("common") => Linkage::Common,
            Kind::Dot("extern") => Linkage::Extern,
            _ => return Linkage::Here,
        };
        self.next();
        linkage
    }

    fn kind(&self) -> Kind<'a> {
        self.tokens[self.at].kind
    }

    fn kind_after(&self, ahead: usize) -> Kind<'a> {
        self.tokens.get(self.at + ahead).map_or(Kind::End, |token| token.kind)
    }

    fn span(&self) -> Span {
        self.tokens[self.at].span
    }

    fn last_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    /// Never moves past the end.
    fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at];
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn eat(&mut self, mark: u8) -> bool {
        let there = self.kind() == Kind::Mark(mark);
        if there {
            self.next();
        }
        there
    }

    fn expect(&mut self, mark: u8, start: Span) -> Result<(), LoadError> {
        if self.eat(mark) {
            return Ok(());
        }
        Err(self.error(start, format!("'{}' was expected {}", char::from(mark), self.place())))
    }

    fn word(&mut self, start: Span) -> Result<&'a str, LoadError> {
        match self.kind() {
            Kind::Word(word) => {
                self.next();
                Ok(word)
            }
            _ => Err(self.error(start, format!("a name was expected {}", self.place()))),
        }
    }

    fn integer(&mut self, start: Span) -> Result<u64, LoadError> {
        let negative = self.eat(b'-');
        match self.kind() {
            Kind::Number(Number::Integer(value)) => {
                self.next();
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => Err(self.error(start, format!("an integer was expected {}", self.place()))),
        }
    }

    /// A comma-separated list of names, up to the semicolon.
    fn names(&mut self, start: Span) -> Result<Vec<&'a str>, LoadError> {
        let mut names = vec![self.word(start)?];
        while self.eat(b',') {
            names.push(self.word(start)?);
        }
        self.expect(b';', start)?;
        Ok(names)
    }

    /// The position of the parser, for an error message.
    fn place(&self) -> String {
        match self.kind() {
            Kind::End => "before the end".to_owned(),
            _ => format!("before '{}'", self.span().text(self.source)),
        }
    }

    /// `.file index "name"{, time, size}`, or `.loc file line column{, function_name label{+offset}, inlined_at file line
    /// column}`, which may go on in the next line.
    fn skip_line_information(&mut self, directive: &str, start: Span) -> Result<(), LoadError> {
        self.next();
        self.integer(start)?;
        if directive == "file" {
            if self.next().kind != Kind::Text {
                return Err(self.error(start, "the name of a file was expected"));
            }
            if self.eat(b',') {
                self.integer(start)?;
                self.expect(b',', start)?;
                self.integer(start)?;
            }
            return Ok(());
        }
        self.integer(start)?;
        self.integer(start)?;
        if !self.eat(b',') {
            return Ok(());
        }
        self.keyword("function_name", start)?;
        if !matches!(self.next().kind, Kind::Word(_) | Kind::Dot(_)) {
            return Err(self.error(start, "a label was expected"));
        }
        if self.eat(b'+') {
            self.integer(start)?;
        }
        self.expect(b',', start)?;
        self.keyword("inlined_at", start)?;
        for _ in 0..3 {
            self.integer(start)?;
        }
        Ok(())
    }

    fn keyword(&mut self, word: &str, start: Span) -> Result<(), LoadError> {
        if self.kind() != Kind::Word(word) {
            return Err(self.error(start, format!("'{word}' was expected {}", self.place())));
        }
        self.next();
        Ok(())
    }

    fn skip_statement(&mut self) -> Result<(), LoadError> {
        let start = self.span();
        while self.kind() != Kind::End {
            if self.eat(b';') {
                return Ok(());
            }
            self.next();
        }
        Err(self.error(start, "';' was expected before the end"))
    }

    /// Debug information in braces.
    fn skip_section(&mut self) -> Result<(), LoadError> {
        let start = self.span();
        while self.kind() != Kind::End && self.kind() != Kind::Mark(b'{') {
            self.next();
        }
        while self.kind() != Kind::End {
            if self.eat(b'}') {
                return Ok(());
            }
            self.next();
        }
        Err(self.error(start, "the section does not end"))
    }

    /// Quotes the statement that begins at `start`, up to its semicolon or the end of its line.
    fn error(&self, start: Span, reason: impl Into<Reason>) -> LoadError {
        let from = start.start as usize;
        let rest = self.source.as_bytes().get(from..).unwrap_or_default();
        let length = rest.iter().position(|&byte| matches!(byte, b';' | b'\n')).unwrap_or(rest.len());
        let text = crate::span::excerpt(self.source, from, from + length);
        let Reason { text: reason, is_unsupported } = reason.into();
        LoadError { line: start.line, text, reason: reason.into_owned(), is_unsupported }
    }
}
