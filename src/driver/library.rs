//! Shared libraries of the drivers, loaded for the life of the process.
#![expect(unsafe_code, reason = "loading a library runs its initialisers")]

use libloading::Library;

use crate::lock::Lock;

/// The loaded libraries, by file name. A library that several threads load at the same time is listed more than once.
static LOADED: Lock<Vec<(String, &'static Library)>> = Lock::new(Vec::new());

/// Loads a library by its file name, unless it is loaded, and never unloads it, since NVIDIA's libraries exhaust static
/// TLS space when they are loaded and unloaded repeatedly. Returns the dynamic loader's message if that fails.
pub(crate) fn load(name: &str) -> Result<&'static Library, String> {
    let loaded = |(loaded, library): &(String, _)| (loaded == name).then_some(*library);
    if let Some(library) = LOADED.lock().iter().find_map(loaded) {
        return Ok(library);
    }
    // SAFETY: the initialisers of a driver's library may run in any process that uses the driver.
    let library = unsafe { Library::new(name) }.map_err(|error| reason(&error))?;
    let library: &'static Library = Box::leak(Box::new(library));
    LOADED.lock().push((name.to_owned(), library));
    Ok(library)
}

/// The dynamic loader's message.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::load;

    #[test]
    fn a_library_is_loaded_once() {
        let [first, second] = [load("libc.so.6"), load("libc.so.6")];
        assert!(matches!((first, second), (Ok(first), Ok(second)) if ptr::eq(first, second)));
    }
}
