//! Checks a launch and queues its work.

use std::slice;
use std::sync::Arc;

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::{fault, occupancy, parameters};

use crate::boundary::say;
use crate::code::{
    CONTEXT_IS_DESTROYED, COOPERATIVE_LAUNCH_TOO_LARGE, Code, INVALID_HANDLE, INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES,
    NOT_SUPPORTED, OUT_OF_MEMORY, Outcome,
};
use crate::context::{self, Context};
use crate::device;
use crate::ffi::In;
use crate::graph::{Difference, Kind, Operation, Work, capture};
use crate::heap::Block;
use crate::layout::KernelParameters;
use crate::memory::bytes;
use crate::memory::kernel_heap::KernelHeap;
use crate::memory::table::{insert_variables, remove_variables};
use crate::memory::view::View;
use crate::memory::weak;
use crate::memory::window::Window;
use crate::module::function::{Function, MAX_THREADS, most_threads};
use crate::module::library;
use crate::owner::Owner;
use crate::queue::{LEAST_PRIORITY, NON_BLOCKING, Placement, Stream};
use crate::stream::table as streams;

// Device attributes.
const MAX_BLOCK: [Attribute; 3] = [
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
];
const MAX_GRID: [Attribute; 3] = [
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
    Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
];

/// The shape of a launch.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) dynamic_shared: u32,
}

fn product(sizes: [u32; 3]) -> u64 {
    sizes.iter().fold(1, |product, size| product.saturating_mul(u64::from(*size)))
}

fn fits(sizes: [u32; 3], limits: [Attribute; 3]) -> bool {
    sizes.iter().zip(limits).all(|(size, limit)| (1..=device::limit(limit)).contains(&u64::from(*size)))
}

impl Shape {
    pub(super) fn threads(&self) -> u64 {
        product(self.block)
    }

    fn check(&self, function: &Function) -> Outcome {
        let kernel = &function.kernel;
        let threads = self.threads();
        if !fits(self.grid, MAX_GRID) || !fits(self.block, MAX_BLOCK) || threads > device::limit(MAX_THREADS) {
            return Err(INVALID_VALUE);
        }
        if kernel.required_block().is_some_and(|required| required != self.block) {
            return Err(LAUNCH_OUT_OF_RESOURCES);
        }
        // The code that numba-cuda's TestLaunchBounds, which runs on GPUs, expects.
        if threads > most_threads(kernel) {
            return Err(INVALID_VALUE);
        }
        // What is usual, or what the program asked for: more than 48 KiB, or less.
        if u64::from(self.dynamic_shared) > function.settings.get().max_dynamic_shared {
            return Err(INVALID_VALUE);
        }
        Ok(())
    }

