//! [`AllocatorInner`]: the state that an allocator's clones and memory share.
//!
//! It has gpu-allocator's state, makes the blocks in it, and takes memory back.
//!
//! No driver is called under the lock of that state: see [`super::stub_device`].
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::{Arc, Weak};

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;
use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme, Allocator as Suballocator, AllocatorCreateDesc};
use gpu_allocator::{AllocationError, AllocatorDebugSettings, AllocatorReport, MemoryLocation};

use super::allocator_state::{AllocatorState, Attempt, Suballocation};
use super::options::AllocatorOptions;
use super::stub_device::{BlockRequest, Offer, stub_device};
use crate::allocation::{LINE, ResourceBlock};
use crate::device::gpu::VulkanRef;
use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::{Lock, SingleFlight};
use crate::memory::{Block, Freed, Home, Inner, Part, Slot};
use crate::report::report;
use crate::{Error, Memory, MemoryKind, Result, Vkgdr};

pub(super) struct AllocatorInner {
    pub(super) owner: Vkgdr,
    pub(super) gpu: VulkanRef,
    context: Context,
    /// One bit for each memory type that CUDA and the CPU can share.
    pub(super) types: u32,
    /// Taken by the thread that makes a block, while others that want one wait for it.
    growth: SingleFlight,
    state: Lock<AllocatorState>,
}

/// The refusals during one allocation.
#[derive(Default)]
struct Refusals {
    failed: Vec<BlockRequest>,
    /// One bit for each memory type that CUDA refused.
    types: u32,
    /// The first refusal or shortage.
    error: Option<Error>,
}

impl AllocatorInner {
    pub(super) fn new(owner: &Vkgdr, options: AllocatorOptions) -> Result<Self> {
        fork::check()?;
        let gpu = owner.vulkan()?.clone();
        let context = owner.allocation_context()?;
        let handles = gpu.device().handles();
        let mut debug_settings = AllocatorDebugSettings::default();
        // What outlives the allocator stays valid, and is logged when the allocator is dropped.
        debug_settings.log_leaks_on_shutdown = false;
        let suballocator = Suballocator::new(&AllocatorCreateDesc {
            instance: handles.instance,
            device: stub_device(&handles.device),
            physical_device: handles.physical_device,
            debug_settings,
            buffer_device_address: options.device_address,
            allocation_sizes: options.sizes,
        });
        let suballocator = Some(suballocator.map_err(|error| suballocation(&error))?);
        let is_shared = |index: &u32| gpu.type_at(*index, owner.flags()).is_some();
        let types = (0..u32::BITS).filter(is_shared).fold(0, |types, index| types | 1 << index);
        let state = Lock::new(AllocatorState { suballocator, ..AllocatorState::default() });
        Ok(Self { owner: owner.clone(), gpu, context, types, growth: SingleFlight::default(), state })
    }

    /// Memory of `len` bytes with these requirements. Where CUDA refuses memory in a way that may mean that it wants a dedicated
    /// allocation, and one `can_be_dedicated`, that refusal is returned at once.
    pub(super) fn allocate(
        self: &Arc<Self>,
        desc: &AllocationCreateDesc<'_>,
        len: usize,
        can_be_dedicated: bool,
    ) -> Result<Memory> {
        fork::check()?;
        let mut desc = self.adapted(desc);
        let mut types = desc.requirements.memory_type_bits;
        let mut refusals = Refusals::default();
        let (mut offer, mut turn) = (None, None);
        loop {
            desc.requirements.memory_type_bits = types & !refusals.types;
            let Attempt { suballocation, request, freed } =
                self.state.lock().attempt(&desc, offer.take(), &refusals.failed);
            if let Err(error) = Block::release_all(freed) {
                report!(Warn, "releasing memory: {error}");
            }
            let error = match suballocation {
                Ok(suballocation) => return Ok(self.allocated(suballocation, len, refusals.types)),
                Err(error) => error,
            };
            let Some(request) = request else {
                if refusals.error.is_none() && self.try_incoherent(&mut desc, &error) {
                    types = desc.requirements.memory_type_bits;
                    continue;
                }
                return Err(refusals.error.unwrap_or_else(|| self.explain(&desc, &error)));
            };
            if turn.is_none() {
                turn = Some(self.growth.begin());
                // Another thread may have made a block that serves this one, too, and the device have finished with memory.
                self.owner.gpu().retired().poll(None);
                continue;
            }
            match self.make_block(request) {
                Ok(made) => offer = Some(made),
                Err(error) if can_be_dedicated && self.may_want_dedicated(&error) => return Err(error),
                Err(error) => refusals.add(request, error)?,
            }
        }
    }

