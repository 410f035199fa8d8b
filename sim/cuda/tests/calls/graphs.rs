//! Graphs that a program builds.

mod contexts;
mod random;
mod updates;

use std::sync::atomic::{AtomicU32, Ordering};

use support::codes::INVALID_VALUE;
use support::cuda::PrimaryContext;

use crate::{PUT, allocate, call, given, good, load, word};

const UPDATE_FAILURE: i32 = 910;

pub(crate) fn graph() -> usize {
    given(|out| call!(cuGraphCreate(out => *mut usize, 0 => u32)))
}

pub(crate) fn instantiate(graph: usize) -> usize {
    given(|out| call!(cuGraphInstantiateWithFlags(out => *mut usize, graph => usize, 0 => u64)))
}

pub(crate) fn launch(executable: usize) {
    good(call!(cuGraphLaunch(executable => usize, 0 => usize)));
    good(call!(cuCtxSynchronize()));
}

pub(crate) fn destroy(graph: usize) {
    good(call!(cuGraphDestroy(graph => usize)));
}

/// Destroys an executable graph.
pub(crate) fn discard(executable: usize) {
    good(call!(cuGraphExecDestroy(executable => usize)));
}

fn add_empty(graph: usize, after: &[usize]) -> Result<usize, i32> {
    let mut node = 0;
    let code = call!(cuGraphAddEmptyNode(
        &raw mut node => *mut usize, graph => usize, after.as_ptr() => *const usize, after.len() => usize
    ));
    if code == 0 { Ok(node) } else { Err(code) }
}

