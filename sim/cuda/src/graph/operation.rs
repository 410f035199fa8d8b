//! What a node does: work of a kind that the module of that work defines.

use std::any::Any;
use std::sync::Arc;

use crate::code::{Code, Outcome};
use crate::queue::Stream;

/// `CUgraphNodeType`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Kernel = 0,
    Copy = 1,
    Fill = 2,
    Host = 3,
    Graph = 4,
    Empty = 5,
    Wait = 6,
    Record = 7,
    Signal = 8,
    Await = 9,
}

/// Work that can be submitted more than once.
pub(crate) trait Work: Any + Send + Sync {
    fn kind(&self) -> Kind;

    /// Submits the work to a stream.
    fn submit(&self, stream: &Arc<Stream>) -> Outcome;

    /// The same work without a graph that the program may still change, if it has one.
    fn copied(&self) -> Result<Option<Operation>, Code> {
        Ok(None)
    }
}

/// Work of any kind.
#[derive(Clone)]
pub(crate) struct Operation(Arc<dyn Work>);

impl Operation {
    pub(crate) fn new(work: impl Work) -> Operation {
        Operation(Arc::new(work))
    }

    pub(super) fn kind(&self) -> Kind {
        self.0.kind()
    }

    /// The work, if it has that type.
    pub(super) fn get<W: Work>(&self) -> Option<&W> {
        let work: &dyn Any = &*self.0;
        work.downcast_ref()
    }

    /// The same work, without a graph that the program may still change.
    pub(super) fn copied(&self) -> Result<Operation, Code> {
        Ok(self.0.copied()?.unwrap_or_else(|| self.clone()))
    }

    /// Submits the work to a stream.
    pub(super) fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        self.0.submit(stream)
    }
}
