//! When call N of an operation fails, for every N, the error names it and nothing stays behind.
//!
//! Calls of the simulated CUDA driver can be made to fail, and Vulkan calls of any driver if the fault layer is loaded
//! (`VKGDR_TEST_LAYERS=faults` or `validation`). Skipped sweeps are printed.

mod access;
mod allocate;
mod exhaustion;
mod existing;
mod first_open;
mod open;
mod place;
mod pool;
mod quiet;
mod release;
mod ring;
mod stream;
mod sweep;
mod teardown;
mod transfer;
mod vulkan;

use support::{Result, child};
use vkgdr::OpenFlags;

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
/// No multiple of an atom.
const LEN: usize = 4097;
