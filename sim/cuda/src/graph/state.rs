//! Graphs and their nodes, by handle.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, Weak};

use super::held::Held;
use super::operation::Operation;
use crate::code::{Code, INVALID_VALUE, Outcome};
use crate::handle::{self, Handles};
use crate::sync::lock;

/// A graph under construction. What its nodes do is dropped with the nodes unlocked: a child graph may be the last to hold an
/// object of the program, whose destructor may wait for threads that use this graph.
pub(crate) struct Graph {
    pub(super) handle: usize,
    nodes: Mutex<BTreeMap<usize, Node>>,
    /// The program's objects that it keeps alive.
    pub(super) objects: Mutex<Held>,
}

#[derive(Clone)]
struct Node {
    operation: Operation,
    /// The nodes before it, each once, in the order in which they were added.
    after: Vec<usize>,
    /// The node of which it is a copy, in a clone of its graph.
    original: usize,
}

static GRAPHS: Handles<Arc<Graph>> = Handles::new(INVALID_VALUE);
/// The graphs in nodes, which go with them.
static CHILDREN: Handles<Weak<Graph>> = Handles::new(INVALID_VALUE);
/// The graphs of nodes.
static OWNERS: Handles<Weak<Graph>> = Handles::new(INVALID_VALUE);

/// The number of live graphs.
pub(crate) fn count() -> usize {
    GRAPHS.count()
}

/// The graph of that handle, which may be that of a node.
pub(super) fn get(handle: usize) -> Result<Arc<Graph>, Code> {
    GRAPHS.get(handle).or_else(|code| CHILDREN.find(handle).as_ref().and_then(Weak::upgrade).ok_or(code))
}

/// The handle of a node's graph.
pub(super) fn child(graph: &Arc<Graph>) -> usize {
    CHILDREN.remove_where(|graph| graph.strong_count() == 0);
    CHILDREN.insert_at(graph.handle, Arc::downgrade(graph));
    graph.handle
}

/// The graph of a node.
pub(super) fn of_node(node: usize) -> Result<Arc<Graph>, Code> {
    OWNERS.get(node)?.upgrade().ok_or(INVALID_VALUE)
}

/// Gives a graph its handle.
pub(super) fn insert(graph: Arc<Graph>) -> usize {
    let handle = graph.handle;
    GRAPHS.insert_at(handle, graph);
    handle
}

pub(super) fn remove(handle: usize) -> Outcome {
    GRAPHS.remove(handle).map(drop)
}

impl Drop for Graph {
    fn drop(&mut self) {
        let mut owners = OWNERS.lock();
        for node in lock(&self.nodes).keys() {
            owners.remove(node);
        }
    }
}

impl Graph {
    pub(super) fn new() -> Arc<Graph> {
        Arc::new(Graph { handle: handle::next(), nodes: Mutex::default(), objects: Mutex::default() })
    }

    /// Adds a node behind others of this graph, each of which is named once.
    pub(super) fn add(self: &Arc<Self>, operation: Operation, after: Vec<usize>) -> Result<usize, Code> {
        let mut nodes = lock(&self.nodes);
        let distinct: BTreeSet<usize> = after.iter().copied().collect();
        if distinct.len() < after.len() || !distinct.iter().all(|node| nodes.contains_key(node)) {
            return Err(INVALID_VALUE);
        }
        let handle = OWNERS.insert(Arc::downgrade(self));
        nodes.insert(handle, Node { operation, after, original: 0 });
        Ok(handle)
    }

    pub(super) fn remove(&self, node: usize) -> Outcome {
        let mut nodes = lock(&self.nodes);
        let removed = nodes.remove(&node).ok_or(INVALID_VALUE)?;
        nodes.values_mut().for_each(|other| other.after.retain(|before| *before != node));
        OWNERS.lock().remove(&node);
        drop(nodes);
        drop(removed);
        Ok(())
    }

    /// All nodes, in the order in which they were added.
    pub(super) fn nodes(&self) -> Vec<usize> {
        lock(&self.nodes).keys().copied().collect()
    }

    pub(super) fn operation(&self, node: usize) -> Result<Operation, Code> {
        lock(&self.nodes).get(&node).map(|node| node.operation.clone()).ok_or(INVALID_VALUE)
    }

