//! Nodes of graphs alone: a graph in a node, and nodes that do nothing.

use std::sync::Arc;

use super::operation::{Difference, Kind, Operation, Work};
use super::state::Graph;
use super::step;
use crate::code::{Code, Outcome};
use crate::queue::Stream;

/// A graph in a node.
pub(super) struct Child(pub(super) Arc<Graph>);

impl Work for Child {
    fn kind(&self) -> Kind {
        Kind::Graph
    }

    fn check(&self) -> Outcome {
        self.0.operations()?.iter().try_for_each(Operation::check)
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        self.0.operations()?.iter().try_for_each(|operation| operation.submit(stream))
    }

    fn difference(&self, new: &Operation) -> Option<Difference> {
        step::difference_of_graphs(&self.0, &new.get::<Child>()?.0)
    }

    fn copied(&self) -> Result<Option<Operation>, Code> {
        Ok(Some(Operation::new(Child(self.0.copy()?))))
    }
}

pub(super) struct Empty;

impl Work for Empty {
    fn kind(&self) -> Kind {
        Kind::Empty
    }

    fn submit(&self, _stream: &Arc<Stream>) -> Outcome {
        Ok(())
    }
}
