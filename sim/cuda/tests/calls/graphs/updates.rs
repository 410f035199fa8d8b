//! What executable graphs take over, and what they refuse, as documented for `cuGraphExecUpdate`.

use support::codes::INVALID_VALUE;
use support::cuda::{Context, PrimaryContext, Stream};

use super::{Fill, Kernel, UPDATE_FAILURE, add_fill, copy, destroy, discard, empty, fill, graph, instantiate, launch};
use crate::{PUT, allocate, call, given, good, load, word};

const TOPOLOGY: usize = 2;
const KIND: usize = 3;
const PARAMETERS: usize = 5;
const FUNCTION: usize = 7;
const ATTRIBUTES: usize = 8;

/// The result of an update by the graph, and the node that it names.
fn update(executable: usize, graph: usize) -> (usize, usize) {
    let mut result = [9_usize; 3];
    let code = call!(cuGraphExecUpdate_v2(executable => usize, graph => usize, result.as_mut_ptr() => *mut usize));
    assert_eq!(code, if result[0] & 0xffff_ffff == 0 { 0 } else { UPDATE_FAILURE });
    (result[0] & 0xffff_ffff, result[1])
}

fn add_child(graph: usize, child: usize) -> usize {
    given(
        |out| call!(cuGraphAddChildGraphNode(out => *mut usize, graph => usize, 0 => usize, 0 => usize, child => usize)),
    )
}

fn filled(graph: usize, after: &[usize], fill: Fill) -> usize {
    add_fill(graph, after, fill).unwrap_or_else(|code| panic!("{code}"))
}

fn add_kernel(graph: usize, parameters: &Kernel) -> usize {
    given(|out| {
        call!(cuGraphAddKernelNode_v2(
            out => *mut usize, graph => usize, 0 => usize, 0 => usize, &raw const *parameters => *const Kernel
        ))
    })
}

fn add_copy(graph: usize, copy: &[usize]) -> usize {
    given(|out| {
        call!(cuGraphAddMemcpyNode(
            out => *mut usize, graph => usize, 0 => usize, 0 => usize, copy.as_ptr() => *const usize, 0 => usize
        ))
    })
}

#[test]
fn children_are_compared_with_all_that_they_have() {
    let _context = PrimaryContext::retain_and_push(0);
    let (a, b) = (allocate(64), allocate(64));
    // Two fills, one behind the other, in a graph in a graph.
    let nested = |fills: &dyn Fn(usize)| {
        let (outer, middle, inner) = (graph(), graph(), graph());
        fills(inner);
        add_child(middle, inner);
        let node = add_child(outer, middle);
        destroy(inner);
        (outer, middle, node)
    };
    let (outer, middle, node) = nested(&|inner| {
        let first = filled(inner, &[], fill(a, 1));
        filled(inner, &[first], fill(b, 1));
    });
    let executable = instantiate(outer);
    let set =
        |middle: usize| call!(cuGraphExecChildGraphNodeSetParams(executable => usize, node => usize, middle => usize));
    for (fills, result) in [
        (
            &(|inner| {
                filled(inner, &[], fill(a, 2));
            }) as &dyn Fn(usize),
            TOPOLOGY,
        ),
        (
            &|inner| {
                filled(inner, &[], fill(a, 2));
                filled(inner, &[], fill(b, 2));
            },
            TOPOLOGY,
        ),
        (
            &|inner| {
                let first = filled(inner, &[], fill(a, 2));
                empty(inner, &[first]);
            },
            KIND,
        ),
    ] {
        let (other, other_middle, other_node) = nested(fills);
        assert_eq!(set(other_middle), INVALID_VALUE);
        assert_eq!(update(executable, other), (result, other_node));
        [other, other_middle].into_iter().for_each(destroy);
    }
    launch(executable);
    assert_eq!((word(a), word(b)), (1, 1), "nothing was taken over");
    let (same, same_middle, _) = nested(&|inner| {
        let first = filled(inner, &[], fill(a, 3));
        filled(inner, &[first], fill(b, 4));
    });
    good(set(same_middle));
    launch(executable);
    assert_eq!((word(a), word(b)), (3, 4));
    assert_eq!(update(executable, outer).0, 0);
    launch(executable);
    assert_eq!((word(a), word(b)), (1, 1));
    discard(executable);
    [outer, middle, same, same_middle].into_iter().for_each(destroy);
}

