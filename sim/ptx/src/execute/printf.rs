//! `vprintf`: formats as the C library of this machine does, by its `snprintf`.
#![expect(unsafe_code, reason = "calls the C library")]

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::ptr::{null_mut, with_exposed_provenance};

use super::access::View;
use super::runtime::text;
use crate::fault::FaultKind;
use crate::op::Access;
use crate::window::Window;

/// The largest width and precision, in characters: larger ones are taken for this.
const MAX_WIDTH: i64 = 4096;

/// The text, in which bytes that are not UTF-8 stay as they are, and the number of arguments that went into it.
pub(super) fn formatted(view: &View<'_>, lane: usize, format: &[u8], buffer: u64) -> Result<(Vec<u8>, u64), FaultKind> {
    let mut arguments = Arguments { view, lane, at: buffer, count: 0 };
    let mut printed = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        printed.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix(b"%") {
            printed.push(b'%');
            rest = after;
        } else if let Some((placeholder, after)) = Placeholder::parse(rest) {
            printed.extend(placeholder.filled(&mut arguments)?);
            rest = after;
        } else {
            printed.push(b'%');
        }
    }
    printed.extend_from_slice(rest);
    Ok((printed, arguments.count))
}

/// The leading bytes that are among `these`, as text, and the rest.
fn split<'a>(text: &'a [u8], these: &str) -> (&'a str, &'a [u8]) {
    let count = text.iter().take_while(|byte| these.as_bytes().contains(byte)).count();
    let (start, rest) = text.split_at(count);
    // They are ASCII.
    (std::str::from_utf8(start).unwrap_or_default(), rest)
}

/// The values of the buffer, each aligned to its size.
struct Arguments<'a> {
    view: &'a View<'a>,
    lane: usize,
    at: u64,
    count: u64,
}

impl Arguments<'_> {
    fn next(&mut self, bytes: u8) -> Result<u64, FaultKind> {
        let at = self.at.checked_next_multiple_of(u64::from(bytes)).ok_or(FaultKind::IllegalAddress)?;
        let access = Access { window: Window::Generic, bytes, align: 1, extend: 0, weak: false, wraps: false };
        let value = self.view.load(self.lane, at, access)?;
        self.at = at.wrapping_add(u64::from(bytes));
        self.count += 1;
        Ok(value)
    }

    fn next_int(&mut self) -> Result<c_int, FaultKind> {
        let [a, b, c, d, ..] = self.next(4)?.to_le_bytes();
        Ok(c_int::from_le_bytes([a, b, c, d]))
    }
}

/// A width or a precision.
#[derive(Clone, Copy)]
enum Number {
    Written(i64),
    /// `*`: the next argument.
    Argument,
}

impl Number {
    /// The number at the start of a text, and what follows.
    fn parse(text: &[u8]) -> (Option<Self>, &[u8]) {
        if let Some(rest) = text.strip_prefix(b"*") {
            return (Some(Self::Argument), rest);
        }
        let (digits, rest) = split(text, "0123456789");
        // All digits: too many of them are the largest width.
        ((!digits.is_empty()).then(|| Self::Written(digits.parse().unwrap_or(MAX_WIDTH))), rest)
    }

    fn value(self, arguments: &mut Arguments<'_>) -> Result<i64, FaultKind> {
        match self {
            Self::Written(number) => Ok(number),
            Self::Argument => Ok(arguments.next_int()?.into()),
        }
    }
}

/// `%[flags][width][.precision][size]letter`.
struct Placeholder<'a> {
    flags: &'a str,
    width: Option<Number>,
    precision: Option<Number>,
    size: &'a str,
    letter: char,
}

impl<'a> Placeholder<'a> {
    /// Parses the placeholder after a `%`: returns it and the rest of the text, or `None` if the text begins with none.
    fn parse(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (flags, rest) = split(text, "-+ #0");
        let (width, rest) = Number::parse(rest);
        let (precision, rest) = match rest.strip_prefix(b".") {
            Some(rest) => {
                let (precision, rest) = Number::parse(rest);
                (Some(precision.unwrap_or(Number::Written(0))), rest)
            }
            None => (None, rest),
        };
        let (size, rest) = split(rest, "hlLzjt");
        let (&letter, rest) = rest.split_first()?;
        let letter = Some(char::from(letter)).filter(|&letter| "cdiouxXpeEfFgGaAs".contains(letter))?;
        Some((Self { flags, width, precision, size, letter }, rest))
    }

    /// The text of the placeholder with its arguments.
    fn filled(&self, arguments: &mut Arguments<'_>) -> Result<Vec<u8>, FaultKind> {
        let mut format = format!("%{}", self.flags);
        if let Some(width) = self.width {
            let width = width.value(arguments)?;
            format += if width < 0 { "-" } else { "" };
            format += &width.abs().min(MAX_WIDTH).to_string();
        }
        if let Some(precision) = self.precision {
            let precision = precision.value(arguments)?;
            // A negative one counts as none.
            if precision >= 0 {
                format += &format!(".{}", precision.min(MAX_WIDTH));
            }
        }
        match self.letter {
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'a' | 'A' => {
                let value = f64::from_bits(arguments.next(8)?);
                Ok(printed(&format, self.letter, Value::Float(value)))
            }
            's' => {
                let value =
                    text(arguments.view, arguments.lane, arguments.next(8)?).ok_or(FaultKind::IllegalAddress)?;
                Ok(printed(&format, 's', Value::Text(&CString::new(value).unwrap_or_default())))
            }
            'p' => Ok(printed(&format, 'p', Value::Pointer(arguments.next(8)?))),
            _ if self.letter != 'c' && self.size.contains(['l', 'z', 'j', 't']) => {
                format += "ll";
                Ok(printed(&format, self.letter, Value::Long(arguments.next(8)?.cast_signed())))
            }
            letter => {
                format += if letter != 'c' && ["h", "hh"].contains(&self.size) { self.size } else { "" };
                Ok(printed(&format, letter, Value::Int(arguments.next_int()?)))
            }
        }
    }
}

/// The value of a placeholder, by its type in C.
enum Value<'a> {
    Int(c_int),
    Long(c_longlong),
    Float(f64),
    Text(&'a CStr),
    Pointer(u64),
}

/// One value, by a placeholder of exactly its type.
fn printed(format: &str, letter: char, value: Value<'_>) -> Vec<u8> {
    let format = CString::new(format!("{format}{letter}")).unwrap_or_default();
    let call = |buffer: *mut c_char, room: usize| {
        let format = format.as_ptr();
        match value {
            // SAFETY: the format has one placeholder, whose type is the value's, here and below; `buffer` has the room.
            Value::Int(value) => unsafe { libc::snprintf(buffer, room, format, value) },
            // SAFETY: as above.
            Value::Long(value) => unsafe { libc::snprintf(buffer, room, format, value) },
            // SAFETY: as above.
            Value::Float(value) => unsafe { libc::snprintf(buffer, room, format, value) },
            // SAFETY: as above; the text ends with a zero.
            Value::Text(value) => unsafe { libc::snprintf(buffer, room, format, value.as_ptr()) },
            Value::Pointer(value) => {
                let pointer = with_exposed_provenance::<c_void>(usize::try_from(value).unwrap_or(usize::MAX));
                // SAFETY: as above; the pointer is not read.
                unsafe { libc::snprintf(buffer, room, format, pointer) }
            }
        }
    };
    let len = usize::try_from(call(null_mut(), 0)).unwrap_or(0);
    let mut bytes = vec![0_u8; len + 1];
    call(bytes.as_mut_ptr().cast(), bytes.len());
    bytes.truncate(len);
    bytes
}
