//! The windows of generic addresses: where each state space lies among them.

/// The top bits of generic addresses of shared, local and parameter memory, which no global address has.
const SHARED: u64 = 0xf100_0000_0000_0000;
const LOCAL: u64 = 0xf200_0000_0000_0000;
const PARAM: u64 = 0xf300_0000_0000_0000;
const TOP: u64 = 0xff00_0000_0000_0000;

/// The bytes of a block's shared memory that PTX reserves for the system, as `%reserved_smem_offset_cap` says; those that GPUs
/// from compute capability 8.0 on reserve (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
pub(crate) const RESERVED_SHARED: u16 = 1024;

/// A state space that a kernel accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// Global and const memory.
    Global,
    /// The state space that the address selects.
    Generic,
    Shared,
    Local,
    /// The kernel's parameters.
    Param,
}

impl Window {
    /// The generic address of its start.
    pub(crate) fn base(self) -> u64 {
        match self {
            Window::Shared => SHARED,
            Window::Local => LOCAL,
            Window::Param => PARAM,
            Window::Global | Window::Generic => 0,
        }
    }

    /// Whether a generic address lies in it. The window of the kernel's parameters is in that of global memory (PTX ISA,
    /// `isspacep`).
    pub(crate) fn contains(self, address: u64) -> bool {
        let inside = Window::of(address).0;
        inside == self || (inside, self) == (Window::Param, Window::Global)
    }

    /// The state space of a generic address, and the address in it.
    pub(crate) fn of(address: u64) -> (Window, u64) {
        let window = match address & TOP {
            SHARED => Window::Shared,
            LOCAL => Window::Local,
            PARAM => Window::Param,
            _ => return (Window::Global, address),
        };
        (window, address & !TOP)
    }
}
