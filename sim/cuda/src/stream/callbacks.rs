//! Host functions and stream callbacks: the program's code, in the stream's order, always on its worker thread.

use super::table;
use crate::boundary::{self, exports};
use crate::code::{INVALID_VALUE, Outcome, SUCCESS};
use crate::ffi::{HostFunction, StreamCallback};
use crate::health::Health;
use crate::queue::Placement;

/// Not called once the context has failed, as with CUDA.
fn launch(stream: usize, function: HostFunction, argument: usize) -> Outcome {
    function.required()?;
    let stream = table::usable(stream)?;
    let work = move || {
        boundary::host_function(|| function.call(argument));
        Ok(())
    };
    stream.submit(Placement::Worker, work)?;
    Ok(())
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
        boundary::host_function(|| callback.call(stream, status, argument));
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
