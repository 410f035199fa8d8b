//! The simulated CUDA driver's controls.
#![expect(unsafe_code, reason = "opens libcuda")]

use std::mem::ManuallyDrop;
use std::sync::OnceLock;

use libloading::Library;

use crate::controls::Controls;

/// The controls of the simulated driver behind `libcuda.so.1`; `None` on a real driver or without one.
///
/// # Panics
/// When the library is a simulated driver that lacks one of the controls.
#[must_use]
pub fn simcuda() -> Option<&'static Controls> {
    static SIMCUDA: OnceLock<Option<Controls>> = OnceLock::new();
    SIMCUDA
        .get_or_init(|| {
            // SAFETY: the constructors of libcuda have no preconditions.
            let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
            // The function pointers outlive this scope, so the library must never be closed.
            let library = ManuallyDrop::new(library);
            match Controls::load(&library, "simcuda") {
                Ok(controls) => Some(controls),
                // The first one: a real driver.
                Err(missing) if missing == "simcuda_live_objects" => None,
                Err(missing) => panic!("the simulated driver has no {missing}: rebuild it"),
            }
        })
        .as_ref()
}
