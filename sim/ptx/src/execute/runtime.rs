//! The device runtime: `vprintf`, `__assertfail`, `malloc` and `free`.

use super::access::{View, read};
use super::grid::Grid;
use super::printf::formatted;
use super::warp::{Trouble, Warp};
use crate::fault::FaultKind;
use crate::op::{Access, Place};
use crate::window::Window;
use std::io::Write;

/// The length after which a text is cut, in bytes: the size of the buffer in which CUDA collects what is printed
/// (`cudaLimitPrintfFifoSize`).
const LONGEST_TEXT: u64 = 1 << 20;

/// Prints at once. CUDA would buffer the output until the device is synchronised. The result is the number of arguments that
/// were printed, and -1 without a format.
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
    if format == 0 {
        give(warp, lane, result, 4, u64::from(u32::MAX));
        return Ok(());
    }
    let format = text(&view, lane, format).ok_or(FaultKind::IllegalAddress)?;
    let (printed, count) = formatted(&view, lane, &format, buffer)?;
    let mut output = std::io::stdout().lock();
    // There is no way to report that the output is closed.
    let _ = output.write_all(&printed).and_then(|()| output.flush());
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
    let read = |address| match text(&view, lane, address) {
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        None => "?".to_owned(),
    };
    let detail = format!("{}:{line}: {}: assertion `{}` failed", read(file), read(function), read(message));
    Trouble { detail, ..FaultKind::Assert.into() }
}

fn argument(warp: &Warp, lane: usize, place: Place, bytes: u32) -> u64 {
    match place {
        Place::Slot(slot) => warp.slot(lane, slot),
        Place::Local(offset) => read(&warp.local[lane], warp.local_base(lane) + offset, bytes).unwrap_or(0),
    }
}

/// The bytes of the text at a generic address, up to its zero byte.
pub(super) fn text(view: &View<'_>, lane: usize, address: u64) -> Option<Vec<u8>> {
    let byte = Access { window: Window::Generic, bytes: 1, align: 1, extend: 0, weak: false, wraps: false };
    let mut bytes = Vec::new();
    for at in 0..LONGEST_TEXT {
        match view.load(lane, address.wrapping_add(at), byte).ok()? {
            0 => break,
            value => bytes.push(u8::try_from(value).unwrap_or(b'?')),
        }
    }
    Some(bytes)
}