fn empty(graph: usize, after: &[usize]) -> usize {
    add_empty(graph, after).unwrap_or_else(|code| panic!("{code}"))
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Fill {
    start: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

fn add_fill(graph: usize, after: &[usize], fill: Fill) -> Result<usize, i32> {
    let mut node = 0;
    let code = call!(cuGraphAddMemsetNode(
        &raw mut node => *mut usize, graph => usize, after.as_ptr() => *const usize, after.len() => usize,
        &raw const fill => *const Fill, 0 => usize
    ));
    if code == 0 { Ok(node) } else { Err(code) }
}

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
struct Kernel {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    pointers: *const *const u8,
    extra: usize,
    kernel: usize,
    context: usize,
}

impl Kernel {
    fn new(function: usize, pointers: *const *const u8) -> Self {
        Kernel { function, grid: [1; 3], block: [1; 3], shared: 0, pointers, extra: 0, kernel: 0, context: 0 }
    }
}

/// `CUDA_MEMCPY3D`: rows of a width between two memories, each a type and an address.
fn copy(from: (usize, u64), to: (usize, u64), width: usize, height: usize) -> Vec<usize> {
    let side = |(kind, address): (usize, u64)| {
        let address = usize::try_from(address).unwrap_or_default();
        [0, 0, 0, 0, kind, address, address, 0, 0, 16, 0]
    };
    [&side(from)[..], &side(to), &[width, height, 1]].concat()
}

fn fill(start: u64, value: u32) -> Fill {
    Fill { start, pitch: 0, value, element: 4, width: 4, height: 1 }
}

extern "C" fn count(counter: *const AtomicU32) {
    // SAFETY: the test keeps the value until its graph is done.
    unsafe { &*counter }.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn nodes_run_in_the_order_of_their_edges() {
    let _context = PrimaryContext::retain_and_push(0);
    let [module, function] = load(PUT, c"put");
    let (a, b, graph) = (allocate(64), allocate(64), graph());
    let value = 7_u32;
    let arguments = [(&raw const a).cast::<u8>(), (&raw const value).cast::<u8>()];
    // The copy is added first, and comes last by its edges.
    let copy = copy((2, a), (2, b), 4, 1);
    let last: usize = given(|out| {
        call!(cuGraphAddMemcpyNode(
            out => *mut usize, graph => usize, 0 => usize, 0 => usize, copy.as_ptr() => *const usize, 0 => usize
        ))
    });
    let first = add_fill(graph, &[], fill(a, 1)).unwrap_or_else(|code| panic!("{code}"));
    let parameters = Kernel::new(function, arguments.as_ptr());
    let kernel: usize = given(|out| {
        call!(cuGraphAddKernelNode_v2(
            out => *mut usize, graph => usize, &raw const first => *const usize, 1 => usize,
            &raw const parameters => *const Kernel
        ))
    });
    good(call!(cuGraphAddDependencies(
        graph => usize, &raw const kernel => *const usize, &raw const last => *const usize, 1 => usize
    )));
    let counter = AtomicU32::new(0);
    let host: (extern "C" fn(*const AtomicU32), *const AtomicU32) = (count, &raw const counter);
    let call: usize = given(|out| {
        call!(cuGraphAddHostNode(
            out => *mut usize, graph => usize, &raw const last => *const usize, 1 => usize,
            &raw const host => *const (extern "C" fn(*const AtomicU32), *const AtomicU32)
        ))
    });
    let kinds: Vec<u32> = [kernel, last, first, call]
        .map(|node| given(|out| call!(cuGraphNodeGetType(node => usize, out => *mut u32))))
        .to_vec();
    assert_eq!(kinds, [0, 1, 2, 3]);
    let executable = instantiate(graph);
    launch(executable);
    assert_eq!((word(a), word(b), counter.load(Ordering::Relaxed)), (7, 7, 1));

    // The parameters were copied, and can be asked for.
    let mut back = Kernel::new(0, std::ptr::null());
    good(call!(cuGraphKernelNodeGetParams_v2(kernel => usize, &raw mut back => *mut Kernel)));
    // SAFETY: the node has two parameters.
    let second = unsafe { back.pointers.wrapping_add(1).read() }.cast::<u32>();
    // SAFETY: the second has 4 bytes.
    assert_eq!((back.function, unsafe { second.read_unaligned() }), (function, 7));

    // New parameters in the executable graph, then in the graph and by an update.
    let value = 8_u32;
    let arguments = [(&raw const a).cast::<u8>(), (&raw const value).cast::<u8>()];
    let parameters = Kernel::new(function, arguments.as_ptr());
    good(call!(cuGraphExecKernelNodeSetParams_v2(
        executable => usize, kernel => usize, &raw const parameters => *const Kernel
    )));
    launch(executable);
    assert_eq!(word(b), 8);
    let value = 9_u32;
    let arguments = [(&raw const a).cast::<u8>(), (&raw const value).cast::<u8>()];
    let parameters = Kernel::new(function, arguments.as_ptr());
    good(call!(cuGraphKernelNodeSetParams_v2(kernel => usize, &raw const parameters => *const Kernel)));
    launch(executable);
    assert_eq!(word(b), 8, "an executable graph is a copy");
    let mut result = [9_usize; 3];
    good(call!(cuGraphExecUpdate_v2(executable => usize, graph => usize, result.as_mut_ptr() => *mut usize)));
    launch(executable);
    assert_eq!(word(b), 9);
    // A disabled node is left out.
    good(call!(cuGraphNodeSetEnabled(executable => usize, kernel => usize, 0 => u32)));
    launch(executable);
    assert_eq!(word(b), 1);
    // Another topology is refused.
    empty(graph, &[]);
    let code = call!(cuGraphExecUpdate_v2(executable => usize, graph => usize, result.as_mut_ptr() => *mut usize));
    assert_eq!((code, result[0] & 0xffff_ffff), (UPDATE_FAILURE, 2));
    destroy(graph);
    launch(executable);
    discard(executable);
    good(call!(cuModuleUnload(module => usize)));
}

#[test]
fn clones_and_children_are_copies() {
    let _context = PrimaryContext::retain_and_push(0);
    let (a, graph) = (allocate(64), graph());
    let node = add_fill(graph, &[], fill(a, 1)).unwrap_or_else(|code| panic!("{code}"));
    let clone: usize = given(|out| call!(cuGraphClone(out => *mut usize, graph => usize)));
    let twin: usize = given(|out| call!(cuGraphNodeFindInClone(out => *mut usize, node => usize, clone => usize)));
    assert_ne!(twin, node);
    let parent: usize = self::graph();
    let _: usize = given(
        |out| call!(cuGraphAddChildGraphNode(out => *mut usize, parent => usize, 0 => usize, 0 => usize, clone => usize)),
    );
    let new = fill(a, 2);
    good(call!(cuGraphMemsetNodeSetParams(twin => usize, &raw const new => *const Fill)));
    let mut back = Fill::default();
    good(call!(cuGraphMemsetNodeGetParams(twin => usize, &raw mut back => *mut Fill)));
    assert_eq!(back, new);
    for (of, value) in [(graph, 1), (clone, 2), (parent, 1)] {
        let executable = instantiate(of);
        launch(executable);
        assert_eq!(word(a), value);
        discard(executable);
        destroy(of);
    }
}

#[test]
fn graphs_keep_objects_of_the_program_alive() {
    let _context = PrimaryContext::retain_and_push(0);
    let (graph, ends) = (graph(), AtomicU32::new(0));
    let destructor: extern "C" fn(*const AtomicU32) = count;
    let create = |out: *mut usize, count: u32, flags: u32| {
        call!(cuUserObjectCreate(
            out => *mut usize, &raw const ends => *const AtomicU32,
            destructor => extern "C" fn(*const AtomicU32), count => u32, flags => u32
        ))
    };
    let mut unused = 0;
    assert_eq!((create(&raw mut unused, 0, 1), create(&raw mut unused, 1, 0)), (INVALID_VALUE, INVALID_VALUE));
    let object: usize = given(|out| create(out, 2, 1));
    let retain = |count: u32, flags: u32| call!(cuGraphRetainUserObject(graph => usize, object => usize, count => u32, flags => u32));
    assert_eq!((retain(3, 1), retain(1, 2)), (INVALID_VALUE, INVALID_VALUE), "too many, no such flag");
    good(retain(1, 1));
    good(call!(cuUserObjectRelease(object => usize, 1 => u32)));
    assert_eq!(call!(cuUserObjectRelease(object => usize, 1 => u32)), INVALID_VALUE);
    let executable = instantiate(graph);
    destroy(graph);
    assert_eq!(ends.load(Ordering::Relaxed), 0, "the executable graph has it");
    launch(executable);
    discard(executable);
    good(call!(cuCtxSynchronize()));
    assert_eq!(ends.load(Ordering::Relaxed), 1);
}

#[test]
fn edges_are_listed_and_changed() {
    let _context = PrimaryContext::retain_and_push(0);
    let graph = graph();
    let first = empty(graph, &[]);
    let (left, right) = (empty(graph, &[first]), empty(graph, &[first]));
    let last = empty(graph, &[left, right]);
    let connect = |from: usize, to: usize| {
        call!(cuGraphAddDependencies(
            graph => usize, &raw const from => *const usize, &raw const to => *const usize, 1 => usize
        ))
    };
    let disconnect = |from: usize, to: usize| {
        call!(cuGraphRemoveDependencies(
            graph => usize, &raw const from => *const usize, &raw const to => *const usize, 1 => usize
        ))
    };
    assert_eq!(connect(last, first), INVALID_VALUE, "a circle");
    assert_eq!(connect(first, first), INVALID_VALUE, "a circle");
    assert_eq!(connect(first, left), INVALID_VALUE, "an edge that exists");
    assert_eq!(disconnect(left, right), INVALID_VALUE, "no edge");
    let edges =
        || -> usize { given(|out| call!(cuGraphGetEdges(graph => usize, 0 => usize, 0 => usize, out => *mut usize))) };
    assert_eq!(edges(), 4);
    let (mut from, mut to, mut room) = ([9_usize; 6], [9_usize; 6], 6_usize);
    good(call!(cuGraphGetEdges(
        graph => usize, from.as_mut_ptr() => *mut usize, to.as_mut_ptr() => *mut usize, &raw mut room => *mut usize
    )));
    assert_eq!((from, to, room), ([first, first, left, right, 0, 0], [left, right, last, last, 0, 0], 4));
    // Both ends or none, and no data without them.
    let mut data = [9_u64; 2];
    room = 1;
    let (null, from_one, to_one) = (std::ptr::null_mut(), from.as_mut_ptr(), to.as_mut_ptr());
    for (starts, ends) in [(from_one, null), (null, to_one)] {
        let code = call!(cuGraphGetEdges(
            graph => usize, starts => *mut usize, ends => *mut usize, &raw mut room => *mut usize
        ));
        assert_eq!((code, room), (INVALID_VALUE, 1));
    }
    let mut with_data = |starts: *mut usize, ends: *mut usize, room: &mut usize| {
        let code = call!(cuGraphGetEdges_v2(
            graph => usize, starts => *mut usize, ends => *mut usize, data.as_mut_ptr() => *mut u64,
            room => *mut usize
        ));
        (code, data)
    };
    assert_eq!(with_data(null, null, &mut room), (INVALID_VALUE, [9, 9]));
    assert_eq!((with_data(from_one, to_one, &mut room), room), ((0, [0, 9]), 1));
    let listing = [
        call!(cuGraphNodeGetDependencies_v2(
            last => usize, 0 => usize, data.as_mut_ptr() => *mut u64, &raw mut room => *mut usize
        )),
        call!(cuGraphNodeGetDependentNodes_v2(
            first => usize, 0 => usize, data.as_mut_ptr() => *mut u64, &raw mut room => *mut usize
        )),
    ];
    assert_eq!((listing, data), ([INVALID_VALUE; 2], [0, 9]));
    let mut roots = [0_usize; 2];
    room = 2;
    good(call!(cuGraphGetRootNodes(graph => usize, roots.as_mut_ptr() => *mut usize, &raw mut room => *mut usize)));
    assert_eq!((roots, room), ([first, 0], 1));
    let mut behind = [0_usize; 1];
    room = 1;
    good(call!(cuGraphNodeGetDependentNodes(
        first => usize, behind.as_mut_ptr() => *mut usize, &raw mut room => *mut usize
    )));
    assert_eq!((behind, room), ([left], 1), "as many as there is room for");
    good(disconnect(first, left));
    good(call!(cuGraphDestroyNode(right => usize)));
    assert_eq!(edges(), 1);
    assert_eq!(call!(cuGraphDestroyNode(right => usize)), INVALID_VALUE);
    assert_eq!(add_empty(graph, &[right]), Err(INVALID_VALUE));
    assert_eq!(add_empty(graph, &[left, left]), Err(INVALID_VALUE));
    destroy(graph);
    assert_eq!(call!(cuGraphDestroy(graph => usize)), INVALID_VALUE);
    assert_eq!(call!(cuGraphNodeGetType(left => usize, &raw mut room => *mut usize)), INVALID_VALUE);
}

#[test]
fn events_can_be_nodes() {
    let _context = PrimaryContext::retain_and_push(0);
    let (graph, event): (usize, usize) = (graph(), given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32))));
    let record: usize = given(
        |out| call!(cuGraphAddEventRecordNode(out => *mut usize, graph => usize, 0 => usize, 0 => usize, event => usize)),
    );
    let _: usize = given(|out| {
        call!(cuGraphAddEventWaitNode(
            out => *mut usize, graph => usize, &raw const record => *const usize, 1 => usize, event => usize
        ))
    });
    let kept: usize = given(|out| call!(cuGraphEventRecordNodeGetEvent(record => usize, out => *mut usize)));
    assert_eq!(kept, event);
    let executable = instantiate(graph);
    launch(executable);
    good(call!(cuEventQuery(event => usize)));
    good(call!(cuEventSynchronize(event => usize)));
    let mut node = 0_usize;
    let unknown = call!(cuGraphAddEventRecordNode(
        &raw mut node => *mut usize, graph => usize, 0 => usize, 0 => usize, graph => usize
    ));
    assert_ne!(unknown, 0);
    discard(executable);
    destroy(graph);
}

