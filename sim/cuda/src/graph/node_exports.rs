//! Nodes with parameters: kernels, copies, fills, host functions, events. What a node does is checked and read when it is
//! added, in the context that is given for it, or the current one.

use super::exports::add;
use super::operation::Operation;
use super::{executable, state};
use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, Outcome};
use crate::context;
use crate::copy;
use crate::ffi::{In, Out};
use crate::kernel::Prepared;
use crate::layout::{Copy3D, FillParameters, HostParameters, KernelParameters, KernelParametersV1};
use crate::memset::Filling;
use crate::stream::HostCall;
use crate::stream::event::{self, Record, Wait};

/// Parameters of a kind of nodes, as the driver's functions pass them.
pub(super) trait Parameters: Copy {
    /// What the node does. `replaced` is what it did before, if it did anything: a kernel's attributes stay.
    fn operation(&self, replaced: Option<&Operation>) -> Result<Operation, Code>;

    /// The parameters of what a node does, if it is of this kind. Arrays live as long as the node has these
    /// parameters.
    fn of(_operation: &Operation) -> Option<Self> {
        None
    }
}

impl Parameters for KernelParameters {
    fn operation(&self, replaced: Option<&Operation>) -> Result<Operation, Code> {
        let replaced = replaced.and_then(Operation::get::<Prepared>);
        Ok(Operation::new(Prepared::from_parameters(self, replaced)?))
    }

    fn of(operation: &Operation) -> Option<Self> {
        operation.get().map(Prepared::parameters)
    }
}

impl Parameters for KernelParametersV1 {
    fn operation(&self, replaced: Option<&Operation>) -> Result<Operation, Code> {
        self.widened().operation(replaced)
    }

    fn of(operation: &Operation) -> Option<Self> {
        KernelParameters::of(operation).map(KernelParameters::narrowed)
    }
}

impl Parameters for HostParameters {
    fn operation(&self, _replaced: Option<&Operation>) -> Result<Operation, Code> {
        Ok(Operation::new(HostCall::new(self.function, self.argument)?))
    }

    fn of(operation: &Operation) -> Option<Self> {
        operation.get().map(HostCall::parameters)
    }
}

impl Parameters for Copy3D {
    fn operation(&self, _replaced: Option<&Operation>) -> Result<Operation, Code> {
        transfer(self, 0)
    }
}

impl Parameters for FillParameters {
    fn operation(&self, _replaced: Option<&Operation>) -> Result<Operation, Code> {
        fill(self, 0)
    }

    fn of(operation: &Operation) -> Option<Self> {
        operation.get().map(Filling::parameters)
    }
}

pub(super) fn transfer(parameters: &Copy3D, context: usize) -> Result<Operation, Code> {
    context::given(context)?;
    Ok(Operation::new(copy::transfer(parameters)?))
}

pub(super) fn fill(parameters: &FillParameters, context: usize) -> Result<Operation, Code> {
    context::given(context)?;
    Ok(Operation::new(Filling::from_parameters(parameters)?))
}

pub(super) fn record(event: usize) -> Result<Operation, Code> {
    event::check(event)?;
    Ok(Operation::new(Record(event)))
}

pub(super) fn wait(event: usize) -> Result<Operation, Code> {
    event::check(event)?;
    Ok(Operation::new(Wait(event)))
}

fn add_node<P: Parameters>(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<P>) -> Outcome {
    add(out, graph, after, count, given.get()?.operation(None)?)
}

fn get<P: Parameters>(node: usize, out: Out<P>) -> Outcome {
    out.required()?;
    out.set(P::of(&state::of_node(node)?.operation(node)?).ok_or(INVALID_VALUE)?)
}

fn set<P: Parameters>(node: usize, given: In<P>) -> Outcome {
    let graph = state::of_node(node)?;
    graph.replace(node, given.get()?.operation(Some(&graph.operation(node)?))?)
}

fn set_in<P: Parameters>(executable: usize, node: usize, given: In<P>) -> Outcome {
    let replaced = executable::operation(executable, node)?;
    executable::replace(executable, node, given.get()?.operation(Some(&replaced))?)
}

fn add_copy(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    parameters: In<Copy3D>,
    context: usize,
) -> Outcome {
    add(out, graph, after, count, transfer(&parameters.get()?, context)?)
}

