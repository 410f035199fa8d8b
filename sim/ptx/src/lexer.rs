//! Splits PTX text into tokens, without interpreting them.

use crate::error::LoadError;
use crate::span::{Span, excerpt};

/// A token and its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind<'a> {
    /// A name: `add`, `%r1`, `$L__BB0_1`, `_`.
    Word(&'a str),
    /// A directive or modifier, without its dot: `u32`, `L2::128B`.
    Dot(&'a str),
    /// A number without its sign.
    Number(Number),
    /// A quoted string, whose content is not used.
    Text,
    Mark(u8),
    /// Follows the last token.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(u64),
    /// `0f` and eight digits: the bits of an f32.
    Single(u32),
    /// `0d` and sixteen digits, or decimal: the bits of an f64.
    Double(u64),
}

impl Number {
    pub(crate) fn negated(self) -> Number {
        match self {
            Number::Integer(value) => Number::Integer(value.wrapping_neg()),
            Number::Single(bits) => Number::Single(bits ^ 1 << 31),
            Number::Double(bits) => Number::Double(bits ^ 1 << 63),
        }
    }
}

/// Limits sources, so that spans and lines fit in 32 bits.
const LARGEST_SOURCE: usize = 1 << 28;

/// All tokens of a source, [`Kind::End`] last.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token<'_>>, LoadError> {
    if source.len() > LARGEST_SOURCE {
        let reason = format!("the source has {} bytes; at most {LARGEST_SOURCE} are read", source.len());
        return Err(LoadError { line: 1, text: String::new(), reason, is_unsupported: false });
    }
    let mut lexer = Lexer { source, bytes: source.as_bytes(), at: 0, line: 1 };
    let mut tokens = Vec::new();
    loop {
        let token = lexer.token()?;
        tokens.push(token);
        if token.kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Lexer<'a> {
    fn token(&mut self) -> Result<Token<'a>, LoadError> {
        self.skip_blank()?;
        let (start, line) = (self.at, self.line);
        let kind = match self.peek(0) {
            None => Kind::End,
            Some(b'"') => self.text()?,
            Some(b'.') if is_name(self.peek(1)) => {
                self.at += 1;
                Kind::Dot(self.qualified())
            }
            Some(b'0'..=b'9') => self.number()?,
            Some(b'%') if !is_name(self.peek(1)) => self.mark(),
            Some(byte) if is_name(Some(byte)) || byte == b'%' => {
                self.at += 1;
                self.take_while(is_name);
                Kind::Word(&self.source[start..self.at])
            }
            Some(byte) if byte.is_ascii_graphic() => self.mark(),
            Some(_) => return Err(self.error(start, "this character has no meaning in PTX")),
        };
        Ok(Token { kind, span: Span::new(line, start, self.at) })
    }

    fn mark(&mut self) -> Kind<'a> {
        self.at += 1;
        Kind::Mark(self.bytes[self.at - 1])
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn take_while(&mut self, accepts: fn(Option<u8>) -> bool) -> &'a str {
        let start = self.at;
        while accepts(self.peek(0)) {
            self.at += 1;
        }
        &self.source[start..self.at]
    }

    /// A modifier's name: words separated by `::`.
    fn qualified(&mut self) -> &'a str {
        let start = self.at;
        self.take_while(is_name);
        while self.peek(0) == Some(b':') && self.peek(1) == Some(b':') && is_name(self.peek(2)) {
            self.at += 2;
            self.take_while(is_name);
        }
        &self.source[start..self.at]
    }

    fn skip_blank(&mut self) -> Result<(), LoadError> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b'\n'), _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (Some(b' ' | b'\t' | b'\r' | 0x0c), _) => self.at += 1,
                (Some(b'/'), Some(b'/')) => {
                    self.take_while(|byte| !matches!(byte, None | Some(b'\n')));
                }
                (Some(b'/'), Some(b'*')) => self.skip_comment()?,
                // The text passed to a driver ends with a zero byte, which some callers include in the length.
                (Some(0), None) => self.at += 1,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), LoadError> {
        let start = self.at;
        let Some(length) = self.source[start + 2..].find("*/") else {
            return Err(self.error(start, "the comment does not end"));
        };
        self.at = start + 2 + length + 2;
        let lines = self.bytes[start..self.at].iter().filter(|&&byte| byte == b'\n').count();
        self.line += u32::try_from(lines).unwrap_or(u32::MAX);
        Ok(())
    }

    fn text(&mut self) -> Result<Kind<'a>, LoadError> {
        let start = self.at;
        self.at += 1;
        self.take_while(|byte| !matches!(byte, None | Some(b'"' | b'\n')));
        if self.peek(0) != Some(b'"') {
            return Err(self.error(start, "the string does not end"));
        }
        self.at += 1;
        Ok(Kind::Text)
    }

    fn number(&mut self) -> Result<Kind<'a>, LoadError> {
        let start = self.at;
        let word = self.take_while(|byte| byte.is_some_and(|byte| byte.is_ascii_alphanumeric()));
        if self.is_decimal_float(word) {
            return self.decimal_float(start);
        }
        let value = match (word.get(..2), word.get(2..)) {
            (Some("0f" | "0F"), Some(digits)) if digits.len() == 8 => {
                u32::from_str_radix(digits, 16).ok().map(Number::Single)
            }
            (Some("0d" | "0D"), Some(digits)) if digits.len() == 16 => {
                u64::from_str_radix(digits, 16).ok().map(Number::Double)
            }
            _ => integer(word).map(Number::Integer),
        };
        value.map(Kind::Number).ok_or_else(|| self.error(start, "not a number, or too large"))
    }

    /// `1.5`, `1e3`, `1.`; not `0x1e3`.
    fn is_decimal_float(&self, word: &str) -> bool {
        let point = self.peek(0) == Some(b'.') && !self.peek(1).is_some_and(|byte| byte.is_ascii_alphabetic());
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let exponent = word.split_once(['e', 'E']).is_some_and(|(before, after)| digits(before) && digits(after));
        point && digits(word) || exponent
    }

    fn decimal_float(&mut self, start: usize) -> Result<Kind<'a>, LoadError> {
        if self.peek(0) == Some(b'.') {
            self.at += 1;
            self.take_while(|byte| byte.is_some_and(|byte| byte.is_ascii_alphanumeric()));
        }
        if self.source[start..self.at].ends_with(['e', 'E']) && matches!(self.peek(0), Some(b'+' | b'-')) {
            self.at += 1;
            self.take_while(|byte| byte.is_some_and(|byte| byte.is_ascii_digit()));
        }
        match self.source[start..self.at].parse::<f64>() {
            Ok(value) => Ok(Kind::Number(Number::Double(value.to_bits()))),
            Err(_) => Err(self.error(start, "not a number")),
        }
    }

    fn error(&self, start: usize, reason: &str) -> LoadError {
        let end = self.at.max(start + 1);
        LoadError {
            line: self.line,
            text: excerpt(self.source, start, end),
            reason: reason.to_owned(),
            is_unsupported: false,
        }
    }
}