#[test]
fn kernels_stay_in_their_context_and_cooperative() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let stream = stream.raw().expose_provenance();
    let (a, here) = (allocate(64), load(PUT, c"put")[1]);
    let other = Context::create(0);
    let there = load(PUT, c"put")[1];
    good(call!(cuCtxPopCurrent_v2(0 => usize)));
    let value = 7_u32;
    let arguments = [(&raw const a).cast::<u8>(), (&raw const value).cast::<u8>()];
    let (plain, moved) = (graph(), graph());
    let parameters = Kernel::new(there, arguments.as_ptr());
    let node = add_kernel(plain, &Kernel::new(here, arguments.as_ptr()));
    let elsewhere = add_kernel(moved, &parameters);
    good(call!(cuStreamBeginCapture_v2(stream => usize, 0 => u32)));
    good(call!(cuLaunchCooperativeKernel(
        here => usize, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 0 => u32, stream => usize,
        arguments.as_ptr() => *const *const u8
    )));
    let cooperative: usize = given(|out| call!(cuStreamEndCapture(stream => usize, out => *mut usize)));
    let executable = instantiate(plain);
    assert_eq!(update(executable, moved), (FUNCTION, elsewhere));
    let code = call!(cuGraphExecKernelNodeSetParams_v2(
        executable => usize, node => usize, &raw const parameters => *const Kernel
    ));
    assert_eq!(code, INVALID_VALUE, "another context");
    assert_eq!(update(executable, cooperative).0, ATTRIBUTES);
    let code = instantiate(cooperative);
    assert_eq!(update(code, plain).0, ATTRIBUTES);
    assert_eq!(update(code, cooperative).0, 0);
    launch(executable);
    assert_eq!(word(a), 7);
    [executable, code].into_iter().for_each(discard);
    [plain, moved, cooperative].into_iter().for_each(destroy);
    other.destroy();
}

/// A cooperative launch that all of the device could not hold is refused where a node gets it, too.
#[test]
fn a_cooperative_node_stays_cooperative_with_other_parameters() {
    const TOO_LARGE: i32 = 720;
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let stream = stream.raw().expose_provenance();
    let (a, function, value) = (allocate(64), load(PUT, c"put")[1], 7_u32);
    let arguments = [(&raw const a).cast::<u8>(), (&raw const value).cast::<u8>()];
    good(call!(cuStreamBeginCapture_v2(stream => usize, 0 => u32)));
    good(call!(cuLaunchCooperativeKernel(
        function => usize, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 0 => u32, stream => usize,
        arguments.as_ptr() => *const *const u8
    )));
    let graph: usize = given(|out| call!(cuStreamEndCapture(stream => usize, out => *mut usize)));
    let (mut node, mut count) = (0_usize, 1_usize);
    good(call!(cuGraphGetNodes(graph => usize, &raw mut node => *mut usize, &raw mut count => *mut usize)));
    let executable = instantiate(graph);
    let small = Kernel::new(function, arguments.as_ptr());
    let large = Kernel { grid: [1 << 20, 1, 1], ..Kernel::new(function, arguments.as_ptr()) };
    // CUgraphNodeParams of a kernel.
    let any = |kernel: &Kernel| {
        let mut words = [0_u64; 32];
        let pointers = kernel.pointers.expose_provenance() as u64;
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let ([x, y, z], [u, v, w]) = (kernel.grid, kernel.block);
        words[2..8].copy_from_slice(&[kernel.function as u64, pair(x, y), pair(z, u), pair(v, w), 0, pointers]);
        words
    };
    for (kernel, code) in [(&small, 0), (&large, TOO_LARGE)] {
        let (kernel, any): (*const Kernel, _) = (kernel, any(kernel));
        let any = any.as_ptr();
        let codes = [
            call!(cuGraphKernelNodeSetParams(node => usize, kernel => *const Kernel)),
            call!(cuGraphKernelNodeSetParams_v2(node => usize, kernel => *const Kernel)),
            call!(cuGraphNodeSetParams(node => usize, any => *const u64)),
            call!(cuGraphExecKernelNodeSetParams(executable => usize, node => usize, kernel => *const Kernel)),
            call!(cuGraphExecKernelNodeSetParams_v2(executable => usize, node => usize, kernel => *const Kernel)),
            call!(cuGraphExecNodeSetParams(executable => usize, node => usize, any => *const u64)),
        ];
        assert_eq!(codes, [code; 6]);
    }
    launch(executable);
    assert_eq!(word(a), 7);
    discard(executable);
    destroy(graph);
}

