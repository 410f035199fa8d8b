//! Nodes of graphs whose kind is a parameter.

use std::sync::atomic::{AtomicU32, Ordering};

use support::codes::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED};
use support::cuda::PrimaryContext;

use crate::graphs::{destroy, discard, graph, instantiate, launch};
use crate::{allocate, call, free, given, good, word};

/// `CUgraphNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    kind: u32,
    reserved: [u32; 3],
    union: [u64; 29],
    reserved_too: u64,
}

impl Parameters {
    fn new(kind: u32, words: &[u64]) -> Parameters {
        let mut union = [0; 29];
        union[..words.len()].copy_from_slice(words);
        Parameters { kind, reserved: [0; 3], union, reserved_too: 0 }
    }

    /// A fill of 4 bytes with one byte: address, pitch, value and element size, width, height, context.
    fn fill(address: u64, byte: u64) -> Parameters {
        Parameters::new(2, &[address, 0, byte | 1 << 32, 4, 1, 0])
    }

    /// A copy of 4 bytes: flags, context, and a `CUDA_MEMCPY3D` of device memory.
    fn copy(from: u64, to: u64) -> Parameters {
        let side = |address: u64| [0, 0, 0, 0, 2, 0, address, 0, 0, 0, 0];
        Parameters::new(1, &[&[0, 0], &side(from)[..], &side(to), &[4, 1, 1]].concat())
    }
}

fn try_add(graph: usize, after: &[usize], parameters: Parameters) -> Result<usize, i32> {
    let mut node = 0;
    let code = call!(cuGraphAddNode(
        &raw mut node => *mut usize, graph => usize, after.as_ptr() => *const usize, after.len() => usize,
        &raw const parameters => *const Parameters
    ));
    if code == 0 { Ok(node) } else { Err(code) }
}

fn add(graph: usize, after: &[usize], parameters: Parameters) -> usize {
    try_add(graph, after, parameters).unwrap_or_else(|code| panic!("{code}"))
}

fn kind(node: usize) -> u32 {
    given(|out| call!(cuGraphNodeGetType(node => usize, out => *mut u32)))
}

