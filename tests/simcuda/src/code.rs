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
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const MAP_FAILED: Code = 205;
pub(crate) const UNSUPPORTED_LIMIT: Code = 215;
pub(crate) const OPERATING_SYSTEM: Code = 304;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_READY: Code = 600;
pub(crate) const ILLEGAL_ADDRESS: Code = 700;
pub(crate) const CONTEXT_IS_DESTROYED: Code = 709;
pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Code = 712;
pub(crate) const HOST_MEMORY_NOT_REGISTERED: Code = 713;
pub(crate) const NOT_PERMITTED: Code = 800;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const UNKNOWN: Code = 999;
