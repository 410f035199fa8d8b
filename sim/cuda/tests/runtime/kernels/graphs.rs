//! Registered kernels in graphs.

use super::{Binary, Dim3, KERNEL, PTX, address, words};
use crate::{call, good, with_each};

/// `cudaKernelNodeParams`.
#[repr(C)]
pub(super) struct Node {
    pub(super) kernel: usize,
    pub(super) grid: Dim3,
    pub(super) block: Dim3,
    pub(super) shared: u32,
    pub(super) arguments: *const *const u8,
    pub(super) extra: usize,
}

#[test]
fn graphs_are_captured_and_built() {
    with_each(|cuda| {
        let _binary = Binary::register(cuda, PTX, address(&KERNEL));
        let out = cuda.allocate(16);
        let (mut stream, mut graph, mut executable, mut node) = (0_usize, 0_usize, 0_usize, 0_usize);
        good!(cuda, cudaStreamCreateWithFlags(&raw mut stream => *mut usize, 1 => u32));
        good!(cuda, cudaStreamBeginCapture(stream => usize, 0 => i32));
        let amount = 20_u32;
        let arguments = [(&raw const out).cast::<u8>(), (&raw const amount).cast::<u8>()];
        good!(
            cuda,
            cudaLaunchKernel(address(&KERNEL) => usize, Dim3(1, 1, 1) => Dim3, Dim3(2, 1, 1) => Dim3,
                             arguments.as_ptr() => *const *const u8, 0 => usize, stream => usize)
        );
        // cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated
        good!(cuda, cudaStreamEndCapture(stream => usize, &raw mut graph => *mut usize));
        good!(cuda, cudaStreamBeginCapture(stream => usize, 0 => i32));
        assert_eq!(call!(cuda, cudaStreamSynchronize(stream => usize)), 900);
        assert_eq!(call!(cuda, cudaStreamEndCapture(stream => usize, &raw mut node => *mut usize)), 901);
        // One more kernel, behind the captured one.
        let (mut captured, mut count) = (0_usize, 1_usize);
        good!(
            cuda,
            cudaGraphGetNodes(graph => usize, &raw mut captured => *mut usize, &raw mut count => *mut usize)
        );
        let amount = 30_u32;
        let arguments = [(&raw const out).cast::<u8>(), (&raw const amount).cast::<u8>()];
        let parameters = Node {
            kernel: address(&KERNEL),
            grid: Dim3(1, 1, 1),
            block: Dim3(1, 1, 1),
            shared: 0,
            arguments: arguments.as_ptr(),
            extra: 0,
        };
        good!(
            cuda,
            cudaGraphAddKernelNode(&raw mut node => *mut usize, graph => usize, &raw const captured => *const usize,
                                   count => usize, &raw const parameters => *const Node)
        );
        good!(cuda, cudaGraphInstantiate(&raw mut executable => *mut usize, graph => usize, 0 => u64));
        good!(cuda, cudaGraphLaunch(executable => usize, stream => usize));
        good!(cuda, cudaStreamSynchronize(stream => usize));
        assert_eq!(words(cuda, out, 2), [30, 23]);
        good!(cuda, cudaGraphExecDestroy(executable => usize));
        good!(cuda, cudaGraphDestroy(graph => usize));
        good!(cuda, cudaStreamDestroy(stream => usize));
        cuda.free(out);
    });
}
