//! Signals and waits of imported semaphores in graphs.

use std::time::Duration;

use support::codes::NOT_READY;
use support::cuda::{PrimaryContext, Stream};
use support::skip;

use super::{TIMELINE_FD, destroy, import, query, signal, synchronize, wait};
use crate::graphs::{self, discard, instantiate};
use crate::vulkan::{Kind, Vulkan};
use crate::{call, given, good};

/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`
const UPDATE_FAILURE: i32 = 910;

#[test]
fn signals_and_waits_are_captured() {
    let vulkan = vulkan!();
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    let semaphore = import(TIMELINE_FD, fd);
    let captured = |signals: &dyn Fn() -> i32| -> usize {
        good(call!(cuStreamBeginCapture_v2(raw => usize, 0 => u32)));
        good(wait(semaphore, 1, raw));
        good(signals());
        given(|out| call!(cuStreamEndCapture(raw => usize, out => *mut usize)))
    };
    let graph = captured(&|| signal(semaphore, 2, raw));
    let (mut nodes, mut count) = ([0_usize; 2], 2_usize);
    good(call!(cuGraphGetNodes(graph => usize, nodes.as_mut_ptr() => *mut usize, &raw mut count => *mut usize)));
    let kind = |node: usize| -> u32 { given(|out| call!(cuGraphNodeGetType(node => usize, out => *mut u32))) };
    assert_eq!(nodes.map(kind), [9, 8]);
    assert!(!vulkan.reaches(timeline, 1, Duration::ZERO));
    let executable = instantiate(graph);
    good(call!(cuGraphLaunch(executable => usize, raw => usize)));
    assert_eq!(query(raw), NOT_READY);
    vulkan.signal(timeline, 1);
    vulkan.wait(timeline, 2);
    synchronize(raw);
    // An update may change the value of a signal, and not the number of semaphores.
    let next = captured(&|| signal(semaphore, 3, raw));
    let none = captured(&|| call!(cuSignalExternalSemaphoresAsync(0 => usize, 0 => usize, 0 => u32, raw => usize)));
    let update = |graph: usize| call!(cuGraphExecUpdate(executable => usize, graph => usize, 0 => usize, 0 => usize));
    assert_eq!([next, none].map(update), [0, UPDATE_FAILURE]);
    good(call!(cuGraphLaunch(executable => usize, raw => usize)));
    synchronize(raw);
    assert_eq!(vulkan.counter(timeline), 3);
    discard(executable);
    [graph, next, none].into_iter().for_each(graphs::destroy);
    destroy(semaphore);
    vulkan.destroy(timeline);
}
