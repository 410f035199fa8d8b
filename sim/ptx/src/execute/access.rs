//! Loads and stores in every state space.

use crate::fault::FaultKind;
use crate::memory::Memory;
use crate::op::Access;
use crate::window::Window;

/// The memory visible to a thread.
pub(super) struct View<'v> {
    pub(super) memory: &'v dyn Memory,
    pub(super) shared: &'v mut [u8],
    /// The thread's local memory, of all its frames.
    pub(super) local: &'v mut [u8],
    pub(super) parameters: &'v [u8],
}

impl View<'_> {
    pub(super) fn load(&self, address: u64, access: Access) -> Result<u64, FaultKind> {
        check(address, access)?;
        let (window, at) = locate(address, access);
        let bytes = u32::from(access.bytes);
        let value = match window {
            Window::Global | Window::Generic if access.weak => self.memory.load_weak(at, bytes),
            Window::Global | Window::Generic => self.memory.load(at, bytes),
            Window::Shared => read(self.shared, at, bytes),
            Window::Local => read(self.local, at, bytes),
            Window::Param => read(self.parameters, at, bytes),
        };
        let value = value.ok_or(FaultKind::IllegalAddress)?;
        if access.extend == 0 {
            return Ok(value);
        }
        let wide = crate::arithmetic::sign_extend(value, 8 * bytes);
        Ok(wide & crate::arithmetic::mask(u32::from(access.extend)))
    }

    pub(super) fn store(&mut self, address: u64, access: Access, value: u64) -> Result<(), FaultKind> {
        check(address, access)?;
        let (window, at) = locate(address, access);
        let bytes = u32::from(access.bytes);
        let stored = match window {
            Window::Global | Window::Generic => {
                self.memory.store(at, bytes, value & crate::arithmetic::mask(8 * bytes))
            }
            Window::Shared => write(self.shared, at, bytes, value),
            Window::Local => write(self.local, at, bytes, value),
            Window::Param => None,
        };
        stored.ok_or(FaultKind::IllegalAddress)
    }

    /// The size of the thread's or block's own memory that an illegal access missed; empty for global memory.
    pub(super) fn size(&self, address: u64, access: Access) -> String {
        let (space, bytes) = match locate(address, access).0 {
            Window::Shared => ("shared memory", self.shared.len()),
            Window::Local => ("local memory", self.local.len()),
            Window::Param => ("the kernel's parameters", self.parameters.len()),
            Window::Global | Window::Generic => return String::new(),
        };
        format!("outside the {bytes} bytes of {space}")
    }

    /// Returns the old value.
    pub(super) fn update(
        &mut self,
        address: u64,
        access: Access,
        mut change: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        check(address, access)?;
        let (window, at) = locate(address, access);
        let bytes = u32::from(access.bytes);
        // No other thread of the machine accesses a block's own memory.
        let mut own = |memory: &mut [u8]| {
            let old = read(memory, at, bytes)?;
            write(memory, at, bytes, change(old))?;
            Some(old)
        };
        let old = match window {
            Window::Shared => own(self.shared),
            Window::Local => own(self.local),
            Window::Param => None,
            Window::Global | Window::Generic => self.memory.update(at, bytes, &mut change),
        };
        old.ok_or(FaultKind::IllegalAddress)
    }
}

fn check(address: u64, access: Access) -> Result<(), FaultKind> {
    // Alignments are powers of two.
    if address & (u64::from(access.align) - 1) == 0 { Ok(()) } else { Err(FaultKind::MisalignedAddress) }
}

fn locate(address: u64, access: Access) -> (Window, u64) {
    match access.window {
        Window::Generic => Window::of(address),
        Window::Shared if access.wraps => (Window::Shared, address & 0xffff_ffff),
        window => (window, address),
    }
}

/// Little-endian, at most eight bytes.
pub(super) fn read(memory: &[u8], at: u64, bytes: u32) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let slice = memory.get(at..at.checked_add(bytes as usize)?)?;
    Some(match *slice {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => return None,
    })
}

/// The low bytes of the value.
pub(super) fn write(memory: &mut [u8], at: u64, bytes: u32, value: u64) -> Option<()> {
    let at = usize::try_from(at).ok()?;
    let slice = memory.get_mut(at..at.checked_add(bytes as usize)?)?;
    slice.copy_from_slice(value.to_le_bytes().get(..bytes as usize)?);
    Some(())
}
