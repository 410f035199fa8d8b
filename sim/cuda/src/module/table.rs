//! Module handles.

use std::sync::Arc;

use super::function;
use super::loaded::Module;
use crate::code::{Code, INVALID_HANDLE};
use crate::handle::Handles;
use crate::owner::Owner;

pub(super) static MODULES: Handles<Arc<Module>> = Handles::new(INVALID_HANDLE);

/// Registers the module and its functions under their handles.
pub(super) fn insert(module: &Arc<Module>) -> usize {
    function::insert(&module.functions);
    MODULES.insert_at(module.handle, Arc::clone(module));
    module.handle
}

/// Removes the module and its functions. Queued launches keep alive whatever they use.
pub(super) fn remove(handle: usize) -> Result<Arc<Module>, Code> {
    let module = MODULES.remove(handle)?;
    function::remove(&module.functions);
    Ok(module)
}

/// The number of live modules, without those of libraries.
pub(crate) fn count() -> usize {
    MODULES.lock().values().filter(|module| module.library.is_none()).count()
}

/// Removes the modules of a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    let gone = MODULES.remove_where(|module| module.owner == owner);
    gone.iter().for_each(|(_, module)| function::remove(&module.functions));
}