fn is_name(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$')
}

fn integer(word: &str) -> Option<u64> {
    let word = word.strip_suffix(['u', 'U']).unwrap_or(word);
    let (digits, radix) = match word.get(..2) {
        Some("0x" | "0X") => (&word[2..], 16),
        Some("0b" | "0B") => (&word[2..], 2),
        _ if word.len() > 1 && word.starts_with('0') => (&word[1..], 8),
        _ => (word, 10),
    };
    u64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test that panics fails")]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Kind<'_>> {
        tokens(source).expect("the source is PTX").iter().map(|token| token.kind).collect()
    }

    #[test]
    fn an_instruction_falls_into_its_words() {
        let expected =
            [Kind::Word("ld"), Kind::Dot("L2::128B"), Kind::Word("%r1"), Kind::Mark(b','), Kind::Mark(b'['), Kind::End];
        assert_eq!(kinds("ld.L2::128B %r1, // comment\n ["), expected);
    }

    #[test]
    fn numbers_have_the_radix_of_their_prefix() {
        let source = "10 0x1F 017 0b101 4U 0f3F800000 0d3FF0000000000000 0d3FE0000000000000 1.5 2e3 1.5e-1";
        let doubles = [1.0f64, 0.5, 1.5, 2e3, 1.5e-1].map(|value| Number::Double(value.to_bits()));
        let integers = [10, 31, 15, 5, 4].map(Number::Integer);
        let numbers = [&integers[..], &[Number::Single(0x3f80_0000)], &doubles[..]].concat();
        let expected: Vec<Kind<'_>> = numbers.into_iter().map(Kind::Number).chain([Kind::End]).collect();
        assert_eq!(kinds(source), expected);
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let tokens = tokens("/* one\n two */\n// three\nadd").expect("the source is PTX");
        assert_eq!(tokens[0].span.line, 4);
    }

    #[test]
    fn what_does_not_end_or_means_nothing_is_refused() {
        for source in ["\"open", "/* open", "\u{e9}", "99999999999999999999", "0xfg", "08"] {
            assert!(tokens(source).is_err(), "{source}");
        }
    }
}
