//! The structures and constants of dlpack.h.

use std::ffi::{CStr, c_int, c_void};

/// `kDLCPU`
pub(super) const CPU: c_int = 1;
/// `kDLCUDA`
pub(super) const CUDA: c_int = 2;
/// `kDLUInt`
pub(super) const UINT: u8 = 1;
/// `DLPACK_FLAG_BITMASK_READ_ONLY`
pub(super) const READ_ONLY: u64 = 1;
/// `DLPACK_FLAG_BITMASK_IS_COPIED`
pub(super) const IS_COPIED: u64 = 2;
/// `DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED`: elements of less than a byte lie in a byte each
pub(super) const IS_PADDED: u64 = 4;

/// The names of capsules before and after a consumer takes the tensor.
pub(super) const LEGACY: &CStr = c"dltensor";
pub(super) const LEGACY_USED: &CStr = c"used_dltensor";
pub(super) const VERSIONED: &CStr = c"dltensor_versioned";
pub(super) const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// `DLDevice`
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) kind: c_int,
    pub(super) id: c_int,
}

/// `DLDataType`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DataType {
    pub(super) code: u8,
    pub(super) bits: u8,
    pub(super) lanes: u16,
}

/// `DLTensor`
#[repr(C)]
pub(super) struct Tensor {
    pub(super) data: *mut c_void,
    pub(super) device: Device,
    pub(super) ndim: c_int,
    pub(super) dtype: DataType,
    pub(super) shape: *mut i64,
    /// In elements; null means C order.
    pub(super) strides: *mut i64,
    /// In bytes.
    pub(super) byte_offset: u64,
}

/// `DLManagedTensor`
#[repr(C)]
pub(super) struct Managed {
    pub(super) tensor: Tensor,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLPackVersion`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) major: u32,
    pub(super) minor: u32,
}

/// The version of exported tensors.
pub(super) const VERSION: Version = Version { major: 1, minor: 1 };

/// `DLManagedTensorVersioned`
#[repr(C)]
pub(super) struct ManagedVersioned {
    pub(super) version: Version,
    pub(super) context: *mut c_void,
    pub(super) deleter: Option<unsafe extern "C" fn(*mut Self)>,
    pub(super) flags: u64,
    pub(super) tensor: Tensor,
}