    /// Requirements that this crate can meet: types that are shared, and whole atoms and lines, unless the memory is that of one
    /// buffer or image.
    fn adapted<'a>(&self, desc: &AllocationCreateDesc<'a>) -> AllocationCreateDesc<'a> {
        let mut desc = desc.clone();
        let requirements = &mut desc.requirements;
        requirements.memory_type_bits &= self.types & !self.gpu.refused_types();
        // gpu-allocator refuses other alignments.
        let is_valid = requirements.alignment.is_power_of_two();
        if is_valid && desc.allocation_scheme == AllocationScheme::GpuAllocatorManaged {
            let unit = self.gpu.device().physical.atom.max(LINE as u64);
            requirements.alignment = requirements.alignment.max(unit);
            requirements.size = requirements.size.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        }
        desc
    }

    /// If gpu-allocator finds no type, since it wants coherent memory for the CPU, allows this crate's choice. Returns
    /// true if `desc` was changed.
    fn try_incoherent(&self, desc: &mut AllocationCreateDesc<'_>, error: &AllocationError) -> bool {
        let kind = kind_of(desc.location);
        let chosen = self.owner.vulkan_memory_type(kind).map(|chosen| chosen.info.index);
        let bits = chosen.map_or(0, |index| desc.requirements.memory_type_bits & 1 << index);
        let is_missing = matches!(error, AllocationError::NoCompatibleMemoryTypeFound) && kind.has_host_view();
        if is_missing && bits != 0 {
            (desc.location, desc.requirements.memory_type_bits) = (MemoryLocation::Unknown, bits);
        }
        is_missing && bits != 0
    }

    fn make_block(self: &Arc<Self>, request: BlockRequest) -> Result<(Offer, Arc<Block>)> {
        let BlockRequest { type_index, size, dedicated_to, flags } = request;
        let found = self.gpu.type_at(type_index, self.owner.flags());
        let (kind, memory_type) = found.ok_or_else(|| internal(format!("there is no memory type {type_index}")))?;
        let resources = ResourceBlock { kind, memory_type, size, dedicated_to, flags };
        let block = Block::allocate_resources(&self.owner, &resources, self.context)?;
        let memory = block.allocation().device_memory();
        let memory = memory.ok_or_else(|| internal("the block is not Vulkan's".to_owned()))?;
        let host_ptr = block.allocation().host_ptr().map_or(std::ptr::null_mut(), std::ptr::NonNull::as_ptr);
        let found: Weak<Self> = Arc::downgrade(self);
        block.allocation().set_home(found);
        Ok((Offer { request, memory, host_ptr }, Arc::new(block)))
    }

    /// The memory of a suballocation. `refused` are the types that CUDA refused before.
    fn allocated(self: &Arc<Self>, suballocation: Suballocation, len: usize, refused: u32) -> Memory {
        let new = self.gpu.refuse_types(refused);
        if new != 0 {
            report!(Info, "CUDA refuses to share Vulkan's memory of types {new:#b}: others are used from now on");
        }
        let Suballocation { block, slot, offset } = suballocation;
        let address = block.allocation().device_ptr() + offset;
        let offset = usize::try_from(offset).expect("usize has 64 bits");
        let part = Part { home: self.clone(), slot: Some(Slot { span: 0, index: slot }) };
        let inner = Arc::new(Inner::new(block, (offset, len), Some(part)));
        self.state.lock().memories.insert(address, Arc::downgrade(&inner));
        Memory::new(inner)
    }

    /// Whether CUDA's refusal may mean that it wants dedicated allocations.
    pub(super) fn may_want_dedicated(&self, error: &Error) -> bool {
        error.asks_for_dedicated() || (error.is_refusal() && self.gpu.device().sharing().dedicated_only)
    }

    /// gpu-allocator's error, where no driver was called.
    fn explain(&self, desc: &AllocationCreateDesc<'_>, error: &AllocationError) -> Error {
        let kind = kind_of(desc.location);
        match error {
            AllocationError::NoCompatibleMemoryTypeFound => Error::NoSuitableMemoryType {
                device: self.gpu.device().physical.name.clone(),
                kind,
                wanted: format!(
                    "{:?} among the types {:#b} that the resource allows",
                    desc.location, desc.requirements.memory_type_bits
                ),
            },
            AllocationError::OutOfMemory => {
                let types = (0..u32::BITS).filter(|index| desc.requirements.memory_type_bits & (1 << index) != 0);
                let heaps = types.filter_map(|index| self.gpu.type_at(index, self.owner.flags()));
                Error::Allocation {
                    operation: None,
                    code: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
                    kind,
                    asked: desc.requirements.size,
                    heap: heaps.map(|(_, found)| found.info.heap_size).max().unwrap_or(0),
                    free: None,
                    others: Vec::new(),
                    still_used: 0,
                }
            }
            error => suballocation(error),
        }
    }

    pub(super) const fn context(&self) -> Context {
        self.context
    }

    pub(super) fn rename(&self, memory: &Memory, name: &str) -> Result<()> {
        fork::check()?;
        let slot = memory.slot().expect("memory of an allocator has a slot").index;
        let mut state = self.state.lock();
        let AllocatorState { suballocator: Some(suballocator), allocations, .. } = &mut *state else { return Ok(()) };
        let Some(allocation) = allocations.get_mut(slot) else { return Ok(()) };
        suballocator.rename_allocation(allocation, name).map_err(|error| suballocation(&error))
    }

    /// gpu-allocator's report; an empty one in a forked child.
    pub(super) fn report(&self) -> AllocatorReport {
        // In a forked child, a thread of the parent may hold the lock for ever.
        let report = || self.state.lock().suballocator.as_ref().map(Suballocator::generate_report);
        let report = if fork::is_forked() { None } else { report() };
        report.unwrap_or_else(|| AllocatorReport {
            allocations: Vec::new(),
            blocks: Vec::new(),
            total_allocated_bytes: 0,
            total_capacity_bytes: 0,
        })
    }

    /// Gives every block back that is not in use, now and from now on.
    pub(super) fn close(&self) {
        let idle = {
            let mut state = self.state.lock();
            state.is_closed = true;
            state.take_idle()
        };
        if let Err(error) = Block::release_all(idle) {
            report!(Warn, "releasing memory: {error}");
        }
        let AllocatorReport { allocations, total_allocated_bytes, .. } = self.report();
        if !allocations.is_empty() {
            let names: Vec<_> = allocations.iter().map(|allocation| format!("{allocation:?}")).collect();
            let count = allocations.len();
            report!(
                Info,
                "{count} allocations with {total_allocated_bytes} bytes outlive their vulkan::Allocator: {}",
                names.join(", ")
            );
        }
    }

    /// Ends an allocation that the device has finished with.
    fn release_slot(&self, slot: u32, block: Arc<Block>) -> Result<()> {
        let (blocks, freed) = self.state.lock().free(slot);
        // The state or `blocks` has another reference.
        drop(block);
        Block::release_all(blocks).and(freed.map_err(|error| suballocation(&error)))
    }
}