    /// Replaces what a node does by work of the same kind.
    pub(super) fn replace(&self, node: usize, operation: Operation) -> Outcome {
        let mut nodes = lock(&self.nodes);
        let node =
            nodes.get_mut(&node).filter(|node| node.operation.kind() == operation.kind()).ok_or(INVALID_VALUE)?;
        let before = std::mem::replace(&mut node.operation, operation);
        drop(nodes);
        drop(before);
        Ok(())
    }

    /// The nodes directly before one.
    pub(super) fn before(&self, node: usize) -> Result<Vec<usize>, Code> {
        lock(&self.nodes).get(&node).map(|node| node.after.clone()).ok_or(INVALID_VALUE)
    }

    /// All pairs of a node and one directly behind it.
    pub(super) fn edges(&self) -> Vec<(usize, usize)> {
        let nodes = lock(&self.nodes);
        nodes.iter().flat_map(|(node, inner)| inner.after.iter().map(|before| (*before, *node))).collect()
    }

    /// Adds an edge; one that exists, or that would close a circle, is refused.
    pub(super) fn connect(&self, from: usize, to: usize) -> Outcome {
        if self.is_before(to, from) || from == to {
            return Err(INVALID_VALUE);
        }
        let mut nodes = lock(&self.nodes);
        if !nodes.contains_key(&from) {
            return Err(INVALID_VALUE);
        }
        let node = nodes.get_mut(&to).filter(|node| !node.after.contains(&from)).ok_or(INVALID_VALUE)?;
        node.after.push(from);
        Ok(())
    }

    pub(super) fn disconnect(&self, from: usize, to: usize) -> Outcome {
        let mut nodes = lock(&self.nodes);
        let node = nodes.get_mut(&to).filter(|node| node.after.contains(&from)).ok_or(INVALID_VALUE)?;
        node.after.retain(|before| *before != from);
        Ok(())
    }

    /// Whether a path leads from one node to another.
    pub(super) fn is_before(&self, from: usize, to: usize) -> bool {
        let nodes = lock(&self.nodes);
        let (mut seen, mut left) = (BTreeSet::new(), vec![to]);
        while let Some(node) = left.pop() {
            for &before in nodes.get(&node).map_or(&[][..], |node| &node.after) {
                if before == from {
                    return true;
                }
                if seen.insert(before) {
                    left.push(before);
                }
            }
        }
        false
    }

    /// The nodes in an order that the edges allow: each time the oldest node with nothing left before it.
    pub(super) fn order(&self) -> Result<Vec<usize>, Code> {
        let nodes = lock(&self.nodes);
        let mut left: BTreeMap<usize, usize> = nodes.iter().map(|(node, inner)| (*node, inner.after.len())).collect();
        let mut behind: HashMap<usize, Vec<usize>> = HashMap::new();
        for (node, inner) in nodes.iter() {
            inner.after.iter().for_each(|before| behind.entry(*before).or_default().push(*node));
        }
        let mut ready: BTreeSet<usize> = left.iter().filter(|(_, count)| **count == 0).map(|(node, _)| *node).collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(node) = ready.pop_first() {
            order.push(node);
            for next in behind.get(&node).into_iter().flatten() {
                let count = left.get_mut(next).ok_or(INVALID_VALUE)?;
                *count -= 1;
                if *count == 0 {
                    ready.insert(*next);
                }
            }
        }
        // Edges are refused that would close a circle.
        if order.len() == nodes.len() { Ok(order) } else { Err(INVALID_VALUE) }
    }

    /// What the nodes do, in order.
    pub(super) fn operations(&self) -> Result<Vec<Operation>, Code> {
        self.order()?.into_iter().map(|node| self.operation(node)).collect()
    }

    /// A graph of the same nodes, with handles of their own.
    pub(super) fn copy(&self) -> Result<Arc<Graph>, Code> {
        let copy = Graph::new();
        *lock(&copy.objects) = lock(&self.objects).clone();
        let mut handles = HashMap::new();
        for node in self.order()? {
            let after = self.before(node)?.iter().filter_map(|before| handles.get(before).copied()).collect();
            let new = copy.add(self.operation(node)?.copied()?, after)?;
            if let Some(new) = lock(&copy.nodes).get_mut(&new) {
                new.original = node;
            }
            handles.insert(node, new);
        }
        Ok(copy)
    }

    /// The copy of a node of the graph that this one was cloned from.
    pub(super) fn copy_of(&self, original: usize) -> Result<usize, Code> {
        let nodes = lock(&self.nodes);
        let found = nodes.iter().find(|(_, node)| node.original == original && original != 0);
        found.map(|(handle, _)| *handle).ok_or(INVALID_VALUE)
    }
}
