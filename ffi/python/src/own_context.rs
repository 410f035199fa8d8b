//! `OwnContext`: the context of a stream or an event that this package made. They are destroyed in it, unless it was before.
#![forbid(unsafe_code)]

use pyo3::prelude::*;
use vkgdr::{KnownContext, Vkgdr};

use crate::detached::{Detached, detached};
use crate::error::Result;
use crate::handle;

/// The context that was current when this was made, and the handle that keeps it alive, if nothing else does.
///
/// A `CUcontext` that was destroyed must not reach the driver, and neither may its streams and events.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct OwnContext {
    context: KnownContext,
    /// Its drop may destroy the context, and so comes after what was made there.
    _owner: Option<Detached<Vkgdr>>,
}

#[pymethods]
impl OwnContext {
    /// `owner` is the `Vkgdr` that retains the current context, None for a context that the program made current.
    #[new]
    fn new(py: Python<'_>, owner: Option<&Bound<'_, PyAny>>) -> Result<Self> {
        let owner = owner.map(handle::gpu_of).transpose()?.map(Detached::new);
        Ok(Self { context: py.detach(KnownContext::current)?, _owner: owner })
    }
}

impl OwnContext {
    /// Runs `destroy` in the context; not in a forked child, to which nothing belongs, and not once the context is gone.
    pub(crate) fn destroy(&self, destroy: impl FnOnce() + Send) {
        detached(|| self.context.run_unless_destroyed(destroy));
    }
}
