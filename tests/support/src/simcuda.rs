//! The simulated CUDA driver's controls.

use std::ops::Deref;
use std::sync::OnceLock;

use crate::controls::Controls;
use crate::driver;

/// The simulated driver behind `libcuda.so.1`; see [`Controls`] for what it offers.
#[derive(Debug)]
pub struct SimCuda {
    controls: Controls,
}

impl Deref for SimCuda {
    type Target = Controls;

    fn deref(&self) -> &Controls {
        &self.controls
    }
}

/// The simulated driver, when that is what `libcuda` is; `None` on a real driver and without one.
///
/// # Panics
/// When the library is a simulated driver that lacks one of the controls.
#[must_use]
pub fn simcuda() -> Option<&'static SimCuda> {
    static SIMCUDA: OnceLock<Option<SimCuda>> = OnceLock::new();
    SIMCUDA
        .get_or_init(|| {
            if driver::kind() != Some(driver::DriverKind::Sim) {
                return None;
            }
            let controls = Controls::load(&driver::symbol, "simcuda");
            controls
                .map(|controls| SimCuda { controls })
                .map(Some)
                .unwrap_or_else(|missing| panic!("the simulated driver has no {missing}: rebuild it"))
        })
        .as_ref()
}
