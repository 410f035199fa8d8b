//! [`Allocator`]: gpu-allocator over blocks that CUDA imports.
#![expect(unsafe_code, reason = "creates what the caller describes")]

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ash::vk;
use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme, AllocatorCreateDesc};
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorDebugSettings, AllocatorReport, MemoryLocation};

use super::Handles;
use super::resources::{Buffer, Image, Resource};
use super::suballocator::{Place, Refusal, Suballocator, key_of, no_report};
use crate::allocation::{Allocation, LINE, ResourceBlock};
use crate::device::gpu::VulkanGpu;
use crate::driver::context::Context;
use crate::driver::fork;
use crate::lock::Lock;
use crate::memory::{Home, Inner};
use crate::retire::RetireQueue;
use crate::{Error, Memory, MemoryKind, Result, Vkgdr};

/// Options of [`Allocator::with_options`](super::Allocator::with_options): gpu-allocator's own.
#[derive(Debug, Clone, Copy, Default)]
#[must_use]
pub struct AllocatorOptions {
    sizes: AllocationSizes,
    device_address: bool,
}

impl AllocatorOptions {
    /// The sizes of the blocks that buffers and images share: 256 MiB, and 64 MiB of memory that the CPU sees, by default.
    pub const fn sizes(mut self, sizes: AllocationSizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// Whether buffers may have device addresses in shaders (`VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT`).
    ///
    /// # Safety
    ///
    /// The allocator's device must have been made with the feature `bufferDeviceAddress`, which that of this crate is not.
    pub const unsafe fn buffer_device_address(mut self, enabled: bool) -> Self {
        self.device_address = enabled;
        self
    }
}

/// Allocates memory for Vulkan's buffers and images that CUDA and the CPU see as well.
///
/// [gpu-allocator](https://docs.rs/gpu-allocator) places them: many share a block. For a block, one `VkDeviceMemory` is
/// allocated, exported, and imported into CUDA in the context that the allocator was made in. Locations, sizes of blocks,
/// dedicated allocations and reports are gpu-allocator's.
///
/// | location | memory |
/// |---|---|
/// | `CpuToGpu` | the GPU's, which the CPU writes through the BAR; the system's without room for a block, and for an H100's buffers |
/// | `GpuToCpu` | the system's, which the CPU caches |
/// | `GpuOnly` | the GPU's; the CPU sees it where all of the GPU's memory can be mapped and Vulkan lists that type first |
///
/// Where CUDA refuses to share memory of a type, this and later allocations take another type that fits the location.
///
/// An allocation keeps its block alive, also when the allocator is gone. Memory returns to the allocator once CUDA has
/// finished with it, as its [`DropPolicy`](crate::DropPolicy) says. The caller waits for Vulkan's queues. gpu-allocator
/// keeps one empty block of each memory type. The last clone of the allocator gives them back when it is dropped, and
/// logs what is still in use. Drop it before a context of `cuCtxCreate` is destroyed.
///
/// Cloning is cheap and shares the allocator. All methods may be called from any thread. In a forked child, those that return a
/// `Result` return [`Error::Forked`].
///
/// # Examples
///
/// ```no_run
/// use vkgdr::ash::vk;
/// use vkgdr::vulkan::{Allocator, MemoryLocation};
/// use vkgdr::{OpenFlags, Vkgdr};
///
/// let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
/// let allocator = Allocator::new(&gpu)?;
/// let info = vk::BufferCreateInfo::default().size(4096).usage(vk::BufferUsageFlags::STORAGE_BUFFER);
/// // SAFETY: a valid description, and no queue uses the buffer when it is dropped.
/// let buffer = unsafe { allocator.buffer(&info, MemoryLocation::CpuToGpu) }?;
/// buffer.write(0, &[1_u32, 2, 3])?;
/// buffer.flush(..)?;
/// println!("{:?} for Vulkan, {:#x} for CUDA", buffer.handle(), buffer.device_ptr());
/// # Ok::<(), vkgdr::Error>(())
/// ```
#[derive(Clone)]
pub struct Allocator {
    open: Arc<Open>,
}

/// Shared by all clones of an allocator; dropping it closes the allocator.
struct Open(Arc<AllocatorInner>);

impl Drop for Open {
    /// Gives all blocks back once nothing is in use; until then gpu-allocator keeps an empty one of each memory type.
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        let (idle, report) = self.0.state.lock().close();
        drop(idle);
        let AllocatorReport { allocations, total_allocated_bytes: bytes, .. } = report;
        if !allocations.is_empty() {
            let count = allocations.len();
            log::info!("{count} allocations with {bytes} bytes outlive their vulkan::Allocator: {allocations:?}");
        }
    }
}

