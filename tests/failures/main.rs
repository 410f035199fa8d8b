//! When call N of an operation fails, for every N, the error names it and nothing stays behind.
//!
//! The calls of the CUDA driver can be made to fail where that is the simulated one, and Vulkan's where the fault
//! layer is loaded (`VKGDR_TEST_LAYERS=faults` or `validation`), on any driver. What cannot be swept is said.

mod access;
mod allocate;
use support::child;
mod exhaustion;
mod first_open;
mod gate;
mod open;
mod place;
mod pool;
mod quiet;
mod release;
mod stream;
mod sweep;
mod teardown;
mod transfer;

use support::Result;
