//! Host functions and stream callbacks: the program's code, in the stream's order, always on its worker thread.

use std::sync::Arc;

use super::table;
use crate::boundary::exports;
use crate::call;
use crate::code::{Code, INVALID_VALUE, Outcome, SUCCESS};
use crate::ffi::{HostFunction, StreamCallback};
use crate::graph::{Kind, Operation, Work, capture};
use crate::health::Health;
use crate::layout::HostParameters;
use crate::queue::{Placement, Stream};

/// Not called once the context has failed, as with CUDA.
fn launch(stream: usize, function: HostFunction, argument: usize) -> Outcome {
    let call = HostCall::new(function, argument)?;
    let stream = table::capturable(stream)?;
    if capture::add(&stream, || Operation::new(call))? {
        return Ok(());
    }
    call.submit(&stream)
}

/// A host function and its argument.
#[derive(Clone, Copy)]
pub(crate) struct HostCall(HostParameters);

impl HostCall {
    pub(crate) fn new(function: HostFunction, argument: usize) -> Result<HostCall, Code> {
        function.required()?;
        Ok(HostCall(HostParameters { function, argument }))
    }

    pub(crate) fn parameters(&self) -> HostParameters {
        self.0
    }
}

impl Work for HostCall {
    fn kind(&self) -> Kind {
        Kind::Host
    }

    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        let HostParameters { function, argument } = self.0;
        let work = move || {
            call::host_function(|| function.call(argument));
            Ok(())
        };
        stream.submit(Placement::Worker, work)?;
        Ok(())
    }
}

fn launch_v2(stream: usize, function: HostFunction, argument: usize, mode: u32) -> Outcome {
    // 0 blocks the worker, 1 spins: no difference here.
    if mode > 1 {
        return Err(INVALID_VALUE);
    }
    launch(stream, function, argument)
}

/// Called even after a failure, with the status of the work before it.
fn add_callback(stream: usize, callback: StreamCallback, argument: usize, flags: u32) -> Outcome {
    callback.required()?;
    if flags != 0 {
        return Err(INVALID_VALUE);
    }
    let queue = table::usable(stream)?;
    let work = move |health: &Health| {
        let status = health.check().err().unwrap_or(SUCCESS);
        call::host_function(|| callback.call(stream, status, argument));
    };
    queue.submit_after(Vec::new(), Placement::Worker, Box::new(work))?;
    Ok(())
}

exports! {
    cuLaunchHostFunc, cuLaunchHostFunc_ptsz => launch(stream: usize, function: HostFunction, argument: usize);
    cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz =>
        launch_v2(stream: usize, function: HostFunction, argument: usize, mode: u32);
    cuStreamAddCallback, cuStreamAddCallback_ptsz =>
        add_callback(stream: usize, callback: StreamCallback, argument: usize, flags: u32);
}