    // All blocks of a cooperative launch must run at once: on the device that is simulated, and here.
    fn check_cooperative(&self, function: &Function) -> Outcome {
        let blocks = product(self.grid);
        if blocks > occupancy::resident_blocks(function, self.threads(), u64::from(self.dynamic_shared)) {
            return Err(COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        let most = ptx::max_cooperative_blocks(&function.kernel, self.threads(), self.dynamic_shared);
        if blocks <= most {
            return Ok(());
        }
        // Programs take the number from the occupancy, and rarely print more than the error.
        say(format_args!(
            "a cooperative launch of {blocks} blocks of kernel {} is not simulated: there is memory for {most} at once: \
             CUDA_ERROR_NOT_SUPPORTED",
            function.kernel.name()
        ));
        Err(NOT_SUPPORTED)
    }
}

/// The barrier of a cooperative launch, in device memory: `grid_workspace` in the `driver_abi.h` of CUDA's cooperative
/// groups, a word with its size and a counter, which starts as 0.
struct Workspace {
    windows: Vec<Window>,
}

impl Workspace {
    const BYTES: usize = 8;

    fn new(owner: Owner) -> Result<Workspace, Code> {
        let block = Block::host(Self::BYTES).ok_or(OUT_OF_MEMORY)?;
        bytes::store(block.address, 4, Self::BYTES as u64);
        Ok(Workspace {
            windows: insert_variables(block, Self::BYTES, slice::from_ref(&(0..Self::BYTES)), false, owner),
        })
    }

    fn address(&self) -> u64 {
        self.windows.first().map_or(0, |window| window.address as u64)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        remove_variables(&self.windows);
    }
}

// The heap of the context that a launch runs in. A context that was just destroyed has none, and runs nothing.
fn kernel_heap(owner: Owner) -> Arc<KernelHeap> {
    context::of(owner).map(|context| context.kernel_heap()).unwrap_or_default()
}

/// Queues a launch. The handle of a library's kernel denotes its function in the stream's context. `parameters` is called after
/// all other checks.
pub(super) fn launch(
    function: usize,
    shape: Shape,
    cooperative: bool,
    stream: usize,
    parameters: impl FnOnce(&ptx::Kernel) -> Result<Vec<u8>, Code>,
) -> Outcome {
    let stream = streams::capturable(stream)?;
    let context = context::of(stream.owner).ok_or(CONTEXT_IS_DESTROYED)?;
    let function = library::function_in(function, &context)?;
    if stream.owner != function.owner {
        return Err(INVALID_HANDLE);
    }
    let launch = Prepared::new(&function, shape, cooperative, parameters)?;
    if capture::add(&stream, || Operation::new(launch.clone()))? {
        return Ok(());
    }
    launch.submit(&stream)
}

/// Refuses a kernel that needs what is not supported, with a line on stderr.
fn check_supported(kernel: &ptx::Kernel) -> Outcome {
    let Some(error) = kernel.unsupported() else { return Ok(()) };
    let name = kernel.name();
    simcommon::say!("simcuda: kernel {name} cannot be launched: {error}: CUDA_ERROR_NOT_SUPPORTED");
    Err(NOT_SUPPORTED)
}

/// A launch that was checked, with its parameters.
#[derive(Clone)]
pub(crate) struct Prepared {
    function: Arc<Function>,
    shape: Shape,
    cooperative: bool,
    parameters: Arc<[u8]>,
    /// The address of each parameter, for programs that ask.
    pointers: Arc<[usize]>,
}

impl Prepared {
    fn new(
        function: &Arc<Function>,
        shape: Shape,
        cooperative: bool,
        parameters: impl FnOnce(&ptx::Kernel) -> Result<Vec<u8>, Code>,
    ) -> Result<Prepared, Code> {
        check_supported(&function.kernel)?;
        shape.check(function)?;
        if cooperative {
            shape.check_cooperative(function)?;
        }
        let parameters: Arc<[u8]> = parameters(&function.kernel)?.into();
        let start = parameters.as_ptr().expose_provenance();
        let pointers = function.kernel.parameters().iter().map(|parameter| start + parameter.offset).collect();
        Ok(Prepared { function: Arc::clone(function), shape, cooperative, parameters, pointers })
    }

    /// Reads and checks the parameters of a node. Whether the launch is cooperative is an attribute of the node, which stays
    /// that of `replaced`, what the node did before.
    pub(crate) fn from_parameters(node: &KernelParameters, replaced: Option<&Prepared>) -> Result<Prepared, Code> {
        let KernelParameters { function, kernel, grid, block, dynamic_shared, pointers, extra, context } = *node;
        // As documented, the kernel and its context matter only where there is no function.
        let function = match function {
            0 => library::kernel(kernel)?.function(&*context::given(context)?)?,
            _ => library::function_in(function, &*context::usable()?)?,
        };
        let shape = Shape { grid, block, dynamic_shared };
        let cooperative = replaced.is_some_and(|replaced| replaced.cooperative);
        Prepared::new(&function, shape, cooperative, |kernel| parameters::read(kernel, pointers, extra))
    }

    /// The context that the kernel runs in.
    fn context(&self) -> Result<Arc<Context>, Code> {
        let context = context::of(self.function.owner).ok_or(CONTEXT_IS_DESTROYED)?;
        context.health.check()?;
        Ok(context)
    }

    /// Queues the launch on a stream of the kernel's context.
    fn queue(&self, stream: &Arc<Stream>) -> Outcome {
        let barrier = self.cooperative.then(|| Workspace::new(stream.owner)).transpose()?;
        submit(&self.function, self.shape, stream, self.parameters.to_vec(), barrier)
    }

    /// Queues the launch on `own`, a stream of the kernel's context, between the work of another context's stream so far and
    /// its later work. Closes `own` afterwards.
    fn queue_between(&self, stream: &Arc<Stream>, own: &Arc<Stream>) -> Outcome {
        let before = stream.submit_after(Vec::new(), Placement::Anywhere, Box::new(|_| ()))?;
        own.submit_after(vec![before], Placement::Anywhere, Box::new(|_| ()))?;
        self.queue(own)?;
        let after = own.submit_after(Vec::new(), Placement::Anywhere, Box::new(|_| ()))?;
        let closed = Arc::clone(own);
        stream.submit_after(vec![after], Placement::Anywhere, Box::new(move |_| closed.close()))?;
        Ok(())
    }

    pub(crate) fn parameters(&self) -> KernelParameters {
        let Shape { grid, block, dynamic_shared } = self.shape;
        let pointers = self.pointers.first().map_or(In::NULL, In::from_ref).cast();
        let (function, context) = (self.function.handle, self.function.owner.context);
        KernelParameters { function, grid, block, dynamic_shared, pointers, extra: In::NULL, kernel: 0, context }
    }
}

impl Work for Prepared {
    fn kind(&self) -> Kind {
        Kind::Kernel
    }

    fn check(&self) -> Outcome {
        self.context().map(drop)
    }

    /// A node of a graph runs in the kernel's context, which need not be that of the stream that the graph is launched on.
    fn submit(&self, stream: &Arc<Stream>) -> Outcome {
        if stream.owner == self.function.owner {
            return self.queue(stream);
        }
        let own = self.context()?.streams.create(NON_BLOCKING, LEAST_PRIORITY);
        let outcome = self.queue_between(stream, &own);
        if outcome.is_err() {
            own.close();
        }
        outcome
    }

    fn difference(&self, new: &Operation) -> Option<Difference> {
        let new = new.get::<Prepared>()?;
        if new.function.owner != self.function.owner {
            return Some(Difference::Function);
        }
        (new.cooperative != self.cooperative).then_some(Difference::Attributes)
    }
}

fn submit(
    function: &Arc<Function>,
    shape: Shape,
    stream: &Arc<Stream>,
    parameters: Vec<u8>,
    barrier: Option<Workspace>,
) -> Outcome {
    let Shape { grid, block, dynamic_shared } = shape;
    let (kernel, workspace) = (Arc::clone(&function.kernel), barrier.as_ref().map_or(0, Workspace::address));
    let launch = ptx::Launch { kernel, grid, block, dynamic_shared, workspace, parameters };
    // The module's variables live until the last launch that may use them, as does memory freed while it is queued.
    let (function, health) = (Arc::clone(function), Arc::clone(&stream.health));
    let view = View::new(Arc::clone(&health), kernel_heap(stream.owner), stream.owner);
    let work = move || {
        let outcome = weak::run(&launch, &view);
        drop((function, view, barrier));
        outcome.or_else(|fault| fault::report(&fault, &health))
    };
    stream.submit(Placement::Launch, work)?;
    Ok(())
}
