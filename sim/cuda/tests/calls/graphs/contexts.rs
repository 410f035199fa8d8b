//! Nodes of several contexts.

use support::codes::INVALID_CONTEXT;
use support::cuda::{Context, PrimaryContext, Stream, no_context};

use super::{Fill, Kernel, add_fill, copy, destroy, discard, fill, graph, instantiate};
use crate::{allocate, call, given, good, launch, library, put_of, word};

#[test]
fn kernels_of_several_contexts_run_in_one_launch() {
    let _context = PrimaryContext::retain_and_push(0);
    let (library, stream) = (library(), Stream::create());
    let stream = stream.raw().expose_provenance();
    let event = || -> usize { given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32))) };
    let (a, b, forked, put) = (allocate(64), allocate(64), event(), put_of(library));
    let other = Context::create(0);
    let joined = event();
    let there: usize = given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32)));
    let value = 7_u32;
    good(call!(cuStreamBeginCapture_v2(stream => usize, 0 => u32)));
    good(call!(cuMemsetD32Async(a => u64, 1 => u32, 1 => usize, stream => usize)));
    good(call!(cuEventRecord(forked => usize, stream => usize)));
    good(call!(cuStreamWaitEvent(there => usize, forked => usize, 0 => u32)));
    good(launch(put, 0, there, &[(&raw const a).cast(), (&raw const value).cast()]));
    good(call!(cuEventRecord(joined => usize, there => usize)));
    good(call!(cuStreamWaitEvent(stream => usize, joined => usize, 0 => u32)));
    good(call!(cuMemcpyDtoDAsync_v2(b => u64, a => u64, 4 => usize, stream => usize)));
    good(call!(cuMemsetD32Async(a => u64, 2 => u32, 1 => usize, stream => usize)));
    let graph: usize = given(|out| call!(cuStreamEndCapture(stream => usize, out => *mut usize)));
    let executable = instantiate(graph);
    for launched in [stream, there, stream] {
        good(call!(cuMemsetD32_v2(b => u64, 0 => u32, 1 => usize)));
        good(call!(cuCtxSynchronize()));
        good(call!(cuGraphLaunch(executable => usize, launched => usize)));
        good(call!(cuStreamSynchronize(launched => usize)));
        assert_eq!((word(a), word(b)), (2, 7));
    }
    good(call!(cuCtxPopCurrent_v2(0 => usize)));
    other.destroy();
    assert_ne!(call!(cuGraphLaunch(executable => usize, stream => usize)), 0, "a context is gone");
    good(call!(cuMemsetD32_v2(a => u64, 5 => u32, 1 => usize)));
    good(call!(cuCtxSynchronize()));
    assert_eq!(word(a), 5, "nothing of that launch is done");
    discard(executable);
    destroy(graph);
    good(call!(cuLibraryUnload(library => usize)));
}

#[test]
fn a_kernels_node_gets_the_context_that_is_given_for_it() {
    let _context = PrimaryContext::retain_and_push(0);
    let (library, graph, a, value) = (library(), graph(), allocate(64), 7_u32);
    let put = put_of(library);
    let current: usize = given(|out| call!(cuCtxGetCurrent(out => *mut usize)));
    let other = Context::create(0);
    good(call!(cuCtxPopCurrent_v2(0 => usize)));
    let there = other.raw().expose_provenance();
    let arguments = [(&raw const a).cast::<u8>(), (&raw const value).cast::<u8>()];
    let add = |context: usize| {
        let (mut node, mut back) = (0_usize, Kernel::new(0, std::ptr::null()));
        let parameters = Kernel { kernel: put, context, ..Kernel::new(0, arguments.as_ptr()) };
        let code = call!(cuGraphAddKernelNode_v2(
            &raw mut node => *mut usize, graph => usize, 0 => usize, 0 => usize, &raw const parameters => *const Kernel
        ));
        if code != 0 {
            return Err(code);
        }
        good(call!(cuGraphKernelNodeGetParams_v2(node => usize, &raw mut back => *mut Kernel)));
        Ok(back.context)
    };
    assert_eq!([add(0), add(there), add(99)], [Ok(current), Ok(there), Err(INVALID_CONTEXT)]);
    assert_eq!(no_context(|| (add(there), add(0))), (Ok(there), Err(INVALID_CONTEXT)));
    destroy(graph);
    other.destroy();
    good(call!(cuLibraryUnload(library => usize)));
}

#[test]
fn copies_and_fills_take_the_context_that_is_given_for_them() {
    let context = PrimaryContext::retain_and_push(0);
    let (graph, a, current) = (graph(), allocate(64), context.raw().expose_provenance());
    let (copy, fill) = (copy((2, a), (2, a + 4), 4, 1), fill(a, 1));
    let executable = {
        add_fill(graph, &[], fill).unwrap_or_else(|code| panic!("{code}"));
        instantiate(graph)
    };
    let mut nodes = [0_usize; 1];
    good(call!(cuGraphGetNodes(graph => usize, nodes.as_mut_ptr() => *mut usize, &mut 1_usize => *mut usize)));
    let mut out = 0_usize;
    // CUgraphNodeParams: a copy with its context behind the flags, and a fill with its context at the end.
    let any_copy = |context: usize| [&[1, 0, 0, context][..], &copy, &[0; 5]].concat();
    let any_fill = |context: usize| {
        let address = usize::try_from(a).unwrap_or_default();
        [&[2, 0, address, 0, 1 | 4 << 32, 1, 1, context][..], &[0; 24]].concat()
    };
    let mut codes = |context: usize| {
        let (any_copy, any_fill) = (any_copy(context), any_fill(context));
        [
            call!(cuGraphAddMemcpyNode(
                &raw mut out => *mut usize, graph => usize, 0 => usize, 0 => usize, copy.as_ptr() => *const usize,
                context => usize
            )),
            call!(cuGraphAddMemsetNode(
                &raw mut out => *mut usize, graph => usize, 0 => usize, 0 => usize, &raw const fill => *const Fill,
                context => usize
            )),
            call!(cuGraphExecMemsetNodeSetParams(
                executable => usize, nodes[0] => usize, &raw const fill => *const Fill, context => usize
            )),
            call!(cuGraphAddNode(
                &raw mut out => *mut usize, graph => usize, 0 => usize, 0 => usize, any_copy.as_ptr() => *const usize
            )),
            call!(cuGraphAddNode(
                &raw mut out => *mut usize, graph => usize, 0 => usize, 0 => usize, any_fill.as_ptr() => *const usize
            )),
        ]
    };
    assert_eq!((codes(0), codes(current)), ([0; 5], [0; 5]));
    assert_eq!(codes(99), [INVALID_CONTEXT; 5]);
    // Handles of other objects are no contexts.
    assert!(!codes(graph).contains(&0));
    assert_eq!(no_context(|| (codes(current), codes(0))), ([0; 5], [INVALID_CONTEXT; 5]));
    discard(executable);
    destroy(graph);
}
