//! Shared libraries of the drivers, loaded for the life of the process.
#![expect(unsafe_code, reason = "loading a library runs its initialisers")]

use libloading::Library;

/// Loads a library by its file name and never unloads it, since NVIDIA's exhaust static TLS space when they are loaded
/// and unloaded repeatedly. Returns the dynamic loader's message if that fails.
pub(crate) fn load(name: &str) -> Result<&'static Library, String> {
    // SAFETY: the initialisers of a driver's library may run in any process that uses the driver.
    match unsafe { Library::new(name) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => Err(reason(&error)),
    }
}

/// The dynamic loader's message.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
