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

/// What keeps work from taking the place of other work in an executable graph: `CUgraphExecUpdateResult`.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Difference {
    Topology = 2,
    Kind = 3,
    Parameters = 5,
    Function = 7,
    Attributes = 8,
}

/// Work that can be submitted more than once.
pub(crate) trait Work: Any + Send + Sync {
    fn kind(&self) -> Kind;

    /// Refuses work that [`submit`](Work::submit) would refuse. A launch asks all of its work before it submits any.
    fn check(&self) -> Outcome {
        Ok(())
    }

    /// Submits the work to a stream.
    fn submit(&self, stream: &Arc<Stream>) -> Outcome;

    /// The difference for which new work of the same kind cannot take this work's place in an executable graph, by the
    /// limitations of `cuGraphExecUpdate`.
    fn difference(&self, _new: &Operation) -> Option<Difference> {
        None
    }

    /// Whether it can be set, and replaced, in an executable graph by itself, without an update of the whole graph.
    fn is_settable(&self) -> bool {
        true
    }

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
    pub(crate) fn get<W: Work>(&self) -> Option<&W> {
        let work: &dyn Any = &*self.0;
        work.downcast_ref()
    }

    /// The same work, without a graph that the program may still change.
    pub(super) fn copied(&self) -> Result<Operation, Code> {
        Ok(self.0.copied()?.unwrap_or_else(|| self.clone()))
    }

    /// The difference for which `new` cannot take its place in an executable graph.
    pub(super) fn difference(&self, new: &Operation) -> Option<Difference> {
        if self.kind() == new.kind() { self.0.difference(new) } else { Some(Difference::Kind) }
    }

    /// Whether `new` can take its place in an executable graph without an update of the whole graph.
    pub(super) fn accepts(&self, new: &Operation) -> bool {
        self.difference(new).is_none() && self.0.is_settable() && new.0.is_settable()
    }

    /// As [`Work::check`].
    pub(super) fn check(&self) -> Outcome {
        self.0.check()
    }

    /// Submits the work to a stream.
    pub(super) fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        self.0.submit(stream)
    }
}
