//! Nodes of graphs that are added, read and changed by their parameters.

use std::sync::atomic::{AtomicU32, Ordering};

use super::graphs::Node;
use super::{ADD, Binary, Dim3, KERNEL, PTX, VARIABLE, address, words};
use crate::{DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, INVALID_VALUE, Runtime, call, good, with_each};

/// `cudaPitchedPtr`.
#[repr(C)]
struct Pitched(usize, usize, usize, usize);

/// `cudaMemcpy3DParms`.
#[repr(C)]
struct Box3D {
    source_array: usize,
    source_position: [usize; 3],
    source: Pitched,
    target_array: usize,
    target_position: [usize; 3],
    target: Pitched,
    extent: [usize; 3],
    kind: i32,
}

/// `cudaGraphNodeParams` of a kernel.
#[repr(C)]
struct AnyNode {
    kind: u32,
    reserved: [u32; 3],
    kernel: Node,
    // Parameters of other kinds of nodes, which are not read.
    rest: [u64; 22],
    reserved_too: u64,
}

fn row(source: usize, target: usize, size: usize, kind: i32) -> Box3D {
    Box3D {
        source_array: 0,
        source_position: [0; 3],
        source: Pitched(source, size, size, 1),
        target_array: 0,
        target_position: [0; 3],
        target: Pitched(target, size, size, 1),
        extent: [size, 1, 1],
        kind,
    }
}

fn kernel(arguments: &[*const u8; 2]) -> Node {
    let (grid, block) = (Dim3(1, 1, 1), Dim3(2, 1, 1));
    Node { kernel: address(&KERNEL), grid, block, shared: 0, arguments: arguments.as_ptr(), extra: 0 }
}

fn run(cuda: Runtime, executable: usize) {
    good!(cuda, cudaGraphLaunch(executable => usize, 0 => usize));
    good!(cuda, cudaDeviceSynchronize());
}

#[test]
fn copies_are_nodes_that_can_be_changed() {
    with_each(|cuda| {
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        let (first, second) = (cuda.allocate(8), cuda.allocate(8));
        let given = [5_u32, 6];
        let (mut read, mut step) = ([0_u32; 2], 0_u32);
        let (mut graph, mut executable) = (0_usize, 0_usize);
        let [mut to_symbol, mut from_symbol, mut whole, mut back] = [0_usize; 4];
        good!(cuda, cudaGraphCreate(&raw mut graph => *mut usize, 0 => u32));
        good!(
            cuda,
            cudaGraphAddMemcpyNodeToSymbol(&raw mut to_symbol => *mut usize, graph => usize, 0 => usize, 0 => usize,
                                           address(&VARIABLE) => usize, given.as_ptr() => *const u32, 4 => usize,
                                           0 => usize, HOST_TO_DEVICE => i32)
        );
        good!(
            cuda,
            cudaGraphAddMemcpyNodeFromSymbol(&raw mut from_symbol => *mut usize, graph => usize,
                                             &raw const to_symbol => *const usize, 1 => usize,
                                             &raw mut step => *mut u32, address(&VARIABLE) => usize, 4 => usize,
                                             0 => usize, DEVICE_TO_HOST => i32)
        );
        let copy = row(first, second, 8, DEVICE_TO_DEVICE);
        good!(
            cuda,
            cudaGraphAddMemcpyNode(&raw mut whole => *mut usize, graph => usize, 0 => usize, 0 => usize,
                                   &raw const copy => *const Box3D)
        );
        good!(
            cuda,
            cudaGraphAddMemcpyNode1D(&raw mut back => *mut usize, graph => usize, &raw const whole => *const usize,
                                     1 => usize, read.as_mut_ptr() => *mut u32, second => usize, 8 => usize,
                                     DEVICE_TO_HOST => i32)
        );
        good!(cuda, cudaGraphInstantiate(&raw mut executable => *mut usize, graph => usize, 0 => u64));
        cuda.write(first, &[1, 0, 0, 0, 2, 0, 0, 0]);
        run(cuda, executable);
        assert_eq!((read, step), ([1, 2], 5));
        // The other way round, four bytes, and the other value.
        let copy = row(second, first, 4, DEVICE_TO_DEVICE);
        good!(
            cuda,
            cudaGraphExecMemcpyNodeSetParams(executable => usize, whole => usize, &raw const copy => *const Box3D)
        );
        good!(
            cuda,
            cudaGraphExecMemcpyNodeSetParams1D(executable => usize, back => usize, read.as_mut_ptr() => *mut u32,
                                               first => usize, 4 => usize, DEVICE_TO_HOST => i32)
        );
        good!(
            cuda,
            cudaGraphExecMemcpyNodeSetParamsToSymbol(executable => usize, to_symbol => usize,
                                                     address(&VARIABLE) => usize, &raw const given[1] => *const u32,
                                                     4 => usize, 0 => usize, HOST_TO_DEVICE => i32)
        );
        cuda.write(second, &[9, 0, 0, 0]);
        run(cuda, executable);
        assert_eq!((read, step), ([9, 2], 6));
        // Beyond the variable, and in the wrong direction.
        for (size, kind, code) in [(8, DEVICE_TO_HOST, INVALID_VALUE), (4, HOST_TO_DEVICE, 21)] {
            assert_eq!(
                call!(
                    cuda,
                    cudaGraphMemcpyNodeSetParamsFromSymbol(from_symbol => usize, read.as_mut_ptr() => *mut u32,
                                                           address(&VARIABLE) => usize, size => usize, 0 => usize,
                                                           kind => i32)
                ),
                code
            );
        }
        good!(cuda, cudaGraphExecDestroy(executable => usize));
        good!(cuda, cudaGraphDestroy(graph => usize));
        cuda.free(first);
        cuda.free(second);
    });
}

