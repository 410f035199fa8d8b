//! Signals and waits of imported semaphores in graphs.

use std::time::Duration;

use support::codes::{INVALID_VALUE, NOT_READY};
use support::cuda::{PrimaryContext, Stream};
use support::skip;

use super::{Fence, TIMELINE_FD, destroy, import, query, signal, synchronize, wait};
use crate::vulkan::{Kind, Vulkan};
use crate::{call, given, good};

#[test]
fn signals_and_waits_are_captured() {
    let vulkan = vulkan!();
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    let semaphore = import(TIMELINE_FD, fd);
    good(call!(cuStreamBeginCapture_v2(raw => usize, 0 => u32)));
    good(wait(semaphore, 1, raw));
    good(signal(semaphore, 2, raw));
    let graph: usize = given(|out| call!(cuStreamEndCapture(raw => usize, out => *mut usize)));
    let (mut nodes, mut count) = ([0_usize; 2], 2_usize);
    good(call!(cuGraphGetNodes(graph => usize, nodes.as_mut_ptr() => *mut usize, &raw mut count => *mut usize)));
    let kind = |node: usize| -> u32 { given(|out| call!(cuGraphNodeGetType(node => usize, out => *mut u32))) };
    assert_eq!(nodes.map(kind), [9, 8]);
    assert!(!vulkan.reaches(timeline, 1, Duration::ZERO));
    let executable: usize =
        given(|out| call!(cuGraphInstantiateWithFlags(out => *mut usize, graph => usize, 0 => u64)));
    good(call!(cuGraphLaunch(executable => usize, raw => usize)));
    assert_eq!(query(raw), NOT_READY);
    vulkan.signal(timeline, 1);
    vulkan.wait(timeline, 2);
    synchronize(raw);
    good(call!(cuGraphExecDestroy(executable => usize)));
    good(call!(cuGraphDestroy(graph => usize)));
    destroy(semaphore);
    vulkan.destroy(timeline);
}

/// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS`.
#[repr(C)]
struct Node {
    semaphores: *const usize,
    parameters: *const Fence,
    count: u32,
}

#[test]
fn nodes_signal_and_wait() {
    let vulkan = vulkan!();
    let _context = PrimaryContext::retain_and_push(0);
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    let semaphore = import(TIMELINE_FD, fd);
    let graph: usize = given(|out| call!(cuGraphCreate(out => *mut usize, 0 => u32)));
    let fences = [1, 2, 3].map(Fence::new);
    let [one, two, three] = [0, 1, 2].map(|index| Node {
        semaphores: &raw const semaphore,
        parameters: &raw const fences[index],
        count: 1,
    });
    let signal: usize = given(|out| {
        call!(cuGraphAddExternalSemaphoresSignalNode(
            out => *mut usize, graph => usize, 0 => usize, 0 => usize, &raw const one => *const Node
        ))
    });
    let wait: usize = given(|out| {
        call!(cuGraphAddExternalSemaphoresWaitNode(
            out => *mut usize, graph => usize, &raw const signal => *const usize, 1 => usize, &raw const two => *const Node
        ))
    });
    let mut back = Node { semaphores: std::ptr::null(), parameters: std::ptr::null(), count: 0 };
    good(call!(cuGraphExternalSemaphoresWaitNodeGetParams(wait => usize, &raw mut back => *mut Node)));
    // SAFETY: the node has one semaphore.
    let of_node = unsafe { *back.semaphores };
    // SAFETY: and one fence.
    let value = unsafe { (*back.parameters).value };
    assert_eq!((back.count, of_node, value), (1, semaphore, 2));
    assert_eq!(
        call!(cuGraphExternalSemaphoresSignalNodeGetParams(wait => usize, &raw mut back => *mut Node)),
        INVALID_VALUE
    );
    let executable: usize =
        given(|out| call!(cuGraphInstantiateWithFlags(out => *mut usize, graph => usize, 0 => u64)));
    good(call!(cuGraphLaunch(executable => usize, 0 => usize)));
    vulkan.wait(timeline, 1);
    assert_eq!(query(0), NOT_READY);
    vulkan.signal(timeline, 2);
    synchronize(0);
    good(call!(cuGraphExecExternalSemaphoresSignalNodeSetParams(
        executable => usize, signal => usize, &raw const three => *const Node
    )));
    // Their number cannot change.
    let none = Node { count: 0, ..one };
    for code in [
        call!(cuGraphExecExternalSemaphoresSignalNodeSetParams(
            executable => usize, signal => usize, &raw const none => *const Node
        )),
        call!(cuGraphExecExternalSemaphoresWaitNodeSetParams(
            executable => usize, wait => usize, &raw const none => *const Node
        )),
    ] {
        assert_eq!(code, INVALID_VALUE);
    }
    good(call!(cuGraphLaunch(executable => usize, 0 => usize)));
    synchronize(0);
    assert_eq!(vulkan.counter(timeline), 3);
    good(call!(cuGraphExecDestroy(executable => usize)));
    good(call!(cuGraphDestroy(graph => usize)));
    destroy(semaphore);
    vulkan.destroy(timeline);
}
