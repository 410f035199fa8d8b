//! Reports a failed launch: the context's error, a line on stderr, and the text for tests.

use std::sync::Mutex;

use ptx::{Fault, FaultKind};
use simcommon::say;

use crate::code::{
    ASSERT, Code, HARDWARE_STACK_ERROR, ILLEGAL_ADDRESS, ILLEGAL_INSTRUCTION, INVALID_PC, LAUNCH_FAILED,
    LAUNCH_TIMEOUT, MISALIGNED_ADDRESS, Outcome,
};
use crate::health::Health;
use crate::memory::table::{self, Near};
use crate::memory::window::Window;
use crate::sync::lock;

static LAST: Mutex<Option<String>> = Mutex::new(None);

/// The text of the last fault, if there was one.
pub(crate) fn last() -> Option<String> {
    lock(&LAST).clone()
}

/// Forgets the last fault.
pub(crate) fn forget() {
    *lock(&LAST) = None;
}

/// Reports the fault and returns the code that the context fails with, if it does.
pub(super) fn report(fault: &Fault, health: &Health) -> Outcome {
    let interrupted = fault.kind == FaultKind::Interrupted;
    if interrupted {
        // A consequence of an error that was already reported.
        health.check()?;
        if health.ending() {
            say!("simcuda: {fault}: the program was interrupted while it waited for it");
            return Ok(());
        }
    }
    let text = match fault.kind {
        // A block's or thread's own memory has nothing to do with allocations.
        FaultKind::IllegalAddress if fault.detail.is_empty() => format!("{fault}: {}", place(fault.address)),
        _ if interrupted => format!("{fault}: its context was destroyed while it ran"),
        _ => fault.to_string(),
    };
    say!("simcuda: {text}");
    *lock(&LAST) = Some(text);
    Err(code(fault.kind))
}

fn code(kind: FaultKind) -> Code {
    match kind {
        FaultKind::IllegalAddress => ILLEGAL_ADDRESS,
        FaultKind::MisalignedAddress => MISALIGNED_ADDRESS,
        FaultKind::Assert => ASSERT,
        FaultKind::InvalidPc => INVALID_PC,
        FaultKind::Unsupported => ILLEGAL_INSTRUCTION,
        FaultKind::StackOverflow => HARDWARE_STACK_ERROR,
        // The code of a GPU's watchdog for a kernel that never ends.
        FaultKind::Deadlock => LAUNCH_TIMEOUT,
        _ => LAUNCH_FAILED,
    }
}

// Linux maps nothing below it by default (vm.mmap_min_addr).
const LOWEST: u64 = 64 << 10;

// The position of the address relative to the nearest allocation. An address below the lowest is an offset from a null pointer,
// of an element or a member.
fn place(address: u64) -> String {
    match address {
        0 => return "a null pointer".to_owned(),
        1..LOWEST => return format!("{address} bytes behind a null pointer"),
        _ => {}
    }
    let Ok(address) = usize::try_from(address) else { return "no such address".to_owned() };
    let range = |window: &Window| format!("{} bytes at {:#x}", window.size, window.address);
    match table::near(address) {
        Near::Inside(window) => format!("it leaves {}", range(&window)),
        Near::Freed(window) => format!("it was in {}, which were freed", range(&window)),
        Near::After(window) => {
            let beyond = address - (window.address + window.size);
            format!("the nearest allocation, {}, ended {beyond} bytes before", range(&window))
        }
        Near::Before(window) => {
            format!("the nearest allocation, {}, starts {} bytes after", range(&window), window.address - address)
        }
        Near::Nothing => "nothing is allocated".to_owned(),
    }
}