impl Allocator {
    /// An allocator without blocks: the first allocation makes one. Its memory belongs to the handle's primary context if the
    /// handle retains that, otherwise to the current one.
    ///
    /// # Errors
    ///
    /// The error of starting Vulkan on a handle without it, and [`Error::Forked`]. `CUDA_ERROR_INVALID_CONTEXT` when a
    /// context must be current and none is, [`Error::WrongDevice`] when it is another device's.
    pub fn new(owner: &Vkgdr) -> Result<Self> {
        Self::with_options(owner, AllocatorOptions::default())
    }

    /// [`new`](Self::new) with options.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn with_options(owner: &Vkgdr, options: AllocatorOptions) -> Result<Self> {
        fork::check()?;
        let gpu = owner.vulkan()?.clone();
        let context = owner.allocation_context()?;
        let Handles { instance, device, physical_device, .. } = gpu.device().handles();
        let mut debug_settings = AllocatorDebugSettings::default();
        // What outlives the allocator stays valid, and is logged when the allocator is dropped.
        debug_settings.log_leaks_on_shutdown = false;
        let state = Suballocator::new(AllocatorCreateDesc {
            instance,
            device,
            physical_device,
            debug_settings,
            buffer_device_address: options.device_address,
            allocation_sizes: options.sizes,
        });
        let state = Lock::new(state.map_err(suballocation)?);
        let is_shared = |index: &u32| gpu.type_at(*index, owner.flags()).is_some();
        let types = (0..u32::BITS).filter(is_shared).fold(0, |types, index| types | 1 << index);
        let (owner, growth) = (owner.clone(), Lock::default());
        let inner = AllocatorInner { owner, gpu, context, types, growth, state };
        Ok(Self { open: Arc::new(Open(Arc::new(inner))) })
    }

    fn inner(&self) -> &Arc<AllocatorInner> {
        &self.open.0
    }

    /// Creates a buffer and binds it to memory. `VkExternalMemoryBufferCreateInfo` is added to its chain. It is a dedicated
    /// allocation where the driver prefers that.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::NoSuitableMemoryType`], [`Error::Suballocation`], [`Error::Forked`], and
    /// [`Error::Allocation`] when memory is exhausted or the size exceeds the heap. Also the errors of `vkCreateBuffer`,
    /// `vkBindBufferMemory`, of allocating, exporting and importing a block, and of entering the allocator's context.
    ///
    /// # Safety
    ///
    /// `info` must be valid for `vkCreateBuffer` on the handle's device, without `VkExternalMemoryBufferCreateInfo` in its
    /// chain and without sparse binding. When the buffer is dropped, no submitted work of a Vulkan queue may use it.
    pub unsafe fn buffer(&self, info: &vk::BufferCreateInfo<'_>, location: MemoryLocation) -> Result<Buffer> {
        let len = checked_len(info.size, location)?;
        // SAFETY: by this method's contract.
        let buffer = unsafe { Resource::buffer(&self.inner().gpu, info) }?;
        let memory = self.bound(&buffer, "buffer", location, Some(len))?;
        Ok(Buffer::new(buffer, memory, self.inner().clone()))
    }

    /// Creates an image and binds it to memory. `VkExternalMemoryImageCreateInfo` is added to its chain.
    ///
    /// With linear tiling the CPU and CUDA can use the pixels, in rows as [`Image::layout`] says. With optimal tiling, the bytes
    /// are in an order of the driver's own.
    ///
    /// Its first layout is `VK_IMAGE_LAYOUT_UNDEFINED`, the only one for images whose memory is shared. Change it to
    /// the general layout by a command before the CPU or CUDA writes pixels: the change may discard them.
    ///
    /// # Errors
    ///
    /// Those of [`buffer`](Self::buffer), with Vulkan's functions for images, and `VK_ERROR_FORMAT_NOT_SUPPORTED` of
    /// `vkGetPhysicalDeviceImageFormatProperties2` for images whose memory cannot be shared.
    ///
    /// # Safety
    ///
    /// `info` must be valid for `vkCreateImage` on the handle's device, without `VkExternalMemoryImageCreateInfo` in its chain,
    /// and with `VK_IMAGE_LAYOUT_UNDEFINED` (VUID-VkImageCreateInfo-pNext-01443). It must be without sparse binding, disjoint
    /// planes (VUID-VkImageMemoryRequirementsInfo2-image-01589) and DRM format modifiers
    /// (VUID-VkPhysicalDeviceImageFormatInfo2-tiling-02249). When the image is dropped, no submitted work of a Vulkan
    /// queue may use it.
    pub unsafe fn image(&self, info: &vk::ImageCreateInfo<'_>, location: MemoryLocation) -> Result<Image> {
        // SAFETY: by this method's contract.
        let image = unsafe { Resource::image(&self.inner().gpu, info) }?;
        let memory = self.bound(&image, "image", location, None)?;
        Ok(Image::new(image, info, memory, self.inner().clone()))
    }

    /// Memory for a buffer or image of the caller's own, as gpu-allocator describes it: bind it to
    /// [`vulkan_memory`](crate::Memory::vulkan_memory).
    ///
    /// Memory that is not dedicated starts at, and is padded to, whole cache lines and atoms of flushes.
    ///
    /// # Errors
    ///
    /// Those of [`buffer`](Self::buffer), except those of `vkCreateBuffer` and `vkBindBufferMemory`.
    /// [`Error::Suballocation`] for an alignment that is not a power of two.
    ///
    /// # Safety
    ///
    /// The scheme's buffer or image must belong to the handle's device, require what the description says, and have been
    /// created for export as `VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT`. When the memory is dropped, no submitted work of a
    /// Vulkan queue may use it.
    pub unsafe fn allocate(&self, desc: &AllocationCreateDesc<'_>) -> Result<Memory> {
        let len = checked_len(desc.requirements.size, desc.location)?;
        self.inner().allocate(desc, len)
    }

    /// Memory for a buffer or image, bound to it: dedicated where Vulkan prefers that. `len` is the required size unless the caller
    /// knows a smaller one.
    fn bound(&self, resource: &Resource, name: &str, location: MemoryLocation, len: Option<usize>) -> Result<Memory> {
        let (inner, found) = (self.inner(), resource.requirements());
        let (requirements, linear) = (found.memory, resource.is_linear);
        let len = len.unwrap_or(usize::try_from(requirements.size).expect("usize has 64 bits"));
        let wants_dedicated = found.prefers_dedicated || resource.dedicated_only;
        let scheme = if wants_dedicated { resource.scheme() } else { AllocationScheme::GpuAllocatorManaged };
        let desc = AllocationCreateDesc { name, requirements, location, linear, allocation_scheme: scheme };
        let memory = inner.allocate(&desc, len)?;
        resource.bind(&memory)?;
        Ok(memory)
    }

    /// gpu-allocator's report: all blocks and what is allocated in them, with names and sizes. `{:?}` prints it.
    #[must_use]
    pub fn report(&self) -> AllocatorReport {
        // In a forked child, a thread of the parent may hold the lock for ever.
        if fork::is_forked() { no_report() } else { self.inner().state.lock().report() }
    }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("report", &self.report()).finish_non_exhaustive()
    }
}

