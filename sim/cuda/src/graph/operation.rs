//! What a node does.

use std::sync::Arc;

use super::state::Graph;
use crate::code::{Code, Outcome};
use crate::copy::Transfer;
use crate::kernel::Prepared;
use crate::memset::Filling;
use crate::queue::Stream;
use crate::semaphore::Points;
use crate::stream::{HostCall, event};

/// Work that can be submitted more than once.
#[derive(Clone)]
pub(crate) enum Operation {
    Kernel(Prepared),
    Copy(Transfer),
    Fill(Filling),
    Host(HostCall),
    Graph(Arc<Graph>),
    Empty,
    /// Handles of events.
    Wait(usize),
    Record(usize),
    /// Of external semaphores.
    Signal(Points),
    Await(Points),
}

impl Operation {
    /// Its `CUgraphNodeType`.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Operation::Kernel(_) => 0,
            Operation::Copy(_) => 1,
            Operation::Fill(_) => 2,
            Operation::Host(_) => 3,
            Operation::Graph(_) => 4,
            Operation::Empty => 5,
            Operation::Wait(_) => 6,
            Operation::Record(_) => 7,
            Operation::Signal(_) => 8,
            Operation::Await(_) => 9,
        }
    }

    /// The same work, without a graph that the program may still change.
    pub(super) fn copied(&self) -> Result<Operation, Code> {
        match self {
            Operation::Graph(graph) => Ok(Operation::Graph(graph.copy()?)),
            other => Ok(other.clone()),
        }
    }

    /// Submits the work to a stream.
    pub(super) fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        match self {
            Operation::Kernel(launch) => launch.submit(stream),
            Operation::Copy(copy) => copy.submit(stream).map(drop),
            Operation::Fill(fill) => fill.submit(stream).map(drop),
            Operation::Host(call) => call.submit(stream),
            Operation::Graph(graph) => graph.operations()?.iter().try_for_each(|operation| operation.submit(stream)),
            Operation::Empty => Ok(()),
            Operation::Wait(event) => event::wait_on(*event, stream),
            Operation::Record(event) => event::record_on(*event, stream),
            Operation::Signal(points) => points.signal(stream),
            Operation::Await(points) => points.wait(stream),
        }
    }
}
