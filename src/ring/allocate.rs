//! The memory of a ring: its two allocations, which begin with the control words and the description for the kernel.
#![expect(unsafe_code, reason = "frees memory that the device never had")]

use super::layout::{CONTROL, DESCRIPTION, VERSION};
use crate::report::report;
use crate::{AllocateOptions, Memory, MemoryKind, Result, Vkgdr};

/// Memory with room for the records of messages and of answers, in bytes.
///
/// After a failure nothing is waited for: the kernel of another ring may run until that ring is closed.
pub(super) fn allocate(
    owner: &Vkgdr,
    (messages, answers): (usize, usize),
    options: AllocateOptions,
) -> Result<(Memory, Memory)> {
    let device = Memory::allocate_with(owner, CONTROL + messages, options)?;
    let host = match Memory::allocate(owner, CONTROL + answers, MemoryKind::Host) {
        Ok(host) => host,
        Err(error) => {
            discard(device);
            return Err(error);
        }
    };
    match describe(&device, &host, (messages, answers)) {
        Ok(()) => Ok((device, host)),
        Err(error) => {
            discard(device);
            discard(host);
            Err(error)
        }
    }
}

/// Writes the control words and the description.
fn describe(device: &Memory, host: &Memory, (messages, answers): (usize, usize)) -> Result<()> {
    for memory in [device, host] {
        memory.write(0, &[0_u8; CONTROL])?;
    }
    let records = |memory: &Memory| memory.device_ptr() + CONTROL as u64;
    let description: [u64; DESCRIPTION] =
        [VERSION, records(device), messages as u64, records(host), answers as u64, host.device_ptr()];
    device.write(0, &description)?;
    [device, host].into_iter().try_for_each(|memory| memory.flush(..CONTROL))
}

/// Frees memory that no kernel has got, without a wait.
fn discard(memory: Memory) {
    // SAFETY: its address never left this file.
    if let Err(error) = unsafe { memory.free_unsynchronized() } {
        report!(Warn, "releasing memory: {error}");
    }
}
