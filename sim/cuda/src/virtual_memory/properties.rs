//! The properties that an allocation is created with.

use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED};
use crate::device;
use crate::layout::{AllocationProperties, Location, MANAGED, PINNED};
use crate::profile::profile;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(super) const POSIX_FD: u32 = 1;
/// All bits of `CUmemAllocationHandleType`: Win32, its older form, fabric.
const HANDLE_TYPES: u32 = 0xf;

/// Checked properties: pinned memory of a device.
#[derive(Clone, Copy)]
pub(super) struct Properties {
    pub(super) device: i32,
    /// [`POSIX_FD`] or none.
    pub(super) handle_types: u32,
    /// Whether network cards shall reach the memory.
    pub(super) rdma: bool,
}

impl Properties {
    pub(super) fn new(given: &AllocationProperties) -> Result<Properties, Code> {
        let AllocationProperties { kind, handle_types, location, compression, rdma, usage, .. } = *given;
        if !matches!(kind, PINNED | MANAGED)
            || handle_types & !HANDLE_TYPES != 0
            || !(Location::ON_DEVICE..=Location::LAST).contains(&location.kind)
            || compression > 1
            || rdma > 1
            || usage > 1
        {
            return Err(INVALID_VALUE);
        }
        // The device's attributes say that it has none of these. Compression is a wish.
        let rdma = rdma != 0;
        let refused =
            kind == MANAGED || handle_types & !POSIX_FD != 0 || location.kind != Location::ON_DEVICE || usage != 0;
        if refused || (rdma && !profile().gpu_direct_rdma()) {
            return Err(NOT_SUPPORTED);
        }
        device::check(location.id)?;
        Ok(Properties { device: location.id, handle_types, rdma })
    }

    /// As the caller gave them, without compression.
    pub(super) fn given(self) -> AllocationProperties {
        let location = Location { kind: Location::ON_DEVICE, id: self.device };
        let mut given = AllocationProperties::pinned(self.handle_types, location);
        given.rdma = self.rdma.into();
        given
    }
}
