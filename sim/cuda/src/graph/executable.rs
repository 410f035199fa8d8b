//! Executable graphs: instantiate, launch, update.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use super::capture;
use super::child::Child;
use super::held::Held;
use super::operation::{Kind, Operation};
use super::state::{self, Graph};
use crate::boundary::exports;
use crate::code::{Code, GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::handle;
use crate::queue::{Marker, Placement};
use crate::stream::table as streams;
use crate::sync::lock;

// CUgraphInstantiate_flags: free on launch, upload, use of node priorities. Launches from the device are not simulated.
const FREE_ON_LAUNCH: u64 = 1;
const FLAGS: u64 = FREE_ON_LAUNCH | 2 | 8;
const DEVICE_LAUNCH: u64 = 4;

#[derive(Clone)]
struct Step {
    node: usize,
    operation: Operation,
    enabled: bool,
}

struct Executable {
    // Operations are dropped with the steps unlocked, as those of a graph.
    steps: Mutex<Vec<Step>>,
    edges: Vec<(usize, usize)>,
    flags: u64,
    #[expect(dead_code, reason = "held for its drop")]
    objects: Held,
    // Launches of one graph do not overlap.
    last: Mutex<Option<Marker>>,
}

static EXECUTABLES: LazyLock<Mutex<HashMap<usize, Arc<Executable>>>> = LazyLock::new(Mutex::default);

/// The number of live executable graphs.
pub(crate) fn count() -> usize {
    lock(&EXECUTABLES).len()
}

fn get(handle: usize) -> Result<Arc<Executable>, Code> {
    lock(&EXECUTABLES).get(&handle).cloned().ok_or(INVALID_VALUE)
}

fn steps(graph: &Graph) -> Result<Vec<Step>, Code> {
    let step = |node| Ok(Step { node, operation: graph.operation(node)?.copied()?, enabled: true });
    graph.order()?.into_iter().map(step).collect()
}

// Edges by their nodes' places in the order, so that graphs can be compared.
fn places(graph: &Graph) -> Result<Vec<(usize, usize)>, Code> {
    let order = graph.order()?;
    let place = |node: usize| order.iter().position(|other| *other == node).unwrap_or_default();
    let mut edges: Vec<_> = graph.edges().into_iter().map(|(from, to)| (place(from), place(to))).collect();
    edges.sort_unstable();
    Ok(edges)
}

fn instantiate(out: Out<usize>, graph: usize, flags: u64) -> Outcome {
    out.required()?;
    context::usable()?;
    // As documented, a launch from the device excludes the memory that a launch frees.
    if flags & !(FLAGS | DEVICE_LAUNCH) != 0
        || flags & (DEVICE_LAUNCH | FREE_ON_LAUNCH) == DEVICE_LAUNCH | FREE_ON_LAUNCH
    {
        return Err(INVALID_VALUE);
    }
    if flags & DEVICE_LAUNCH != 0 {
        return Err(NOT_SUPPORTED);
    }
    let graph = state::get(graph)?;
    let (steps, edges) = (Mutex::new(steps(&graph)?), places(&graph)?);
    let handle = handle::next();
    let objects = lock(&graph.objects).clone();
    let executable = Executable { steps, edges, flags, objects, last: Mutex::default() };
    lock(&EXECUTABLES).insert(handle, Arc::new(executable));
    out.set(handle)
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    flags: u64,
    upload: usize,
    node: usize,
    result: u32,
}

/// The result is 0 for success and 1 for any error.
fn instantiate_with_parameters(out: Out<usize>, graph: usize, parameters: Out<Parameters>) -> Outcome {
    let given = parameters.as_input().get()?;
    let outcome = instantiate(out, graph, given.flags);
    parameters.set(Parameters { node: 0, result: u32::from(outcome.is_err()), ..given })?;
    outcome
}

// The form of CUDA 10 and 11, with a node and a text for what is wrong.
fn instantiate_with_log(out: Out<usize>, graph: usize, node: Out<usize>, log: Out<u8>, size: usize) -> Outcome {
    instantiate(out, graph, 0)?;
    node.set_if_wanted(0);
    if size > 0 {
        log.set_if_wanted(0);
    }
    Ok(())
}

fn destroy(executable: usize) -> Outcome {
    let executable = lock(&EXECUTABLES).remove(&executable).ok_or(INVALID_VALUE)?;
    // With nothing locked: it may be the last to hold an object of the program.
    drop(executable);
    Ok(())
}

/// A capture gets the graph as one node.
fn launch(executable: usize, stream: usize) -> Outcome {
    let stream = streams::capturable(stream)?;
    let executable = get(executable)?;
    let steps: Vec<_> = lock(&executable.steps).iter().filter(|step| step.enabled).cloned().collect();
    let as_node = || {
        let graph = Graph::new();
        let mut after = Vec::new();
        for step in &steps {
            after = vec![graph.add(step.operation.clone(), after)?];
        }
        Ok(Operation::new(Child(graph)))
    };
    if capture::add_result(&stream, as_node)? {
        return Ok(());
    }
    let mut last = lock(&executable.last);
    // Stays noted until the launch has succeeded.
    let before = Vec::from_iter(last.clone());
    stream.submit_after(before, Placement::Anywhere, Box::new(|_| ()))?;
    steps.iter().try_for_each(|step| step.operation.submit(&stream))?;
    // The program may destroy the graph before its work is done.
    let kept = Arc::clone(&executable);
    *last = Some(stream.submit_after(Vec::new(), Placement::Anywhere, Box::new(move |_| drop(kept)))?);
    Ok(())
}

/// Nothing is to be prepared.
fn upload(executable: usize, stream: usize) -> Outcome {
    streams::usable(stream)?;
    get(executable).map(drop)
}

fn flags(executable: usize, out: Out<u64>) -> Outcome {
    out.required()?;
    out.set(get(executable)?.flags)
}

// CUgraphExecUpdateResult: success, another topology, another type of node.
const SAME: u32 = 0;
const TOPOLOGY_CHANGED: u32 = 2;
const TYPE_CHANGED: u32 = 3;

fn compare(executable: &Executable, graph: &Graph) -> Result<(u32, usize), Code> {
    let new = steps(graph)?;
    let mut old = lock(&executable.steps);
    if new.len() != old.len() || places(graph)? != executable.edges {
        return Ok((TOPOLOGY_CHANGED, 0));
    }
    let changed = new.iter().zip(old.iter()).find(|(new, old)| new.operation.kind() != old.operation.kind());
    if let Some((new, _)) = changed {
        return Ok((TYPE_CHANGED, new.node));
    }
    let new = new.into_iter().map(|new| new.operation);
    let before: Vec<_> = old.iter_mut().zip(new).map(|(old, new)| std::mem::replace(&mut old.operation, new)).collect();
    drop(old);
    drop(before);
    Ok((SAME, 0))
}

fn update(executable: usize, graph: usize) -> Result<(u32, usize), Code> {
    compare(&*get(executable)?, &*state::get(graph)?)
}

fn outcome(result: u32) -> Outcome {
    if result == SAME { Ok(()) } else { Err(GRAPH_EXEC_UPDATE_FAILURE) }
}

fn update_v1(executable: usize, graph: usize, node: Out<usize>, out: Out<u32>) -> Outcome {
    let (result, changed) = update(executable, graph)?;
    node.set_if_wanted(changed);
    out.set_if_wanted(result);
    outcome(result)
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct UpdateResult {
    result: u32,
    node: usize,
    from: usize,
}

fn update_v2(executable: usize, graph: usize, out: Out<UpdateResult>) -> Outcome {
    out.required()?;
    let (result, node) = update(executable, graph)?;
    out.set(UpdateResult { result, node, from: 0 })?;
    outcome(result)
}

/// Replaces the work of the node of the graph that was instantiated.
pub(super) fn replace(executable: usize, node: usize, operation: Operation) -> Outcome {
    let executable = get(executable)?;
    let mut steps = lock(&executable.steps);
    let step = steps.iter_mut().find(|step| step.node == node && step.operation.kind() == operation.kind());
    let before = std::mem::replace(&mut step.ok_or(INVALID_VALUE)?.operation, operation);
    drop(steps);
    drop(before);
    Ok(())
}

fn is_enabled(executable: usize, node: usize, out: Out<u32>) -> Outcome {
    out.required()?;
    let executable = get(executable)?;
    let enabled = lock(&executable.steps).iter().find(|step| step.node == node).map(|step| step.enabled);
    out.set(u32::from(enabled.ok_or(INVALID_VALUE)?))
}

/// Only kernels, copies and fills can be disabled.
fn enable(executable: usize, node: usize, enabled: u32) -> Outcome {
    let executable = get(executable)?;
    let mut steps = lock(&executable.steps);
    let can_be = |kind| matches!(kind, Kind::Kernel | Kind::Copy | Kind::Fill);
    let step = steps.iter_mut().find(|step| step.node == node && can_be(step.operation.kind()));
    step.ok_or(INVALID_VALUE)?.enabled = enabled != 0;
    Ok(())
}

exports! {
    cuGraphInstantiateWithFlags => instantiate(out: Out<usize>, graph: usize, flags: u64);
    cuGraphInstantiate, cuGraphInstantiate_v2 =>
        instantiate_with_log(out: Out<usize>, graph: usize, node: Out<usize>, log: Out<u8>, size: usize);
    cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz =>
        instantiate_with_parameters(out: Out<usize>, graph: usize, parameters: Out<Parameters>);
    cuGraphExecDestroy => destroy(executable: usize), Release;
    cuGraphLaunch, cuGraphLaunch_ptsz => launch(executable: usize, stream: usize);
    cuGraphUpload, cuGraphUpload_ptsz => upload(executable: usize, stream: usize);
    cuGraphExecGetFlags => flags(executable: usize, out: Out<u64>);
    cuGraphExecUpdate => update_v1(executable: usize, graph: usize, node: Out<usize>, out: Out<u32>);
    cuGraphExecUpdate_v2 => update_v2(executable: usize, graph: usize, out: Out<UpdateResult>);
    cuGraphNodeGetEnabled => is_enabled(executable: usize, node: usize, out: Out<u32>);
    cuGraphNodeSetEnabled => enable(executable: usize, node: usize, enabled: u32);
}
