//! Executable graphs: instantiate, launch, update.

use std::sync::{Arc, Mutex};

use super::capture;
use super::child::Child;
use super::held::Held;
use super::operation::{Difference, Kind, Operation};
use super::state::{self, Graph};
use super::step::{self, Step, copied_steps};
use crate::boundary::exports;
use crate::code::{Code, GRAPH_EXEC_UPDATE_FAILURE, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::handle::Handles;
use crate::queue::{Marker, Placement};
use crate::stream::table as streams;
use crate::sync::lock;

// CUgraphInstantiate_flags: free on launch, upload, use of node priorities. Launches from the device are not simulated.
const FREE_ON_LAUNCH: u64 = 1;
const FLAGS: u64 = FREE_ON_LAUNCH | 2 | 8;
const DEVICE_LAUNCH: u64 = 4;

struct Executable {
    // Operations are dropped with the steps unlocked, as those of a graph.
    steps: Mutex<Vec<Step>>,
    flags: u64,
    /// The program's objects that it keeps alive.
    objects: Held,
    // Launches of one graph do not overlap.
    last: Mutex<Option<Marker>>,
}

static EXECUTABLES: Handles<Arc<Executable>> = Handles::new(INVALID_VALUE);

/// The number of live executable graphs.
pub(crate) fn count() -> usize {
    EXECUTABLES.count()
}

impl Executable {
    /// The work of the node of the graph that was instantiated.
    fn operation(&self, node: usize) -> Result<Operation, Code> {
        let steps = lock(&self.steps);
        steps.iter().find(|step| step.node == node).map(|step| step.operation.clone()).ok_or(INVALID_VALUE)
    }
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
    let steps = Mutex::new(copied_steps(&graph)?);
    let objects = lock(&graph.objects).clone();
    out.set(EXECUTABLES.insert(Arc::new(Executable { steps, flags, objects, last: Mutex::default() })))
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
    // It may be the last to hold an object of the program.
    EXECUTABLES.remove(executable).map(drop)
}

/// A launch is submitted as a whole or not at all. A capture gets the graph as one node.
fn launch(executable: usize, stream: usize) -> Outcome {
    let stream = streams::capturable(stream)?;
    let executable = EXECUTABLES.get(executable)?;
    let steps: Vec<_> = lock(&executable.steps).iter().filter(|step| step.enabled).cloned().collect();
    let as_node = || {
        let graph = Graph::new();
        *lock(&graph.objects) = executable.objects.clone();
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
    steps.iter().try_for_each(|step| step.operation.check())?;
    let before = Vec::from_iter(last.clone());
    *last = Some(stream.submit_after(before, Placement::Anywhere, Box::new(|_| ()))?);
    // May still fail where a thread cannot be started, or for an event that changed meanwhile.
    let outcome = steps.iter().try_for_each(|step| step.operation.submit(&stream));
    // The program may destroy the graph before its work is done.
    let kept = Arc::clone(&executable);
    *last = Some(stream.submit_after(Vec::new(), Placement::Anywhere, Box::new(move |_| drop(kept)))?);
    outcome
}

/// Nothing is to be prepared.
fn upload(executable: usize, stream: usize) -> Outcome {
    streams::usable(stream)?;
    EXECUTABLES.get(executable).map(drop)
}

fn flags(executable: usize, out: Out<u64>) -> Outcome {
    out.required()?;
    out.set(EXECUTABLES.get(executable)?.flags)
}

/// Takes over what the nodes of the graph do; otherwise the difference for which that is refused, and the node that has it.
fn update(executable: usize, graph: usize) -> Result<Option<(Difference, usize)>, Code> {
    let executable = EXECUTABLES.get(executable)?;
    let new = copied_steps(&*state::get(graph)?)?;
    let old = lock(&executable.steps).clone();
    let difference = step::difference(&old, &new);
    if difference.is_some() {
        return Ok(difference);
    }
    let new = new.into_iter().map(|new| new.operation);
    let mut steps = lock(&executable.steps);
    let before: Vec<_> =
        steps.iter_mut().zip(new).map(|(step, new)| std::mem::replace(&mut step.operation, new)).collect();
    drop(steps);
    drop(before);
    Ok(None)
}

/// The `CUgraphExecUpdateResult`, 0 for success, the node, and the code to return.
fn result_of(difference: Option<(Difference, usize)>) -> (u32, usize, Outcome) {
    match difference {
        None => (0, 0, Ok(())),
        Some((difference, node)) => (difference as u32, node, Err(GRAPH_EXEC_UPDATE_FAILURE)),
    }
}

fn update_v1(executable: usize, graph: usize, node: Out<usize>, out: Out<u32>) -> Outcome {
    let (result, changed, outcome) = result_of(update(executable, graph)?);
    node.set_if_wanted(changed);
    out.set_if_wanted(result);
    outcome
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
    let (result, node, outcome) = result_of(update(executable, graph)?);
    out.set(UpdateResult { result, node, from: 0 })?;
    outcome
}

/// The work of the node of the graph that was instantiated.
pub(super) fn operation(executable: usize, node: usize) -> Result<Operation, Code> {
    EXECUTABLES.get(executable)?.operation(node)
}

/// Replaces the work of the node of the graph that was instantiated.
pub(super) fn replace(executable: usize, node: usize, operation: Operation) -> Outcome {
    let executable = EXECUTABLES.get(executable)?;
    if !executable.operation(node)?.accepts(&operation) {
        return Err(INVALID_VALUE);
    }
    let mut steps = lock(&executable.steps);
    let step = steps.iter_mut().find(|step| step.node == node);
    let before = std::mem::replace(&mut step.ok_or(INVALID_VALUE)?.operation, operation);
    drop(steps);
    drop(before);
    Ok(())
}

fn is_enabled(executable: usize, node: usize, out: Out<u32>) -> Outcome {
    out.required()?;
    let executable = EXECUTABLES.get(executable)?;
    let enabled = lock(&executable.steps).iter().find(|step| step.node == node).map(|step| step.enabled);
    out.set(u32::from(enabled.ok_or(INVALID_VALUE)?))
}

/// Only kernels, copies and fills can be disabled.
fn enable(executable: usize, node: usize, enabled: u32) -> Outcome {
    let executable = EXECUTABLES.get(executable)?;
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