#[test]
fn fills_keep_their_rows_and_their_context() {
    let _context = PrimaryContext::retain_and_push(0);
    let (a, b) = (allocate(64), allocate(64));
    let other = Context::create(0);
    let foreign = allocate(64);
    good(call!(cuCtxPopCurrent_v2(0 => usize)));
    let host: usize = given(|out| call!(cuMemHostAlloc(out => *mut usize, 64 => usize, 0 => u32)));
    let rows = |start: u64, value: u32| Fill { height: 2, pitch: 32, ..fill(start, value) };
    let check = |old: Fill, new: Fill, accepted: bool| {
        let (first, second) = (graph(), graph());
        let (node, other) = (filled(first, &[], old), filled(second, &[], new));
        let (executable, changed) = (instantiate(first), instantiate(first));
        let code = call!(cuGraphExecMemsetNodeSetParams(
            changed => usize, node => usize, &raw const new => *const Fill, 0 => usize
        ));
        let expected = if accepted { (0, (0, 0)) } else { (INVALID_VALUE, (PARAMETERS, other)) };
        assert_eq!((code, update(executable, second)), expected, "{old:?}, {new:?}");
        [executable, changed].into_iter().for_each(discard);
        [first, second].into_iter().for_each(destroy);
    };
    check(fill(a, 1), fill(b, 2), true);
    check(fill(a, 1), Fill { element: 1, width: 9, ..fill(a, 2) }, true);
    check(fill(a, 1), rows(a, 1), false);
    check(rows(a, 1), fill(a, 1), false);
    check(rows(a, 1), rows(b, 2), true);
    check(rows(a, 1), Fill { width: 3, ..rows(a, 1) }, false);
    check(rows(a, 1), Fill { pitch: 16, ..rows(a, 1) }, false);
    check(fill(a, 1), fill(foreign, 1), false);
    check(fill(a, 1), fill(host as u64, 1), false);
    good(call!(cuMemFreeHost(host => usize)));
    other.destroy();
}

#[test]
fn copies_keep_their_types_of_memory() {
    let _context = PrimaryContext::retain_and_push(0);
    let (a, b, mut bytes) = (allocate(64), allocate(64), [0_u8; 64]);
    let other = Context::create(0);
    let foreign = allocate(64);
    good(call!(cuCtxPopCurrent_v2(0 => usize)));
    let host = bytes.as_mut_ptr().expose_provenance();
    let device = |from: u64, to: u64| copy((2, from), (2, to), 4, 1);
    let to_host = |from: u64| copy((2, from), (1, host as u64), 4, 1);
    let rows = |from: u64, to: u64| copy((2, from), (2, to), 4, 2);
    // The results of an update and of the copy's own function.
    for (old, new, result, code) in [
        (device(a, b), device(b, a), 0, 0),
        (device(a, b), copy((4, b), (4, a), 8, 1), 0, 0),
        (device(a, b), to_host(a), PARAMETERS, INVALID_VALUE),
        (to_host(a), device(a, b), PARAMETERS, INVALID_VALUE),
        (to_host(a), to_host(b), 0, 0),
        (device(a, b), device(foreign, b), PARAMETERS, INVALID_VALUE),
        (device(a, b), device(a, foreign), PARAMETERS, INVALID_VALUE),
        (rows(a, b), rows(b, a), 0, INVALID_VALUE),
        (device(a, b), rows(a, b), 0, INVALID_VALUE),
        (rows(a, b), device(a, b), 0, INVALID_VALUE),
    ] {
        let (first, second) = (graph(), graph());
        let node = add_copy(first, &old);
        add_copy(second, &new);
        let (executable, changed) = (instantiate(first), instantiate(first));
        let set = call!(cuGraphExecMemcpyNodeSetParams(
            changed => usize, node => usize, new.as_ptr() => *const usize, 0 => usize
        ));
        assert_eq!((update(executable, second).0, set), (result, code), "{old:?}, {new:?}");
        [executable, changed].into_iter().for_each(discard);
        [first, second].into_iter().for_each(destroy);
    }
    other.destroy();
}
