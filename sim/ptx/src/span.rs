//! Positions in the source, and quotations in errors.

/// A range of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// From 1.
    pub(crate) line: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn new(line: u32, start: usize, end: usize) -> Span {
        // The lexer refuses sources that do not fit.
        let narrow = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Span { line, start: narrow(start), end: narrow(end) }
    }

    /// From the start of this one to the end of the other.
    pub(crate) fn to(self, other: Span) -> Span {
        Span { end: other.end.max(self.end), ..self }
    }

    pub(crate) fn text(self, source: &str) -> String {
        excerpt(source, self.start as usize, self.end as usize)
    }
}

/// The source between two offsets on one line, shortened if it is long.
pub(crate) fn excerpt(source: &str, start: usize, end: usize) -> String {
    const LONGEST: usize = 160;
    let bytes = source.as_bytes();
    let slice = bytes.get(start.min(bytes.len())..end.min(bytes.len())).unwrap_or_default();
    // Enough for the quotation, however much white space it has.
    let slice = &slice[..slice.len().min(8 * LONGEST)];
    let text = String::from_utf8_lossy(slice);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &words[..cut]),
        None => words,
    }
}