fn add_fill(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    parameters: In<FillParameters>,
    context: usize,
) -> Outcome {
    add(out, graph, after, count, fill(&parameters.get()?, context)?)
}

fn set_copy_in(executable: usize, node: usize, parameters: In<Copy3D>, context: usize) -> Outcome {
    executable::replace(executable, node, transfer(&parameters.get()?, context)?)
}

fn set_fill_in(executable: usize, node: usize, parameters: In<FillParameters>, context: usize) -> Outcome {
    executable::replace(executable, node, fill(&parameters.get()?, context)?)
}

fn add_record(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize) -> Outcome {
    add(out, graph, after, count, record(event)?)
}

fn add_wait(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize) -> Outcome {
    add(out, graph, after, count, wait(event)?)
}

fn get_event(node: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    let operation = state::of_node(node)?.operation(node)?;
    let recorded = operation.get().map(|Record(event)| *event);
    out.set(recorded.or_else(|| operation.get().map(|Wait(event)| *event)).ok_or(INVALID_VALUE)?)
}

fn set_record(node: usize, event: usize) -> Outcome {
    state::of_node(node)?.replace(node, record(event)?)
}

fn set_wait(node: usize, event: usize) -> Outcome {
    state::of_node(node)?.replace(node, wait(event)?)
}

fn set_record_in(executable: usize, node: usize, event: usize) -> Outcome {
    executable::replace(executable, node, record(event)?)
}

fn set_wait_in(executable: usize, node: usize, event: usize) -> Outcome {
    executable::replace(executable, node, wait(event)?)
}

exports! {
    cuGraphAddKernelNode =>
        add_node(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<KernelParametersV1>);
    cuGraphAddKernelNode_v2 =>
        add_node(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<KernelParameters>);
    cuGraphAddHostNode =>
        add_node(out: Out<usize>, graph: usize, after: In<usize>, count: usize, given: In<HostParameters>);
    cuGraphAddMemcpyNode =>
        add_copy(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<Copy3D>,
                 context: usize);
    cuGraphAddMemsetNode =>
        add_fill(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<FillParameters>,
                 context: usize);
    cuGraphAddEventRecordNode =>
        add_record(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize);
    cuGraphAddEventWaitNode =>
        add_wait(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize);
    cuGraphKernelNodeGetParams => get(node: usize, out: Out<KernelParametersV1>);
    cuGraphKernelNodeGetParams_v2 => get(node: usize, out: Out<KernelParameters>);
    cuGraphMemsetNodeGetParams => get(node: usize, out: Out<FillParameters>);
    cuGraphHostNodeGetParams => get(node: usize, out: Out<HostParameters>);
    cuGraphEventRecordNodeGetEvent, cuGraphEventWaitNodeGetEvent => get_event(node: usize, out: Out<usize>);
    cuGraphKernelNodeSetParams => set(node: usize, given: In<KernelParametersV1>);
    cuGraphKernelNodeSetParams_v2 => set(node: usize, given: In<KernelParameters>);
    cuGraphMemcpyNodeSetParams => set(node: usize, given: In<Copy3D>);
    cuGraphMemsetNodeSetParams => set(node: usize, given: In<FillParameters>);
    cuGraphHostNodeSetParams => set(node: usize, given: In<HostParameters>);
    cuGraphEventRecordNodeSetEvent => set_record(node: usize, event: usize);
    cuGraphEventWaitNodeSetEvent => set_wait(node: usize, event: usize);
    cuGraphExecKernelNodeSetParams => set_in(executable: usize, node: usize, given: In<KernelParametersV1>);
    cuGraphExecKernelNodeSetParams_v2 => set_in(executable: usize, node: usize, given: In<KernelParameters>);
    cuGraphExecHostNodeSetParams => set_in(executable: usize, node: usize, given: In<HostParameters>);
    cuGraphExecMemcpyNodeSetParams =>
        set_copy_in(executable: usize, node: usize, parameters: In<Copy3D>, context: usize);
    cuGraphExecMemsetNodeSetParams =>
        set_fill_in(executable: usize, node: usize, parameters: In<FillParameters>, context: usize);
    cuGraphExecEventRecordNodeSetEvent => set_record_in(executable: usize, node: usize, event: usize);
    cuGraphExecEventWaitNodeSetEvent => set_wait_in(executable: usize, node: usize, event: usize);
}
