//! Module handles.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::function;
use super::loaded::Module;
use crate::code::{Code, INVALID_HANDLE};
use crate::owner::Owner;
use crate::sync::lock;

static MODULES: LazyLock<Mutex<HashMap<usize, Arc<Module>>>> = LazyLock::new(Mutex::default);

/// The module of that handle.
pub(super) fn get(handle: usize) -> Result<Arc<Module>, Code> {
    lock(&MODULES).get(&handle).cloned().ok_or(INVALID_HANDLE)
}

/// Registers the module and its functions under their handles.
pub(super) fn insert(module: &Arc<Module>) -> usize {
    function::insert(&module.functions);
    lock(&MODULES).insert(module.handle, Arc::clone(module));
    module.handle
}

/// Removes the module and its functions. Queued launches keep alive whatever they use.
pub(super) fn remove(handle: usize) -> Result<Arc<Module>, Code> {
    let module = lock(&MODULES).remove(&handle).ok_or(INVALID_HANDLE)?;
    function::remove(&module.functions);
    Ok(module)
}

/// The number of live modules, without those of libraries.
pub(crate) fn count() -> usize {
    lock(&MODULES).values().filter(|module| module.library.is_none()).count()
}

/// Removes the modules of a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    let gone: Vec<Arc<Module>> =
        lock(&MODULES).extract_if(|_, module| module.owner == owner).map(|(_, module)| module).collect();
    gone.iter().for_each(|module| function::remove(&module.functions));
}
