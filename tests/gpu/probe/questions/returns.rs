//! Whether fills and copies have written when they return.
#![forbid(unsafe_code)]

use super::kind_named;
use crate::cuda::{self, Answer};
use crate::host::Words;
use crate::{Probe, allocate};

/// A call and the kind of memory that it writes.
pub(super) const CALLS: &[&str] =
    &["cuMemsetD8, mapped", "cuMemsetD8, host", "cuMemcpyHtoD, mapped", "cuMemcpyHtoD, host"];

/// The CPU reads the last word at once when the call has returned, and again after a wait. Copies are from pageable
/// memory, of which the driver treats those up to 64 KiB differently ("API synchronization behavior", CUDA driver API).
pub(super) fn has_written(probe: &Probe, part: &str) -> Answer<String> {
    const ROUNDS: u8 = 20;
    let (call, kind) = part.split_once(", ").unwrap_or((part, ""));
    let memory = allocate(&probe.vkgdr()?, 64 << 20, kind_named(kind))?;
    let words = Words::of(&memory)?;
    let mut answers = Vec::new();
    for (len, name) in [(64 << 10, "64 KiB"), (64 << 20, "64 MiB")] {
        let last = len / 4 - 1;
        let see = || -> Answer<u32> {
            memory.invalidate(last * 4..len).map_err(|error| error.to_string())?;
            Ok(words.get(last))
        };
        let (mut old, mut wrong) = (0, 0);
        for round in 1..=ROUNDS {
            let source = if call == "cuMemcpyHtoD" { vec![round; len] } else { Vec::new() };
            probe.cuda.synchronize()?;
            if source.is_empty() {
                cuda::memset(memory.device_ptr(), round, len)?;
            } else {
                cuda::copy_from_host(memory.device_ptr(), &source)?;
            }
            let wanted = u32::from_ne_bytes([round; 4]);
            old += u32::from(see()? != wanted);
            probe.cuda.synchronize()?;
            wrong += u32::from(see()? != wanted);
        }
        answers.push(format!("{name}: {old} of {ROUNDS} times old bytes at once, {wrong} after a wait"));
    }
    Ok(answers.join("; "))
}
