//! When call N of an operation fails, for every N, the error names it and nothing stays behind.
//!
//! Calls of the simulated CUDA driver can be made to fail, and Vulkan calls of any driver if the fault layer is loaded
//! (`VKGDR_TEST_LAYERS=faults` or `validation`). Skipped sweeps are printed.

mod access;
mod allocate;
use support::child;
mod exhaustion;
mod existing;
mod first_open;
mod host;
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

use support::Result;
