//! Output on stdout: width, colour, wrapped text.

use std::env;
use std::error::Error;
use std::io::{self, IsTerminal, Write, stdout};
use std::os::fd::AsFd;

use serde_json::Value;

use crate::Result;

/// The width of text that is not for a terminal, and the widest lines, in columns.
const DEFAULT_WIDTH: usize = 80;
const MOST: usize = 100;
const LEAST: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Blue = 34,
}

/// Stdout.
pub(crate) struct Screen {
    width: usize,
    coloured: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let columns = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|columns| *columns > 0);
        Self {
            width: columns.or_else(|| width_of(stdout())).unwrap_or(DEFAULT_WIDTH).clamp(LEAST, MOST),
            coloured: stdout().is_terminal() && !set("NO_COLOR") && !dumb,
        }
    }

    /// The columns of a line.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Text in a colour, if the terminal has colours.
    pub(crate) fn paint(&self, colour: Colour, text: &str) -> String {
        if self.coloured { format!("\x1b[{}m{text}\x1b[0m", colour as u8) } else { text.to_owned() }
    }

    /// Prints lines, each of which gets an end.
    pub(crate) fn print(&mut self, text: &str) -> Result {
        let mut out = stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') && !text.is_empty() {
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    pub(crate) fn print_json(&mut self, value: &Value) -> Result {
        self.print(&serde_json::to_string_pretty(value)?)
    }
}

/// The columns of a terminal that knows them, also where it has no rows, as those of `script` may have.
fn width_of(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The printing of a command whose exit code is its answer: a reader that closed the pipe has no influence on that. Under
/// `pipefail`, `vkgdr doctor | grep -q GPU` would otherwise succeed on a machine that cannot be used.
pub(crate) fn unless_closed(printed: Result) -> Result {
    printed.or_else(|error| if is_broken_pipe(&*error) { Ok(()) } else { Err(error) })
}

/// Whether the reader of stdout closed the pipe.
pub(crate) fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Breaks a text at spaces into lines of `width` columns. The first begins with `first`, the others with `rest`. Words
/// that are longer than a line stay whole: UUIDs, paths and names of flags.
pub(crate) fn wrap(text: &str, width: usize, first: &str, rest: &str) -> Vec<String> {
    let columns = |text: &str| text.chars().count();
    let mut lines = Vec::new();
    let (mut line, mut empty) = (first.to_owned(), true);
    for word in text.split_whitespace() {
        if !empty && columns(&line) + 1 + columns(word) > width {
            lines.push(std::mem::replace(&mut line, rest.to_owned()));
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    lines.push(line.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use rustix::pty::{OpenptFlags, openpt};
    use rustix::termios::{Winsize, tcsetwinsize};

    use super::*;

    #[test]
    fn a_terminal_without_rows_has_its_width() -> std::io::Result<()> {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        for (columns, expected) in [(60, Some(60)), (0, None)] {
            tcsetwinsize(&terminal, Winsize { ws_row: 0, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
            assert_eq!(width_of(&terminal), expected);
        }
        assert_eq!(width_of(std::fs::File::open("/dev/null")?), None);
        Ok(())
    }

    #[test]
    fn text_is_wrapped_at_spaces_and_long_words_stay_whole() {
        assert_eq!(wrap("one two three", 8, "- ", "  "), ["- one", "  two", "  three"]);
        assert_eq!(wrap("a 123456789 b", 4, "", ""), ["a", "123456789", "b"]);
        assert_eq!(wrap("", 10, "  ", "  "), [""]);
    }
}
