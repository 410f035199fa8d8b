//! Nodes whose kind is a parameter, and those of external semaphores.

use super::child::{Child, Empty};
use super::edges::plain;
use super::executable;
use super::exports::add;
use super::node_exports::{fill, host, kernel, transfer};
use super::operation::Operation;
use super::state;
use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::ffi::{In, Out};
use crate::layout::{NodeParameters, SemaphoreNode};
use crate::semaphore::{Await, Points, Signal};
use crate::stream::event::{self, Record, Wait};

/// The offset of the union in `CUgraphNodeParams`, and of the copy in `CUDA_MEMCPY_NODE_PARAMS`, in bytes.
const UNION: usize = 16;
const COPY: usize = 16;
/// The words of the union with the contexts of `CUDA_MEMCPY_NODE_PARAMS` and `CUDA_MEMSET_NODE_PARAMS_v2`.
const COPY_CONTEXT: usize = 1;
const FILL_CONTEXT: usize = 5;
/// Allocations, frees, batches of memory operations, conditions.
const NOT_SIMULATED: std::ops::RangeInclusive<u32> = 10..=13;

fn signal(parameters: In<SemaphoreNode>) -> Result<Operation, Code> {
    Ok(Operation::new(Signal(Points::new(parameters.get()?)?)))
}

fn wait(parameters: In<SemaphoreNode>) -> Result<Operation, Code> {
    Ok(Operation::new(Await(Points::new(parameters.get()?)?)))
}

/// A copy of a graph, other than the one that gets the node.
fn child(child: usize, graph: usize) -> Result<Operation, Code> {
    if child == graph {
        return Err(INVALID_VALUE);
    }
    Ok(Operation::new(Child(state::get(child)?.copy()?)))
}

/// `graph` is the one that has the node, 0 if the node is an executable graph's, and `replaced` what the node did before.
fn operation(parameters: In<NodeParameters>, graph: usize, replaced: Option<&Operation>) -> Result<Operation, Code> {
    let NodeParameters { kind, union, .. } = parameters.get()?;
    let [first, second, ..] = union;
    let word = |index: usize| usize::try_from(union[index]).map_err(|_| INVALID_VALUE);
    let handle = word(0)?;
    match kind {
        0 => kernel(parameters.behind(UNION), replaced),
        // Flags, which must be zero.
        1 if first != 0 => Err(INVALID_VALUE),
        1 => transfer(parameters.behind(UNION + COPY), word(COPY_CONTEXT)?),
        2 => fill(parameters.behind(UNION), word(FILL_CONTEXT)?),
        3 => host(parameters.behind(UNION)),
        // The ownership, in the low half: a move needs a graph that no one else has.
        4 if second & u64::from(u32::MAX) != 0 => Err(NOT_SUPPORTED),
        4 => child(handle, graph),
        5 => Ok(Operation::new(Empty)),
        6 => event::check(handle).map(|()| Operation::new(Wait(handle))),
        7 => event::check(handle).map(|()| Operation::new(Record(handle))),
        8 => signal(parameters.behind(UNION)),
        9 => wait(parameters.behind(UNION)),
        kind if NOT_SIMULATED.contains(&kind) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

fn add_any(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<NodeParameters>) -> Outcome {
    out.required()?;
    state::get(graph)?;
    add(out, graph, after, count, operation(parameters, graph, None)?)
}

fn add_any_v2(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    data: In<u64>,
    count: usize,
    parameters: In<NodeParameters>,
) -> Outcome {
    plain(data, count)?;
    add_any(out, graph, after, count, parameters)
}

fn set_any(node: usize, parameters: In<NodeParameters>) -> Outcome {
    let graph = state::of_node(node)?;
    let replaced = graph.operation(node)?;
    graph.replace(node, operation(parameters, graph.handle, Some(&replaced))?)
}

fn set_any_in(executable: usize, node: usize, parameters: In<NodeParameters>) -> Outcome {
    let replaced = executable::operation(executable, node)?;
    executable::replace(executable, node, operation(parameters, 0, Some(&replaced))?)
}

fn set_child_in(executable: usize, node: usize, graph: usize) -> Outcome {
    executable::replace(executable, node, child(graph, 0)?)
}

fn add_signal(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<SemaphoreNode>) -> Outcome {
    add(out, graph, after, count, signal(given)?)
}

fn add_wait(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<SemaphoreNode>) -> Outcome {
    add(out, graph, after, count, wait(given)?)
}

/// The arrays that are given out live as long as the node has these parameters.
fn get_signal(node: usize, out: Out<SemaphoreNode>) -> Outcome {
    out.required()?;
    let operation = state::of_node(node)?.operation(node)?;
    out.set(operation.get::<Signal>().ok_or(INVALID_VALUE)?.0.parameters())
}

fn get_wait(node: usize, out: Out<SemaphoreNode>) -> Outcome {
    out.required()?;
    let operation = state::of_node(node)?.operation(node)?;
    out.set(operation.get::<Await>().ok_or(INVALID_VALUE)?.0.parameters())
}

fn set_signal(node: usize, given: In<SemaphoreNode>) -> Outcome {
    state::of_node(node)?.replace(node, signal(given)?)
}

fn set_wait(node: usize, given: In<SemaphoreNode>) -> Outcome {
    state::of_node(node)?.replace(node, wait(given)?)
}

fn set_signal_in(executable: usize, node: usize, given: In<SemaphoreNode>) -> Outcome {
    executable::replace(executable, node, signal(given)?)
}

fn set_wait_in(executable: usize, node: usize, given: In<SemaphoreNode>) -> Outcome {
    executable::replace(executable, node, wait(given)?)
}

exports! {
    cuGraphAddNode =>
        add_any(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<NodeParameters>);
    cuGraphAddNode_v2 =>
        add_any_v2(out: Out<usize>, graph: usize, after: In<usize>, data: In<u64>, count: usize,
                   parameters: In<NodeParameters>);
    cuGraphNodeSetParams => set_any(node: usize, parameters: In<NodeParameters>);
    cuGraphExecNodeSetParams => set_any_in(executable: usize, node: usize, parameters: In<NodeParameters>);
    cuGraphExecChildGraphNodeSetParams => set_child_in(executable: usize, node: usize, graph: usize);
    cuGraphAddExternalSemaphoresSignalNode =>
        add_signal(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<SemaphoreNode>);
    cuGraphAddExternalSemaphoresWaitNode =>
        add_wait(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<SemaphoreNode>);
    cuGraphExternalSemaphoresSignalNodeGetParams => get_signal(node: usize, out: Out<SemaphoreNode>);
    cuGraphExternalSemaphoresWaitNodeGetParams => get_wait(node: usize, out: Out<SemaphoreNode>);
    cuGraphExternalSemaphoresSignalNodeSetParams => set_signal(node: usize, given: In<SemaphoreNode>);
    cuGraphExternalSemaphoresWaitNodeSetParams => set_wait(node: usize, given: In<SemaphoreNode>);
    cuGraphExecExternalSemaphoresSignalNodeSetParams =>
        set_signal_in(executable: usize, node: usize, given: In<SemaphoreNode>);
    cuGraphExecExternalSemaphoresWaitNodeSetParams =>
        set_wait_in(executable: usize, node: usize, given: In<SemaphoreNode>);
}
