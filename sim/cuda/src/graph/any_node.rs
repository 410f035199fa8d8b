//! Nodes whose kind is a parameter.

use super::child::{Child, Empty};
use super::edges::plain;
use super::executable;
use super::exports::add;
use super::node_exports::{Parameters, fill, record, transfer, wait};
use super::operation::Operation;
use super::state;
use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::ffi::{In, Out};
use crate::layout::{HostParameters, KernelParameters, NodeParameters};

/// The offset of the union in `CUgraphNodeParams`, and of the copy in `CUDA_MEMCPY_NODE_PARAMS`, in bytes.
const UNION: usize = 16;
const COPY: usize = 16;
/// The words of the union with the contexts of `CUDA_MEMCPY_NODE_PARAMS` and `CUDA_MEMSET_NODE_PARAMS_v2`.
const COPY_CONTEXT: usize = 1;
const FILL_CONTEXT: usize = 5;
/// External semaphores, allocations, frees, batches of memory operations, conditions.
const NOT_SIMULATED: std::ops::RangeInclusive<u32> = 8..=13;

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
        0 => parameters.behind::<KernelParameters>(UNION).get()?.operation(replaced),
        // Flags, which must be zero.
        1 if first != 0 => Err(INVALID_VALUE),
        1 => transfer(&parameters.behind(UNION + COPY).get()?, word(COPY_CONTEXT)?),
        2 => fill(&parameters.behind(UNION).get()?, word(FILL_CONTEXT)?),
        3 => parameters.behind::<HostParameters>(UNION).get()?.operation(replaced),
        // The ownership, in the low half: a move needs a graph that no one else has.
        4 if second & u64::from(u32::MAX) != 0 => Err(NOT_SUPPORTED),
        4 => child(handle, graph),
        5 => Ok(Operation::new(Empty)),
        6 => wait(handle),
        7 => record(handle),
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

exports! {
    cuGraphAddNode =>
        add_any(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<NodeParameters>);
    cuGraphAddNode_v2 =>
        add_any_v2(out: Out<usize>, graph: usize, after: In<usize>, data: In<u64>, count: usize,
                   parameters: In<NodeParameters>);
    cuGraphNodeSetParams => set_any(node: usize, parameters: In<NodeParameters>);
    cuGraphExecNodeSetParams => set_any_in(executable: usize, node: usize, parameters: In<NodeParameters>);
    cuGraphExecChildGraphNodeSetParams => set_child_in(executable: usize, node: usize, graph: usize);
}
