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

/// `replaced` is what the node did before, if it did anything: its attributes stay.
pub(super) fn kernel(parameters: In<KernelParameters>, replaced: Option<&Operation>) -> Result<Operation, Code> {
    launch(&parameters.get()?, replaced)
}

fn kernel_v1(parameters: In<KernelParametersV1>, replaced: Option<&Operation>) -> Result<Operation, Code> {
    launch(&parameters.get()?.widened(), replaced)
}

fn launch(parameters: &KernelParameters, replaced: Option<&Operation>) -> Result<Operation, Code> {
    let replaced = replaced.and_then(Operation::get::<Prepared>);
    Ok(Operation::new(Prepared::from_parameters(parameters, replaced)?))
}

pub(super) fn transfer(parameters: In<Copy3D>, context: usize) -> Result<Operation, Code> {
    context::given(context)?;
    Ok(Operation::new(copy::transfer(&parameters.get()?)?))
}

pub(super) fn fill(parameters: In<FillParameters>, context: usize) -> Result<Operation, Code> {
    context::given(context)?;
    Ok(Operation::new(Filling::from_parameters(&parameters.get()?)?))
}

pub(super) fn host(parameters: In<HostParameters>) -> Result<Operation, Code> {
    let HostParameters { function, argument } = parameters.get()?;
    Ok(Operation::new(HostCall::new(function, argument)?))
}

fn add_kernel_v1(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    parameters: In<KernelParametersV1>,
) -> Outcome {
    add(out, graph, after, count, kernel_v1(parameters, None)?)
}

fn add_kernel(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    parameters: In<KernelParameters>,
) -> Outcome {
    add(out, graph, after, count, kernel(parameters, None)?)
}

fn add_copy(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    parameters: In<Copy3D>,
    context: usize,
) -> Outcome {
    add(out, graph, after, count, transfer(parameters, context)?)
}

fn add_fill(
    out: Out<usize>,
    graph: usize,
    after: In<usize>,
    count: usize,
    parameters: In<FillParameters>,
    context: usize,
) -> Outcome {
    add(out, graph, after, count, fill(parameters, context)?)
}

fn add_host(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<HostParameters>) -> Outcome {
    add(out, graph, after, count, host(parameters)?)
}

fn add_record(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize) -> Outcome {
    event::check(event)?;
    add(out, graph, after, count, Operation::new(Record(event)))
}

fn add_wait(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize) -> Outcome {
    event::check(event)?;
    add(out, graph, after, count, Operation::new(Wait(event)))
}

fn operation(node: usize) -> Result<Operation, Code> {
    state::of_node(node)?.operation(node)
}

fn replace(node: usize, operation: Operation) -> Outcome {
    state::of_node(node)?.replace(node, operation)
}

/// The arrays that are given out live as long as the node has these parameters.
fn get_kernel(node: usize, out: Out<KernelParameters>) -> Outcome {
    out.required()?;
    let operation = operation(node)?;
    let launch = operation.get::<Prepared>().ok_or(INVALID_VALUE)?;
    out.set(launch.parameters())
}

fn get_kernel_v1(node: usize, out: Out<KernelParametersV1>) -> Outcome {
    out.required()?;
    let operation = operation(node)?;
    let launch = operation.get::<Prepared>().ok_or(INVALID_VALUE)?;
    out.set(launch.parameters().narrowed())
}

fn get_fill(node: usize, out: Out<FillParameters>) -> Outcome {
    out.required()?;
    let operation = operation(node)?;
    let fill = operation.get::<Filling>().ok_or(INVALID_VALUE)?;
    out.set(fill.parameters())
}

fn get_host(node: usize, out: Out<HostParameters>) -> Outcome {
    out.required()?;
    let operation = operation(node)?;
    let call = operation.get::<HostCall>().ok_or(INVALID_VALUE)?;
    out.set(call.parameters())
}

fn get_event(node: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    let operation = operation(node)?;
    let recorded = operation.get::<Record>().map(|Record(event)| *event);
    let event = recorded.or_else(|| operation.get::<Wait>().map(|Wait(event)| *event));
    out.set(event.ok_or(INVALID_VALUE)?)
}

fn set_kernel(node: usize, parameters: In<KernelParameters>) -> Outcome {
    replace(node, kernel(parameters, Some(&operation(node)?))?)
}

fn set_kernel_v1(node: usize, parameters: In<KernelParametersV1>) -> Outcome {
    replace(node, kernel_v1(parameters, Some(&operation(node)?))?)
}

fn set_copy(node: usize, parameters: In<Copy3D>) -> Outcome {
    replace(node, transfer(parameters, 0)?)
}

fn set_fill(node: usize, parameters: In<FillParameters>) -> Outcome {
    replace(node, fill(parameters, 0)?)
}

fn set_host(node: usize, parameters: In<HostParameters>) -> Outcome {
    replace(node, host(parameters)?)
}

