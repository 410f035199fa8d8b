//! Create, copy and destroy graphs, and list their nodes.

use super::child::{Child, Empty};
use super::operation::Operation;
use super::state::{self, Graph};
use crate::boundary::exports;
use crate::code::{INVALID_VALUE, Outcome};
use crate::ffi::{In, Out};

fn create(out: Out<usize>, flags: u32) -> Outcome {
    out.required()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    out.set(state::insert(Graph::new()))
}

fn clone(out: Out<usize>, graph: usize) -> Outcome {
    out.required()?;
    out.set(state::insert(state::get(graph)?.copy()?))
}

fn find_in_clone(out: Out<usize>, node: usize, clone: usize) -> Outcome {
    out.required()?;
    out.set(state::get(clone)?.copy_of(node)?)
}

/// Writes handles as CUDA's lists do: a null array asks for the number, and places that stay free are null.
pub(super) fn list(handles: &[usize], out: Out<usize>, count: Out<usize>) -> Outcome {
    let room = count.as_input().get()?;
    if out.required().is_err() {
        return count.set(handles.len());
    }
    (0..room).for_each(|index| out.element(index).set_if_wanted(handles.get(index).copied().unwrap_or_default()));
    count.set(room.min(handles.len()))
}

fn nodes(graph: usize, out: Out<usize>, count: Out<usize>) -> Outcome {
    list(&state::get(graph)?.nodes(), out, count)
}

fn roots(graph: usize, out: Out<usize>, count: Out<usize>) -> Outcome {
    let graph = state::get(graph)?;
    let mut roots = graph.nodes();
    roots.retain(|node| graph.before(*node).is_ok_and(|before| before.is_empty()));
    list(&roots, out, count)
}

fn kind(node: usize, out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(state::of_node(node)?.operation(node)?.kind() as u32)
}

fn containing(node: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    out.set(state::of_node(node)?.handle)
}

fn destroy_node(node: usize) -> Outcome {
    state::of_node(node)?.remove(node)
}

/// Adds a node behind others.
pub(super) fn add(out: Out<usize>, graph: usize, after: In<usize>, count: usize, operation: Operation) -> Outcome {
    out.required()?;
    let graph = state::get(graph)?;
    let after = (0..count).map(|index| after.element(index)).collect::<Result<_, _>>()?;
    out.set(graph.add(operation, after)?)
}

fn add_empty(out: Out<usize>, graph: usize, after: In<usize>, count: usize) -> Outcome {
    add(out, graph, after, count, Operation::new(Empty))
}

/// A copy of the child is added.
fn add_child(out: Out<usize>, graph: usize, after: In<usize>, count: usize, child: usize) -> Outcome {
    if graph == child {
        return Err(INVALID_VALUE);
    }
    add(out, graph, after, count, Operation::new(Child(state::get(child)?.copy()?)))
}

/// The graph in a node, which the program may change, and which the node destroys.
fn child_of(node: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    let operation = state::of_node(node)?.operation(node)?;
    out.set(state::child(&operation.get::<Child>().ok_or(INVALID_VALUE)?.0))
}

use state::remove as destroy;

exports! {
    cuGraphCreate => create(out: Out<usize>, flags: u32);
    cuGraphDestroy => destroy(graph: usize), Release;
    cuGraphClone => clone(out: Out<usize>, graph: usize);
    cuGraphNodeFindInClone => find_in_clone(out: Out<usize>, node: usize, clone: usize);
    cuGraphGetNodes => nodes(graph: usize, out: Out<usize>, count: Out<usize>);
    cuGraphGetRootNodes => roots(graph: usize, out: Out<usize>, count: Out<usize>);
    cuGraphNodeGetType => kind(node: usize, out: Out<u32>);
    cuGraphNodeGetContainingGraph => containing(node: usize, out: Out<usize>);
    cuGraphDestroyNode => destroy_node(node: usize), Release;
    cuGraphAddEmptyNode => add_empty(out: Out<usize>, graph: usize, after: In<usize>, count: usize);
    cuGraphChildGraphNodeGetGraph => child_of(node: usize, out: Out<usize>);
    cuGraphAddChildGraphNode => add_child(out: Out<usize>, graph: usize, after: In<usize>, count: usize, child: usize);
}