#[test]
fn a_kernel_is_a_node_of_any_kind_and_is_read_as_the_programs_function() {
    with_each(|cuda| {
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        let (out, amount) = (cuda.allocate(8), 30_u32);
        let arguments = [(&raw const out).cast::<u8>(), (&raw const amount).cast::<u8>()];
        let mut any = AnyNode { kind: 0, reserved: [0; 3], kernel: kernel(&arguments), rest: [7; 22], reserved_too: 0 };
        let (mut graph, mut executable, mut node) = (0_usize, 0_usize, 0_usize);
        good!(cuda, cudaGraphCreate(&raw mut graph => *mut usize, 0 => u32));
        if cuda.major == 12 {
            good!(
                cuda,
                cudaGraphAddNode(&raw mut node => *mut usize, graph => usize, 0 => usize, 0 => usize,
                                 &raw const any => *const AnyNode)
            );
        } else {
            good!(
                cuda,
                cudaGraphAddNode(&raw mut node => *mut usize, graph => usize, 0 => usize, 0 => usize, 0 => usize,
                                 &raw const any => *const AnyNode)
            );
        }
        good!(cuda, cudaGraphInstantiate(&raw mut executable => *mut usize, graph => usize, 0 => u64));
        run(cuda, executable);
        assert_eq!(words(cuda, out, 2), [30, 33]);
        let mut read = kernel(&arguments);
        read.kernel = 0;
        good!(cuda, cudaGraphKernelNodeGetParams(node => usize, &raw mut read => *mut Node));
        assert_eq!((read.kernel, read.block.0), (address(&KERNEL), 2));
        good!(
            cuda,
            cudaGraphExecKernelNodeSetParams(executable => usize, node => usize, &raw const read => *const Node)
        );
        any.kernel.block.0 = 1;
        good!(
            cuda,
            cudaGraphExecNodeSetParams(executable => usize, node => usize, &raw const any => *const AnyNode)
        );
        cuda.write(out, &[0; 8]);
        run(cuda, executable);
        assert_eq!(words(cuda, out, 2), [30, 0]);
        good!(cuda, cudaGraphExecDestroy(executable => usize));
        good!(cuda, cudaGraphDestroy(graph => usize));
        cuda.free(out);
    });
}

extern "C" fn count(argument: *const AtomicU32) {
    // SAFETY: the test keeps the value until the graph is destroyed.
    unsafe { &*argument }.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn graphs_keep_objects_of_the_program() {
    with_each(|cuda| {
        let destroyed = AtomicU32::new(0);
        let destroy: extern "C" fn(*const AtomicU32) = count;
        let (mut graph, mut object) = (0_usize, 0_usize);
        good!(cuda, cudaGraphCreate(&raw mut graph => *mut usize, 0 => u32));
        good!(
            cuda,
            cudaUserObjectCreate(&raw mut object => *mut usize, &raw const destroyed => *const AtomicU32,
                                 destroy => extern "C" fn(*const AtomicU32), 1 => u32, 1 => u32)
        );
        good!(cuda, cudaUserObjectRetain(object => usize, 1 => u32));
        good!(cuda, cudaUserObjectRelease(object => usize, 1 => u32));
        // cudaGraphUserObjectMove: the graph has the program's reference.
        good!(cuda, cudaGraphRetainUserObject(graph => usize, object => usize, 1 => u32, 1 => u32));
        assert_eq!(destroyed.load(Ordering::Relaxed), 0);
        good!(cuda, cudaGraphDestroy(graph => usize));
        assert_eq!(destroyed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_node_of_a_kernel_that_the_program_has_no_function_for_takes_its_parameters_back() {
    with_each(|cuda| {
        let (mut library, mut function) = (0_usize, 0_usize);
        good!(
            cuda,
            cudaLibraryLoadData(&raw mut library => *mut usize, PTX.as_ptr() => *const u8, 0 => usize, 0 => usize,
                                0 => u32, 0 => usize, 0 => usize, 0 => u32)
        );
        good!(
            cuda,
            cudaLibraryGetKernel(&raw mut function => *mut usize, library => usize, ADD.as_ptr() => *const u8)
        );
        let (out, amount) = (cuda.allocate(8), 4_u32);
        let arguments = [(&raw const out).cast::<u8>(), (&raw const amount).cast::<u8>()];
        let (mut graph, mut node, mut executable) = (0_usize, 0_usize, 0_usize);
        good!(cuda, cudaGraphCreate(&raw mut graph => *mut usize, 0 => u32));
        let mut parameters = Node { kernel: function, ..kernel(&arguments) };
        good!(
            cuda,
            cudaGraphAddKernelNode(&raw mut node => *mut usize, graph => usize, 0 => usize, 0 => usize,
                                   &raw const parameters => *const Node)
        );
        good!(cuda, cudaGraphKernelNodeGetParams(node => usize, &raw mut parameters => *mut Node));
        parameters.block = Dim3(1, 1, 1);
        good!(cuda, cudaGraphKernelNodeSetParams(node => usize, &raw const parameters => *const Node));
        good!(cuda, cudaGraphInstantiate(&raw mut executable => *mut usize, graph => usize, 0 => u64));
        good!(cuda, cudaMemset(out => usize, 0 => i32, 8 => usize));
        run(cuda, executable);
        assert_eq!(words(cuda, out, 2), [4, 0], "one thread");
        good!(cuda, cudaGraphExecDestroy(executable => usize));
        good!(cuda, cudaGraphDestroy(graph => usize));
        good!(cuda, cudaLibraryUnload(library => usize));
        cuda.free(out);
    });
}
