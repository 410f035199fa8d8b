//! The nodes of an executable graph in their order, and what they take over from another graph.

use std::collections::HashMap;

use super::operation::{Difference, Operation};
use super::state::Graph;
use crate::code::Code;

/// A node of an executable graph.
#[derive(Clone)]
pub(super) struct Step {
    /// The node of the graph that was instantiated.
    pub(super) node: usize,
    pub(super) operation: Operation,
    /// The places of the nodes before it, in ascending order, by which graphs are compared.
    after: Vec<usize>,
    pub(super) enabled: bool,
}

/// The nodes of a graph, in order.
fn steps(graph: &Graph) -> Result<Vec<Step>, Code> {
    let order = graph.order()?;
    let places: HashMap<usize, usize> = order.iter().enumerate().map(|(place, node)| (*node, place)).collect();
    let step = |node| {
        let mut after: Vec<_> = graph.before(node)?.iter().filter_map(|before| places.get(before).copied()).collect();
        after.sort_unstable();
        Ok(Step { node, operation: graph.operation(node)?, after, enabled: true })
    };
    order.into_iter().map(step).collect()
}

/// As [`steps`], without graphs that the program may still change.
pub(super) fn copied_steps(graph: &Graph) -> Result<Vec<Step>, Code> {
    let copied = |step: Step| Ok(Step { operation: step.operation.copied()?, ..step });
    steps(graph)?.into_iter().map(copied).collect()
}

/// The difference for which the new steps cannot take the places of the old ones, and the new node that has it, if one has.
pub(super) fn difference(old: &[Step], new: &[Step]) -> Option<(Difference, usize)> {
    if old.len() != new.len() {
        return Some((Difference::Topology, 0));
    }
    let pairs = || old.iter().zip(new);
    let moved = pairs().find(|(old, new)| old.after != new.after).map(|(_, new)| (Difference::Topology, new.node));
    let changed = || pairs().find_map(|(old, new)| Some((old.operation.difference(&new.operation)?, new.node)));
    moved.or_else(changed)
}

/// As [`difference`], between the graphs of two nodes. Nodes are paired in the order in which they were added.
pub(super) fn difference_of_graphs(old: &Graph, new: &Graph) -> Option<Difference> {
    match (steps(old), steps(new)) {
        (Ok(old), Ok(new)) => difference(&old, &new).map(|(difference, _)| difference),
        _ => Some(Difference::Topology),
    }
}
