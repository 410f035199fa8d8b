//! Loads a Vulkan driver without the Vulkan loader.
//!
//! It uses the interface between loader and drivers (Vulkan Loader, "Loader and Driver Interface").
#![expect(unsafe_code, reason = "foreign function calls")]

use ash::vk;
use libloading::Library;

use super::Named;
use crate::driver::library;
use crate::{Error, Result};

/// NVIDIA's Vulkan driver for machines without X11. The one that `nvidia_icd.json` names, `libGLX_nvidia.so.0`, needs
/// libXext and libX11 and does not start on some headless machines where this one does
/// (NVIDIA/nvidia-container-toolkit issues 16, 191 and 1952).
pub(crate) const HEADLESS: &str = "libEGL_nvidia.so.0";

/// The newest version of the interface that this file follows: from 5 on, a driver accepts applications for Vulkan 1.1
/// and later. A driver answers with the version that it knows.
const INTERFACE: u32 = 5;

type Negotiate = unsafe extern "system" fn(*mut u32) -> vk::Result;

/// The functions of the headless driver, whose library stays loaded.
pub(super) fn entry() -> Result<ash::Entry> {
    let library = library::load(HEADLESS).map_err(|reason| Error::Library { library: HEADLESS, reason })?;
    // SAFETY: vk_icd.h declares the function with this type.
    let negotiate: Negotiate = unsafe { function(library, "vk_icdNegotiateLoaderICDInterfaceVersion") }?;
    // SAFETY: as above.
    let get_instance_proc_addr = unsafe { function(library, "vk_icdGetInstanceProcAddr") }?;
    let mut version = INTERFACE;
    // SAFETY: `version` is a live local.
    unsafe { negotiate(&raw mut version) }.result().named("vk_icdNegotiateLoaderICDInterfaceVersion")?;
    // SAFETY: the driver's function looks names up as `vkGetInstanceProcAddr` does, and its library is never unloaded.
    Ok(unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr }) })
}

/// The library's function of that name.
///
/// # Safety
///
/// `F` must be the function's type.
unsafe fn function<F: Copy>(library: &'static Library, symbol: &'static str) -> Result<F> {
    // SAFETY: by this function's contract.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found.map(|function| *function).map_err(|_| Error::Symbol { library: HEADLESS, symbol })
}
