//! The world of a sequence: contexts, streams, handles, memory and pools, and the model of the bytes.
//!
//! A world belongs to one thread. It may share handles, pools and memory with others through [`Shared`].

mod device;
mod host;
mod item;
mod life;
mod pools;
mod queue;
mod raw;
mod rings;
mod semaphores;
mod vulkan;

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard};

use support::Result;
use support::cuda::{Context, PrimaryContext};
use support::step::{Step, What};
use vkgdr::vulkan::Allocator;
use vkgdr::{MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

use crate::Tally;
use device::Streams;
use item::{Item, Site, lock};
use pools::PoolSlot;
use queue::Queue;
use raw::RawItem;
use semaphores::SemaphoreSlot;
use vulkan::AllocatorSlot;

thread_local! {
    /// Memory that goes with its thread.
    static KEPT: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
}

/// A pool that threads share.
fn pool(gpu: &Vkgdr, kind: MemoryKind) -> vkgdr::Result<Pool> {
    Pool::new(gpu, PoolOptions::new(kind).block_len(256 << 10).largest_chunk(64 << 10))
}

/// The objects shared by the worlds of several threads.
#[derive(Debug)]
pub(crate) struct Shared {
    gpu: Vkgdr,
    /// None where the GPU has no kind of memory.
    pools: Mutex<Vec<Pool>>,
    /// None without Vulkan.
    allocator: Option<Allocator>,
    /// Memory passed from one world to another.
    exchange: Mutex<Vec<Item>>,
}

impl Shared {
    /// Opens the GPU and makes an allocator, and a pool of the first supported kind.
    pub(crate) fn open() -> Result<Self> {
        let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
        let kind = MemoryKind::ALL.into_iter().find(|&kind| gpu.supports(kind));
        let pools = kind.into_iter().flat_map(|kind| [kind; 3]);
        let pools = pools.map(|kind| pool(&gpu, kind)).collect::<vkgdr::Result<_>>()?;
        let allocator = match vulkan::allocator(&gpu) {
            Ok(allocator) => Some(allocator),
            Err(error) => vulkan::expect_no_vulkan(&gpu, error).map(|()| None)?,
        };
        Ok(Self { gpu, pools: Mutex::new(pools), allocator, exchange: Mutex::default() })
    }
}

/// See the module.
pub(crate) struct World {
    // Drop order: memory before the objects it depends on.
    items: Vec<Item>,
    allocators: Vec<AllocatorSlot>,
    semaphores: Vec<SemaphoreSlot>,
    queue: Option<Queue>,
    raws: Vec<RawItem>,
    pools: Vec<PoolSlot>,
    handles: Vec<Vkgdr>,
    streams: Streams,
    shared: Arc<Shared>,
    tally: Tally,
    /// Handles that the steps have closed. What is left of one ends in the world's context, see `Vkgdr::prepare_copies`.
    closed: Vec<Vkgdr>,
    context: Context,
    // Last: `Primary` orders its own fields.
    primary: device::Primary,
}

impl World {
    /// An empty world with its own context, which is current on this thread.
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self> {
        let primary = device::Primary::new()?;
        let context = Context::create(0);
        let streams = Streams::new(&primary)?;
        Ok(Self {
            items: Vec::new(),
            allocators: Vec::new(),
            semaphores: Vec::new(),
            queue: None,
            raws: Vec::new(),
            pools: Vec::new(),
            handles: vec![Vkgdr::open(0, OpenFlags::empty())?, shared.gpu.clone()],
            streams,
            shared: Arc::clone(shared),
            tally: Tally::default(),
            closed: Vec::new(),
            context,
            primary,
        })
    }

    /// Carries out a step if its operands exist.
    pub(crate) fn apply(&mut self, step: Step) -> Result {
        let done = match step.what {
            What::Open | What::Close | What::Ask | What::Collect | What::SetThresholds => self.apply_to_handles(step),
            What::NewPool | What::ClosePool | What::PoolAllocate => self.apply_to_pools(step),
            What::PoolTrim | What::PoolFreeHeld | What::PoolStopHolding => self.apply_to_pools(step),
            What::ReplacePool => self.replace_pool(step),
            What::NewAllocator | What::DropAllocator => self.apply_to_allocators(step),
            What::AllocateBuffer | What::AllocateImage => self.apply_to_allocators(step),
            What::NewSemaphore | What::Signal | What::DropSemaphore => self.apply_to_semaphores(step),
            What::QueueFill => self.queue_fill(step),
            What::QueueCopy => self.queue_copy(step),
            What::RunRing => self.run_ring(step),
            What::AllocateRaw | What::UseRaw | What::FreeRaw => self.apply_to_raw(step),
            What::Allocate => self.allocate(step),
            What::Take => self.take(),
            What::Delay | What::Order | What::WaitForStream => self.apply_to_streams(step),
            _ if self.items.is_empty() => Ok(false),
            _ => self.apply_to_item(step, usize::from(step.first) % self.items.len()),
        };
        if done? {
            *self.tally.steps.entry(step.what).or_default() += 1;
        }
        Ok(())
    }

    fn apply_to_item(&mut self, step: Step, index: usize) -> Result<bool> {
        match step.what {
            What::Import => self.import(step, index),
            What::Slice => self.slice(step, index),
            What::Bind => self.bind(step, index),
            What::Unbind => self.unbind(index),
            What::ReleaseImmediately => {
                self.release_immediately(index);
                Ok(true)
            }
            What::Free => self.free(step, index),
            What::Give | What::Keep => self.give(step, index),
            What::Write => self.write(step, index),
            What::WriteMany => self.write_many(step, index),
            What::Fill => self.fill(step, index),
            What::Read => self.read(step, index),
            What::Map => self.map(step, index),
            What::Sync => self.sync(step, index),
            What::BeyondTheEnd => self.beyond_the_end(index),
            What::Compare => self.compare(step.span.within(self.items[index].len()), index).map(|()| true),
            What::Upload => self.upload(step, index),
            What::Download => self.download(step, index),
            What::DeviceFill => self.device_fill(step, index),
            What::DeviceCopy => self.device_copy(step, index),
            What::DeviceRows => self.device_rows(step, index),
            What::DriverFill => self.driver_fill(step, index),
            other => Err(format!("{other:?} is not a step on memory").into()),
        }
    }

    /// Runs `work` with a site's context current.
    fn inside<T>(&self, site: Site, work: impl FnOnce() -> T) -> T {
        match site {
            Site::Plain => self.context.with_current(work),
            Site::Primary => {
                let _current = PrimaryContext::retain_and_push(0);
                work()
            }
        }
    }

    /// Checks all memory, frees it in either order, then everything else. Returns the counts.
    pub(crate) fn end(mut self) -> Result<Tally> {
        for index in 0..self.items.len() {
            self.compare(0..self.items[index].len(), index)?;
        }
        if self.tally.total().is_multiple_of(2) {
            self.items.reverse();
        }
        for item in std::mem::take(&mut self.items) {
            self.free_item(item, self.tally.total())?;
        }
        self.free_all_raw()?;
        self.check_pools()?;
        self.pools.clear();
        self.wait_for_all()?;
        self.semaphores.clear();
        self.end_allocators()?;
        let handles = (std::mem::take(&mut self.handles), std::mem::take(&mut self.closed));
        self.context.with_current(|| drop(handles));
        // Before the contexts end, which deferred frees name. The steps may have closed all handles of this GPU.
        crate::open()?.collect();
        Ok(std::mem::take(&mut self.tally))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // After a failed step: buffers must outlive the device's writes to them.
        let _ = self.wait_for_queue();
        let _ = self.wait_for_all();
        let _ = self.free_all_raw();
    }
}

impl Shared {
    fn pools(&self) -> MutexGuard<'_, Vec<Pool>> {
        lock(&self.pools)
    }

    /// Drops memory that no world has taken, after which the pools can give all back.
    pub(crate) fn clear(&self) {
        lock(&self.exchange).clear();
        for pool in self.pools().drain(..) {
            pool.release_unused();
            assert_eq!((pool.used_chunks(), pool.active_bytes(), pool.managed_bytes()), (0, 0, 0), "{pool:?}");
        }
    }
}