fn set_record(node: usize, event: usize) -> Outcome {
    event::check(event)?;
    replace(node, Operation::new(Record(event)))
}

fn set_wait(node: usize, event: usize) -> Outcome {
    event::check(event)?;
    replace(node, Operation::new(Wait(event)))
}

fn set_kernel_in(executable: usize, node: usize, parameters: In<KernelParameters>) -> Outcome {
    let replaced = executable::operation(executable, node)?;
    executable::replace(executable, node, kernel(parameters, Some(&replaced))?)
}

fn set_kernel_v1_in(executable: usize, node: usize, parameters: In<KernelParametersV1>) -> Outcome {
    let replaced = executable::operation(executable, node)?;
    executable::replace(executable, node, kernel_v1(parameters, Some(&replaced))?)
}

fn set_copy_in(executable: usize, node: usize, parameters: In<Copy3D>, context: usize) -> Outcome {
    executable::replace(executable, node, transfer(parameters, context)?)
}

fn set_fill_in(executable: usize, node: usize, parameters: In<FillParameters>, context: usize) -> Outcome {
    executable::replace(executable, node, fill(parameters, context)?)
}

fn set_host_in(executable: usize, node: usize, parameters: In<HostParameters>) -> Outcome {
    executable::replace(executable, node, host(parameters)?)
}

fn set_record_in(executable: usize, node: usize, event: usize) -> Outcome {
    event::check(event)?;
    executable::replace(executable, node, Operation::new(Record(event)))
}

fn set_wait_in(executable: usize, node: usize, event: usize) -> Outcome {
    event::check(event)?;
    executable::replace(executable, node, Operation::new(Wait(event)))
}

exports! {
    cuGraphAddKernelNode =>
        add_kernel_v1(out: Out<usize>, graph: usize, after: In<usize>, count: usize,
                      parameters: In<KernelParametersV1>);
    cuGraphAddKernelNode_v2 =>
        add_kernel(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<KernelParameters>);
    cuGraphAddMemcpyNode =>
        add_copy(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<Copy3D>,
                 context: usize);
    cuGraphAddMemsetNode =>
        add_fill(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<FillParameters>,
                 context: usize);
    cuGraphAddHostNode =>
        add_host(out: Out<usize>, graph: usize, after: In<usize>, count: usize, parameters: In<HostParameters>);
    cuGraphAddEventRecordNode =>
        add_record(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize);
    cuGraphAddEventWaitNode =>
        add_wait(out: Out<usize>, graph: usize, after: In<usize>, count: usize, event: usize);
    cuGraphKernelNodeGetParams => get_kernel_v1(node: usize, out: Out<KernelParametersV1>);
    cuGraphKernelNodeGetParams_v2 => get_kernel(node: usize, out: Out<KernelParameters>);
    cuGraphMemsetNodeGetParams => get_fill(node: usize, out: Out<FillParameters>);
    cuGraphHostNodeGetParams => get_host(node: usize, out: Out<HostParameters>);
    cuGraphEventRecordNodeGetEvent, cuGraphEventWaitNodeGetEvent => get_event(node: usize, out: Out<usize>);
    cuGraphKernelNodeSetParams => set_kernel_v1(node: usize, parameters: In<KernelParametersV1>);
    cuGraphKernelNodeSetParams_v2 => set_kernel(node: usize, parameters: In<KernelParameters>);
    cuGraphMemcpyNodeSetParams => set_copy(node: usize, parameters: In<Copy3D>);
    cuGraphMemsetNodeSetParams => set_fill(node: usize, parameters: In<FillParameters>);
    cuGraphHostNodeSetParams => set_host(node: usize, parameters: In<HostParameters>);
    cuGraphEventRecordNodeSetEvent => set_record(node: usize, event: usize);
    cuGraphEventWaitNodeSetEvent => set_wait(node: usize, event: usize);
    cuGraphExecKernelNodeSetParams =>
        set_kernel_v1_in(executable: usize, node: usize, parameters: In<KernelParametersV1>);
    cuGraphExecKernelNodeSetParams_v2 =>
        set_kernel_in(executable: usize, node: usize, parameters: In<KernelParameters>);
    cuGraphExecMemcpyNodeSetParams =>
        set_copy_in(executable: usize, node: usize, parameters: In<Copy3D>, context: usize);
    cuGraphExecMemsetNodeSetParams =>
        set_fill_in(executable: usize, node: usize, parameters: In<FillParameters>, context: usize);
    cuGraphExecHostNodeSetParams => set_host_in(executable: usize, node: usize, parameters: In<HostParameters>);
    cuGraphExecEventRecordNodeSetEvent => set_record_in(executable: usize, node: usize, event: usize);
    cuGraphExecEventWaitNodeSetEvent => set_wait_in(executable: usize, node: usize, event: usize);
}