impl Home for AllocatorInner {
    fn take_back(self: Arc<Self>, freed: Freed) -> Result<()> {
        let Freed { block, slot, address, uses, .. } = freed;
        let slot = slot.expect("memory of an allocator has a slot").index;
        self.state.lock().memories.remove(&address);
        let (owner, context) = (self.owner.clone(), self.context);
        uses.release_after(&owner, context, move || self.release_slot(slot, block))
    }

    fn find(self: Arc<Self>, address: CUdeviceptr) -> Option<Memory> {
        let state = self.state.lock();
        let (_, memory) = state.memories.range(..=address).next_back()?;
        let found = memory.upgrade()?;
        // Not under the lock: if the memory is dropped, it takes it.
        drop(state);
        Some(Memory::new(found))
    }
}

impl Refusals {
    /// Records that a block cannot be made. An error that other memory types would meet as well is returned.
    fn add(&mut self, request: BlockRequest, error: Error) -> Result<()> {
        if !error.concerns_the_kind() && !error.is_exhaustion() {
            return Err(error);
        }
        if error.is_refusal() {
            self.types |= 1 << request.type_index;
        }
        self.failed.push(request);
        self.error.get_or_insert(error);
        Ok(())
    }
}

/// The kind of memory that a location asks for.
pub(super) const fn kind_of(location: MemoryLocation) -> MemoryKind {
    match location {
        MemoryLocation::CpuToGpu => MemoryKind::Mapped,
        MemoryLocation::GpuToCpu => MemoryKind::Host,
        MemoryLocation::GpuOnly | MemoryLocation::Unknown => MemoryKind::Device,
    }
}

fn suballocation(error: &AllocationError) -> Error {
    internal(error.to_string())
}

fn internal(reason: String) -> Error {
    Error::Suballocation { reason }
}

impl fmt::Debug for AllocatorInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatorInner").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}
