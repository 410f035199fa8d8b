//! The device runtime: `vprintf`, `__assertfail`, `malloc` and `free`.

use super::access::{View, read};
use super::grid::Grid;
use super::warp::{Trouble, Warp};
use crate::fault::FaultKind;
use crate::op::{Access, Place};
use crate::window::Window;
use std::io::Write;

/// The maximum length of a text.
const LONGEST_TEXT: u64 = 4096;

/// Prints at once. CUDA would buffer the output until the device is synchronised.
pub(super) fn print(
    warp: &mut Warp,
    lane: usize,
    grid: &Grid<'_>,
    shared: &mut [u8],
    result: Option<Place>,
    arguments: [Place; 2],
) -> Result<(), Trouble> {
    let [format, buffer] = arguments.map(|place| argument(warp, lane, place, 8));
    let view = View { memory: grid.memory, shared, local: &mut warp.local, parameters: &grid.parameters };
    let format = text(&view, lane, format).ok_or(FaultKind::IllegalAddress)?;
    let printed = formatted(&view, lane, &format, buffer)?;
    let mut output = std::io::stdout().lock();
    // There is no way to report that the output is closed.
    let _ = output.write_all(printed.as_bytes()).and_then(|()| output.flush());
    let count = format.bytes().filter(|&byte| byte == b'%').count() as u64;
    give(warp, lane, result, 4, count);
    Ok(())
}

/// `malloc`: null where the heap is full, and for no bytes.
pub(super) fn allocate(warp: &mut Warp, lane: usize, grid: &Grid<'_>, result: Option<Place>, bytes: Place) {
    let bytes = argument(warp, lane, bytes, 8);
    let address = if bytes == 0 { 0 } else { grid.memory.allocate(bytes).unwrap_or(0) };
    give(warp, lane, result, 8, address);
}

/// `free`, of which null is a legal argument.
pub(super) fn release(warp: &Warp, lane: usize, grid: &Grid<'_>, address: Place) -> Result<(), Trouble> {
    let address = argument(warp, lane, address, 8);
    if address == 0 || grid.memory.release(address).is_some() {
        return Ok(());
    }
    let detail = "no live block of the kernel's heap starts there".to_owned();
    Err(Trouble { kind: FaultKind::IllegalAddress, address, bytes: 1, detail })
}

/// Stores a result of so many bytes.
fn give(warp: &mut Warp, lane: usize, result: Option<Place>, bytes: u32, value: u64) {
    match result {
        Some(Place::Slot(slot)) => warp.set_slot(lane, slot, value),
        Some(Place::Local(offset)) => {
            let at = warp.local_base(lane) + offset;
            // Lowering has checked that the location exists.
            let _ = super::access::write(&mut warp.local[lane], at, bytes, value);
        }
        None => {}
    }
}

/// The fault of a failed assertion, with as much of its text as is readable.
pub(super) fn assertion(
    warp: &mut Warp,
    lane: usize,
    grid: &Grid<'_>,
    shared: &mut [u8],
    arguments: [Place; 4],
) -> Trouble {
    let [message, file, _, function] = arguments.map(|place| argument(warp, lane, place, 8));
    let line = argument(warp, lane, arguments[2], 4);
    let view = View { memory: grid.memory, shared, local: &mut warp.local, parameters: &grid.parameters };
    let read = |address| text(&view, lane, address).unwrap_or_else(|| "?".to_owned());
    let detail = format!("{}:{line}: {}: assertion `{}` failed", read(file), read(function), read(message));
    Trouble { detail, ..FaultKind::Assert.into() }
}

fn argument(warp: &Warp, lane: usize, place: Place, bytes: u32) -> u64 {
    match place {
        Place::Slot(slot) => warp.slot(lane, slot),
        Place::Local(offset) => read(&warp.local[lane], warp.local_base(lane) + offset, bytes).unwrap_or(0),
    }
}

/// The text at a generic address, up to its zero byte.
fn text(view: &View<'_>, lane: usize, address: u64) -> Option<String> {
    let byte = Access { window: Window::Generic, bytes: 1, align: 1, extend: 0, weak: false, wraps: false };
    let mut bytes = Vec::new();
    for at in 0..LONGEST_TEXT {
        match view.load(lane, address.wrapping_add(at), byte).ok()? {
            0 => break,
            value => bytes.push(u8::try_from(value).unwrap_or(b'?')),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Fills the format's placeholders with the values of the buffer, each aligned to its size.
fn formatted(view: &View<'_>, lane: usize, format: &str, buffer: u64) -> Result<String, FaultKind> {
    let mut printed = String::new();
    let mut at = buffer;
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        printed.push_str(before);
        let end =
            after.find(|letter: char| letter == '%' || letter.is_ascii_alphabetic() && !"hlLzjt".contains(letter));
        let Some(end) = end else {
            printed.push('%');
            rest = after;
            continue;
        };
        // The letter is ASCII, hence one byte long.
        let (flags, letter) = (&after[..end], after.as_bytes()[end]);
        rest = &after[end + 1..];
        if letter == b'%' {
            printed.push('%');
            continue;
        }
        let wide = b"sfFeEgGaAp".contains(&letter) || flags.contains(['l', 'j', 'z', 't']);
        let bytes = if wide { 8 } else { 4 };
        at = at.next_multiple_of(u64::from(bytes));
        let value = view.load(
            lane,
            at,
            Access { window: Window::Generic, bytes, align: 1, extend: 0, weak: false, wraps: false },
        )?;
        at = at.wrapping_add(u64::from(bytes));
        let field = field(view, lane, flags, letter, value, wide)?;
        printed.push_str(&padded(flags, &field));
    }
    printed.push_str(rest);
    Ok(printed)
}

fn field(view: &View<'_>, lane: usize, flags: &str, letter: u8, value: u64, wide: bool) -> Result<String, FaultKind> {
    let precision = flags.split_once('.').and_then(|(_, digits)| {
        digits.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).parse::<usize>().ok()
    });
    let float = f64::from_bits(value);
    let digits = precision.unwrap_or(6).min(100);
    let signed = if wide { value.cast_signed() } else { crate::arithmetic::sign_extend(value, 32).cast_signed() };
    Ok(match letter {
        b'd' | b'i' => signed.to_string(),
        b'x' => format!("{value:x}"),
        b'X' => format!("{value:X}"),
        b'o' => format!("{value:o}"),
        b'c' => char::from(value.to_le_bytes()[0]).to_string(),
        b'p' => format!("{value:#x}"),
        b's' => text(view, lane, value).ok_or(FaultKind::IllegalAddress)?,
        b'f' | b'F' => format!("{float:.digits$}"),
        b'e' | b'E' => exponential(float, digits),
        b'g' | b'G' | b'a' | b'A' => float.to_string(),
        _ => value.to_string(),
    })
}

/// C prints an exponent with a sign and two digits.
fn exponential(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            format!("{mantissa}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// Pads to the width that the flags specify.
fn padded(flags: &str, field: &str) -> String {
    let flags = flags.split('.').next().unwrap_or_default();
    let start = flags.find(|letter: char| ('1'..='9').contains(&letter)).unwrap_or(flags.len());
    let digits = flags[start..].trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let width = digits.parse::<usize>().unwrap_or(0).min(1024);
    let flags = &flags[..start];
    if flags.contains('-') {
        return format!("{field:<width$}");
    }
    if flags.contains('0') {
        let (sign, number) = field.strip_prefix('-').map_or(("", field), |rest| ("-", rest));
        let width = width.saturating_sub(sign.len());
        return format!("{sign}{number:0>width$}");
    }
    format!("{field:>width$}")
}
