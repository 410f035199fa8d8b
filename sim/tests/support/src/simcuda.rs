//! The simulated CUDA driver's controls.
#![expect(unsafe_code, reason = "calls a C function found in a loaded library")]

use std::ops::Deref;
use std::sync::OnceLock;

use libloading::Library;

use crate::controls::{self, Controls, Text};
use crate::driver;

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
        .get_or_init(|| match load(driver::library()?) {
            Ok(driver) => Some(driver),
            // The first one: a real driver.
            Err(missing) if missing == "simcuda_live_objects" => None,
            Err(missing) => panic!("the simulated driver has no {missing}: rebuild it"),
        })
        .as_ref()
}

fn load(library: &Library) -> Result<SimCuda, String> {
    let controls = Controls::load(library, "simcuda")?;
    // SAFETY: the driver documents this name with this signature.
    let last_kernel_fault = unsafe { controls::find(library, "simcuda", "last_kernel_fault") }?;
    Ok(SimCuda { controls, last_kernel_fault })
}