extern "C" fn count(counter: *const AtomicU32) {
    // SAFETY: the test keeps the value until its graph is done.
    unsafe { &*counter }.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_node_of_each_kind_is_added_by_one_function() {
    let _context = PrimaryContext::retain_and_push(0);
    let (a, b, event) = (allocate(64), allocate(64), given(|out| call!(cuEventCreate(out => *mut usize, 2 => u32))));
    let counter = AtomicU32::new(0);
    let host = [count as *const () as u64, (&raw const counter).expose_provenance() as u64];
    let (outer, inner) = (graph(), graph());
    let first = add(inner, &[], Parameters::fill(a, 5));
    add(inner, &[first], Parameters::copy(a, b));
    let child = add(outer, &[], Parameters::new(4, &[inner as u64]));
    let call = add(outer, &[child], Parameters::new(3, &host));
    let record = add(outer, &[call], Parameters::new(7, &[event as u64]));
    let wait = add(outer, &[record], Parameters::new(6, &[event as u64]));
    let mut last = 0_usize;
    let (after, plain, edge) = ([wait], Parameters::new(5, &[]), 0_u64);
    good(call!(cuGraphAddNode_v2(
        &raw mut last => *mut usize, outer => usize, after.as_ptr() => *const usize, &raw const edge => *const u64,
        1 => usize, &raw const plain => *const Parameters
    )));
    assert_eq!([first, child, call, record, wait, last].map(kind), [2, 4, 3, 7, 6, 5]);
    let executable = instantiate(outer);
    launch(executable);
    assert_eq!((word(a), word(b), counter.load(Ordering::Relaxed)), (0x0505_0505, 0x0505_0505, 1));
    good(call!(cuEventQuery(event => usize)));

    // The child's graph can be changed through the node, and an executable graph stays as it is.
    let copy: usize = given(|out| call!(cuGraphChildGraphNodeGetGraph(child => usize, out => *mut usize)));
    let (mut nodes, mut found) = ([0_usize; 2], 2_usize);
    good(call!(cuGraphGetNodes(copy => usize, nodes.as_mut_ptr() => *mut usize, &raw mut found => *mut usize)));
    let six = Parameters::fill(a, 6);
    good(call!(cuGraphNodeSetParams(nodes[0] => usize, &raw const six => *const Parameters)));
    launch(executable);
    assert_eq!(word(b), 0x0505_0505);
    let changed = instantiate(outer);
    launch(changed);
    assert_eq!(word(b), 0x0606_0606);
    // The executable graph's own child, and a node of another kind.
    let seven = graph();
    let node = add(seven, &[], Parameters::fill(a, 7));
    add(seven, &[node], Parameters::copy(a, b));
    let parameters = Parameters::new(4, &[seven as u64]);
    good(call!(cuGraphExecNodeSetParams(changed => usize, child => usize, &raw const parameters => *const Parameters)));
    launch(changed);
    assert_eq!(word(b), 0x0707_0707);
    good(call!(cuGraphExecChildGraphNodeSetParams(changed => usize, child => usize, inner => usize)));
    launch(changed);
    assert_eq!(word(b), 0x0505_0505);
    let code = call!(cuGraphNodeSetParams(child => usize, &raw const six => *const Parameters));
    assert_eq!(code, INVALID_VALUE, "another kind");
    [executable, changed].into_iter().for_each(discard);
    [outer, inner, seven].into_iter().for_each(destroy);
    assert_eq!(call!(cuGraphGetNodes(copy => usize, 0 => usize, &raw mut found => *mut usize)), INVALID_VALUE);
    good(call!(cuEventDestroy_v2(event => usize)));
    [a, b].into_iter().for_each(free);
}

#[test]
fn nodes_that_make_no_sense_are_refused() {
    let _context = PrimaryContext::retain_and_push(0);
    let (graph, a) = (graph(), allocate(64));
    for kind in 8..=13 {
        assert_eq!(try_add(graph, &[], Parameters::new(kind, &[])), Err(NOT_SUPPORTED), "kind {kind}");
    }
    for (parameters, code) in [
        (Parameters::new(14, &[]), INVALID_VALUE),
        (Parameters::new(u32::MAX, &[]), INVALID_VALUE),
        (Parameters::new(0, &[]), INVALID_HANDLE),
        (Parameters::new(1, &[1]), INVALID_VALUE),
        (Parameters::new(1, &[]), INVALID_VALUE),
        (Parameters::fill(0, 1), INVALID_VALUE),
        (Parameters::new(3, &[]), INVALID_VALUE),
        (Parameters::new(4, &[graph as u64]), INVALID_VALUE),
        (Parameters::new(4, &[99]), INVALID_VALUE),
        (Parameters::new(6, &[99]), INVALID_HANDLE),
        (Parameters::new(7, &[]), INVALID_HANDLE),
    ] {
        let Parameters { kind, union, .. } = parameters;
        assert_eq!(try_add(graph, &[], parameters), Err(code), "kind {kind} with {}", union[0]);
    }
    assert_eq!(try_add(99, &[], Parameters::fill(a, 1)), Err(INVALID_VALUE), "no graph");
    assert_eq!(try_add(graph, &[99], Parameters::fill(a, 1)), Err(INVALID_VALUE), "no node");
    let mut node = 0_usize;
    let code = call!(cuGraphAddNode(
        &raw mut node => *mut usize, graph => usize, 0 => usize, 0 => usize, 0 => usize
    ));
    assert_eq!(code, INVALID_VALUE);
    let mut count = 9_usize;
    good(call!(cuGraphGetNodes(graph => usize, 0 => usize, &raw mut count => *mut usize)));
    assert_eq!(count, 0);
    destroy(graph);
    free(a);
}

#[test]
fn a_launch_that_fails_does_nothing_and_leaves_the_order_of_launches() {
    let _context = PrimaryContext::retain_and_push(0);
    let streams = [(); 3].map(|()| support::cuda::Stream::create());
    let [first, second, third] = [0, 1, 2].map(|index: usize| streams[index].raw().expose_provenance());
    let event: usize = given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32)));
    let (graph, a) = (graph(), allocate(64));
    good(call!(cuMemsetD8_v2(a => u64, 0 => u8, 4 => usize)));
    let first_node = add(graph, &[], Parameters::fill(a, 5));
    let record = add(graph, &[first_node], Parameters::new(7, &[event as u64]));
    let executable = instantiate(graph);
    let launch = |stream: usize| call!(cuGraphLaunch(executable => usize, stream => usize));
    let gate = streams[0].hold();
    good(launch(first));
    good(call!(cuEventDestroy_v2(event => usize)));
    assert_ne!(launch(second), 0, "the event is gone");
    good(call!(cuStreamQuery(second => usize)));
    let event: usize = given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32)));
    good(call!(cuGraphExecEventRecordNodeSetEvent(executable => usize, record => usize, event => usize)));
    good(launch(third));
    // It waits for the first launch all the same.
    assert_eq!(call!(cuStreamQuery(third => usize)), support::codes::NOT_READY);
    drop(gate);
    good(call!(cuStreamSynchronize(third => usize)));
    good(call!(cuMemsetD8_v2(a => u64, 0 => u8, 4 => usize)));
    good(call!(cuEventDestroy_v2(event => usize)));
    assert_ne!(launch(second), 0, "the event is gone");
    good(call!(cuCtxSynchronize()));
    assert_eq!(word(a), 0, "not even the fill before is done");
    discard(executable);
    destroy(graph);
}
