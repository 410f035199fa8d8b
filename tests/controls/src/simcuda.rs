//! The simulated CUDA driver's controls.
#![expect(unsafe_code, reason = "opens libcuda and calls its C functions")]

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::OnceLock;

use libloading::Library;

use crate::controls::{self, Controls, Text};

/// The simulated driver behind `libcuda.so.1`, with its [`Controls`].
#[derive(Debug)]
pub struct SimCuda {
    controls: Controls,
    last_kernel_fault: Text,
}

impl SimCuda {
    /// The fault of the last failed kernel since the faults were cleared, in one line.
    #[must_use]
    pub fn last_kernel_fault(&self) -> Option<String> {
        controls::text(self.last_kernel_fault)
    }
}

impl Deref for SimCuda {
    type Target = Controls;

    fn deref(&self) -> &Controls {
        &self.controls
    }
}

/// The simulated driver; `None` on a real driver or without one.
///
/// # Panics
/// When the library is a simulated driver that lacks one of the controls.
#[must_use]
pub fn simcuda() -> Option<&'static SimCuda> {
    static SIMCUDA: OnceLock<Option<SimCuda>> = OnceLock::new();
    SIMCUDA
        .get_or_init(|| {
            // SAFETY: the constructors of libcuda have no preconditions.
            let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
            // The function pointers outlive this scope, so the library must never be closed.
            let library = ManuallyDrop::new(library);
            let symbols = |name: &CStr| controls::address(&library, name);
            symbols(c"simcuda_live_objects")?;
            let loaded = load(&symbols);
            Some(loaded.unwrap_or_else(|missing| panic!("the simulated driver has no {missing}: rebuild it")))
        })
        .as_ref()
}

fn load(symbols: controls::Symbols<'_>) -> Result<SimCuda, String> {
    let controls = Controls::load(symbols, "simcuda")?;
    // SAFETY: the driver documents this name with this signature.
    let last_kernel_fault = unsafe { controls::find(symbols, "simcuda", "last_kernel_fault") }?;
    Ok(SimCuda { controls, last_kernel_fault })
}
