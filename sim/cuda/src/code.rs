//! The result codes that the simulator itself returns. `errors` has the complete table with names.

/// A `CUresult`. An integer, because a value outside a Rust enum would be undefined behaviour.
pub(crate) type Code = i32;

/// What an exported function's body returns: nothing, or the code to hand to the caller.
pub(crate) type Outcome = Result<(), Code>;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const NOT_INITIALIZED: Code = 3;
pub(crate) const NO_DEVICE: Code = 100;
pub(crate) const INVALID_DEVICE: Code = 101;
pub(crate) const INVALID_IMAGE: Code = 200;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const MAP_FAILED: Code = 205;
pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
pub(crate) const UNSUPPORTED_LIMIT: Code = 215;
pub(crate) const INVALID_PTX: Code = 218;
pub(crate) const UNSUPPORTED_PTX_VERSION: Code = 222;
pub(crate) const FILE_NOT_FOUND: Code = 301;
pub(crate) const OPERATING_SYSTEM: Code = 304;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const ILLEGAL_ADDRESS: Code = 700;
pub(crate) const LAUNCH_OUT_OF_RESOURCES: Code = 701;
pub(crate) const LAUNCH_TIMEOUT: Code = 702;
pub(crate) const CONTEXT_IS_DESTROYED: Code = 709;
pub(crate) const ASSERT: Code = 710;
pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Code = 712;
pub(crate) const HOST_MEMORY_NOT_REGISTERED: Code = 713;
pub(crate) const HARDWARE_STACK_ERROR: Code = 714;
pub(crate) const MISALIGNED_ADDRESS: Code = 716;
pub(crate) const INVALID_PC: Code = 718;
pub(crate) const LAUNCH_FAILED: Code = 719;
pub(crate) const COOPERATIVE_LAUNCH_TOO_LARGE: Code = 720;
pub(crate) const NOT_PERMITTED: Code = 800;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const UNKNOWN: Code = 999;