/// The state that an allocator's clones and memory share.
pub(super) struct AllocatorInner {
    owner: Vkgdr,
    gpu: Arc<VulkanGpu>,
    context: Context,
    /// One bit for each memory type that CUDA and the CPU can share.
    types: u32,
    /// Taken by the thread that makes a block, while others that want one wait for it.
    growth: Lock<()>,
    state: Lock<Suballocator>,
}

impl AllocatorInner {
    /// Memory of `len` bytes with these requirements.
    fn allocate(self: &Arc<Self>, desc: &AllocationCreateDesc<'_>, len: usize) -> Result<Memory> {
        fork::check()?;
        let (given, mut desc) = (desc, self.adapted(desc));
        let mut types = desc.requirements.memory_type_bits;
        // The memory types of which no block can be made, those of them that CUDA refused, and the first such error.
        let (mut failed, mut refused, mut first) = (0, 0, None);
        let (mut turn, mut offer, deadline) = (None, None, self.owner.shortage_deadline());
        loop {
            desc.requirements.memory_type_bits = types & !failed;
            let (allocated, freed) = self.state.lock().allocate(&desc, offer.take());
            drop(freed);
            let Refusal { error, request, has_room } = match allocated {
                Ok(place) => return Ok(self.memory_at(place, len, refused)),
                Err(refusal) => refusal,
            };
            let Some(request) = request else {
                if first.is_none() && self.try_incoherent(&mut desc, &error) {
                    types = desc.requirements.memory_type_bits;
                    continue;
                }
                return Err(first.unwrap_or_else(|| self.explain(given, &desc, error)));
            };
            if turn.is_none() {
                turn = Some(self.growth.try_lock_for_a_second());
                // Another thread may have made a block that serves this one, too, and the device have finished with memory.
                self.owner.gpu().retired().poll(RetireQueue::SCANNED_PER_POLL, None);
                continue;
            }
            // Where another memory type has room, nothing is waited for.
            let until = if has_room { Instant::now() } else { deadline };
            match self.make_block(&request, until) {
                Ok(block) => offer = Some((request, block)),
                Err(error) if error.concerns_the_kind() || error.is_exhaustion() => {
                    failed |= 1 << request.type_index;
                    refused |= u32::from(error.is_refusal()) << request.type_index;
                    first.get_or_insert(error);
                }
                // Other memory types would meet it as well.
                Err(error) => return Err(error),
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

    /// Makes a block, for which it waits until `deadline` when memory is short.
    fn make_block(self: &Arc<Self>, request: &ResourceBlock, deadline: Instant) -> Result<Arc<Allocation>> {
        let allocate = || Allocation::allocate_resources(&self.owner, self.context, request, deadline);
        let mut block = self.context.run(allocate)?;
        let allocator = Arc::downgrade(self);
        block.list(Box::new(move |address| {
            // Not under the lock: if the memory is dropped, it takes it.
            let found = allocator.upgrade()?.state.lock().find(address);
            found.map(Memory::of)
        }));
        Ok(Arc::new(block))
    }

    /// The memory at an offset of a block. `refused` are the types that CUDA refused before.
    fn memory_at(self: &Arc<Self>, (block, offset): Place, len: usize, refused: u32) -> Memory {
        let new = self.gpu.refuse_types(refused);
        if new != 0 {
            log::info!("CUDA refuses to share Vulkan's memory of types {new:#b}: others are used from now on");
        }
        let key = key_of(&block, offset);
        let offset = usize::try_from(offset).expect("usize has 64 bits");
        let inner = Arc::new(Inner::new(block, (offset, len), Some(self.clone()), None));
        self.state.lock().set_memory(key, &inner);
        Memory::of(inner)
    }

    /// gpu-allocator's error for what was asked of it, `desc`, and of this allocator, where no driver was called.
    fn explain(
        &self,
        given: &AllocationCreateDesc<'_>,
        desc: &AllocationCreateDesc<'_>,
        error: AllocationError,
    ) -> Error {
        let (kind, types) = (kind_of(given.location), desc.requirements.memory_type_bits);
        match error {
            AllocationError::NoCompatibleMemoryTypeFound => Error::NoSuitableMemoryType {
                device: self.gpu.device().physical.name.clone(),
                kind,
                wanted: format!(
                    "{:?} among the types {:#b} that the resource allows",
                    given.location, given.requirements.memory_type_bits
                ),
            },
            AllocationError::OutOfMemory => {
                let allowed = (0..u32::BITS).filter(|index| types & (1 << index) != 0);
                let found = allowed.filter_map(|index| self.gpu.type_at(index, self.owner.flags()));
                // What gpu-allocator requires of the location.
                let wanted = match desc.location {
                    MemoryLocation::Unknown => vk::MemoryPropertyFlags::empty(),
                    MemoryLocation::GpuOnly => vk::MemoryPropertyFlags::DEVICE_LOCAL,
                    MemoryLocation::CpuToGpu | MemoryLocation::GpuToCpu => vk::MemoryPropertyFlags::HOST_VISIBLE,
                };
                let fitting = found.filter(|found| found.info.flags.contains(wanted));
                let (asked, code) = (desc.requirements.size, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
                let heap = fitting.map(|found| found.info.heap_size).max().unwrap_or(0);
                Error::shortage(None, code, kind, asked, heap)
            }
            error => suballocation(error),
        }
    }

    pub(super) fn rename(&self, memory: &Memory, name: &str) -> Result<()> {
        fork::check()?;
        self.state.lock().rename(key_of(memory.allocation(), memory.offset() as u64), name).map_err(suballocation)
    }
}

impl Home for AllocatorInner {
    fn take_back(self: Arc<Self>, memory: &mut Inner, block: Arc<Allocation>) -> Result<()> {
        let (context, queue, key) = (self.context, self.owner.gpu().retired(), key_of(&block, memory.offset as u64));
        let free = move || {
            let (blocks, freed) = self.state.lock().free(key);
            // The state or `blocks` has another reference.
            drop(block);
            Allocation::free_all(blocks).and(freed.map_err(suballocation))
        };
        memory.take_uses().release_after(queue, context, free)
    }
}

/// The kind of memory that a location asks for.
const fn kind_of(location: MemoryLocation) -> MemoryKind {
    match location {
        MemoryLocation::CpuToGpu => MemoryKind::Mapped,
        MemoryLocation::GpuToCpu => MemoryKind::Host,
        MemoryLocation::GpuOnly | MemoryLocation::Unknown => MemoryKind::Device,
    }
}

/// The bytes of a size, which must not be 0.
fn checked_len(size: u64, location: MemoryLocation) -> Result<usize> {
    let len = usize::try_from(size).expect("usize has 64 bits");
    if len > 0 { Ok(len) } else { Err(Error::ZeroSize { kind: kind_of(location) }) }
}

fn suballocation(error: AllocationError) -> Error {
    Error::Suballocation { reason: error.to_string() }
}