#[test]
fn bad_nodes_are_refused() {
    let _context = PrimaryContext::retain_and_push(0);
    let (a, graph) = (allocate(64), graph());
    for bad in [
        Fill { element: 3, ..fill(a, 0) },
        Fill { width: 17, ..fill(a, 0) },
        Fill { width: 0, ..fill(a, 0) },
        Fill { start: 16, ..fill(a, 0) },
        Fill { height: 2, ..fill(a, 0) },
    ] {
        assert_eq!(add_fill(graph, &[], bad), Err(INVALID_VALUE), "{bad:?}");
    }
    assert_eq!(add_fill(1, &[], fill(a, 0)), Err(INVALID_VALUE), "no graph");
    let node = empty(graph, &[]);
    let new = fill(a, 0);
    assert_eq!(call!(cuGraphMemsetNodeSetParams(node => usize, &raw const new => *const Fill)), INVALID_VALUE);
    let mut out = 0_usize;
    for (flags, code) in [(16_u64, INVALID_VALUE), (4, 801), (4 | 1, INVALID_VALUE)] {
        let made = call!(cuGraphInstantiateWithFlags(&raw mut out => *mut usize, graph => usize, flags => u64));
        assert_eq!(made, code);
    }
    assert_eq!(call!(cuGraphCreate(&raw mut out => *mut usize, 1 => u32)), INVALID_VALUE);
    assert_eq!(call!(cuGraphLaunch(graph => usize, 0 => usize)), INVALID_VALUE);
    destroy(graph);
}
