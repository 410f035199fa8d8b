//! [`Allocator`]: gpu-allocator over blocks that CUDA imports.
#![expect(unsafe_code, reason = "creates what the caller describes")]

use std::fmt;
use std::sync::Arc;

use ash::vk;
use cudarc::driver::sys::CUcontext;
use gpu_allocator::vulkan::{AllocationCreateDesc, AllocationScheme};
use gpu_allocator::{AllocatorReport, MemoryLocation};

use super::buffer::{Buffer, OwnedBuffer};
use super::image::{Image, OwnedImage};
use super::inner::{AllocatorInner, kind_of};
use super::options::AllocatorOptions;
use crate::driver::fork;
use crate::driver::vulkan::Requirements;
use crate::{Error, Memory, Result, Vkgdr};

/// Allocates memory for Vulkan's buffers and images that CUDA and the CPU see as well.
///
/// [gpu-allocator](https://docs.rs/gpu-allocator) places them: many share a block, for which one `VkDeviceMemory` is allocated,
/// exported, and imported into CUDA in the context that the allocator was made in. Locations, sizes of blocks, dedicated
/// allocations and reports are gpu-allocator's.
///
/// | location | memory |
/// |---|---|
/// | `CpuToGpu` | the GPU's, which the CPU writes through the BAR; the system's where the GPU has none or no more |
/// | `GpuToCpu` | the system's, which the CPU caches |
/// | `GpuOnly` | the GPU's; the CPU sees it where all of the GPU's memory can be mapped and Vulkan lists that type first |
///
/// Where CUDA refuses to share memory of a type, this and later allocations take another type that fits the location.
///
/// An allocation keeps its block alive, also when the allocator is gone. Memory returns to the allocator once CUDA has
/// finished with it, as its [`DropPolicy`](crate::DropPolicy) says. The caller waits for Vulkan's queues. gpu-allocator
/// keeps one empty block of each memory type. The last clone of the allocator gives them back when it is dropped, and
/// logs what is still in use.
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
    fn drop(&mut self) {
        if !fork::is_forked() {
            self.0.close();
        }
    }
}

impl Allocator {
    /// An allocator without blocks: the first allocation makes one. Its memory belongs to the handle's primary context if the
    /// handle retains that, otherwise to the current one.
    ///
    /// # Errors
    ///
    /// The error of starting Vulkan on a handle without it, `CUDA_ERROR_INVALID_CONTEXT` when a context must be current and
    /// none is, [`Error::WrongDevice`] when it is another device's, and [`Error::Forked`].
    pub fn new(owner: &Vkgdr) -> Result<Self> {
        Self::with_options(owner, AllocatorOptions::default())
    }

    /// [`new`](Self::new) with options.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn with_options(owner: &Vkgdr, options: AllocatorOptions) -> Result<Self> {
        Ok(Self { open: Arc::new(Open(Arc::new(AllocatorInner::new(owner, options)?))) })
    }

    fn inner(&self) -> &Arc<AllocatorInner> {
        &self.open.0
    }

    /// Creates a buffer and binds it to memory. `VkExternalMemoryBufferCreateInfo` is added to its chain. It is a dedicated
    /// allocation where the driver prefers that or CUDA demands it.
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`], [`Error::NoSuitableMemoryType`], [`Error::Allocation`] when memory is exhausted or the size exceeds
    /// the heap, [`Error::Suballocation`], [`Error::Forked`], and the errors of `vkCreateBuffer`, `vkBindBufferMemory`, of
    /// allocating, exporting and importing a block, and of entering the allocator's context.
    ///
    /// # Safety
    ///
    /// `info` must be valid for `vkCreateBuffer` on the handle's device, without `VkExternalMemoryBufferCreateInfo` in its
    /// chain and without sparse binding. When the buffer is dropped, no submitted work of a Vulkan queue may use it.
    pub unsafe fn buffer(&self, info: &vk::BufferCreateInfo<'_>, location: MemoryLocation) -> Result<Buffer> {
        let len = usize::try_from(info.size).expect("usize has 64 bits");
        if len == 0 {
            return Err(Error::ZeroSize { kind: kind_of(location) });
        }
        // SAFETY: by this method's contract.
        let buffer = unsafe { OwnedBuffer::create(&self.inner().gpu, info) }?;
        let requirements = buffer.requirements();
        let dedicated = self.dedicates(&requirements) || self.inner().gpu.device().sharing().dedicated_only;
        let scheme = AllocationScheme::DedicatedBuffer(buffer.handle());
        let desc = describe("buffer", &requirements, location, true);
        let memory = self.allocate_for(desc, len, dedicated, scheme)?;
        buffer.bind(&memory)?;
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
    /// without sparse binding, disjoint planes (VUID-VkImageMemoryRequirementsInfo2-image-01589) and DRM format modifiers
    /// (VUID-VkPhysicalDeviceImageFormatInfo2-tiling-02249), and with `VK_IMAGE_LAYOUT_UNDEFINED`
    /// (VUID-VkImageCreateInfo-pNext-01443). When the image is dropped, no submitted work of a Vulkan queue may use it.
    pub unsafe fn image(&self, info: &vk::ImageCreateInfo<'_>, location: MemoryLocation) -> Result<Image> {
        // SAFETY: by this method's contract.
        let dedicated_only = unsafe { self.inner().gpu.device().image_is_dedicated_only(info) }?;
        // SAFETY: by this method's contract.
        let image = unsafe { OwnedImage::create(&self.inner().gpu, info) }?;
        let requirements = image.requirements();
        let len = usize::try_from(requirements.memory.size).expect("usize has 64 bits");
        let dedicated = self.dedicates(&requirements) || dedicated_only;
        let scheme = AllocationScheme::DedicatedImage(image.handle());
        let desc = describe("image", &requirements, location, image.is_linear());
        let memory = self.allocate_for(desc, len, dedicated, scheme)?;
        image.bind(&memory)?;
        Ok(Image::new(image, memory, self.inner().clone()))
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
        let size = desc.requirements.size;
        let len = usize::try_from(size).expect("usize has 64 bits");
        if len == 0 {
            return Err(Error::ZeroSize { kind: kind_of(desc.location) });
        }
        self.inner().allocate(desc, len, false)
    }

    /// Whether allocations for a buffer or image are dedicated.
    fn dedicates(&self, requirements: &Requirements) -> bool {
        requirements.prefers_dedicated || self.inner().gpu.dedicates()
    }

    /// Memory for a buffer or image, dedicated to it by `scheme` if that is wanted from the start, or CUDA asks for it.
    fn allocate_for(
        &self,
        mut desc: AllocationCreateDesc<'_>,
        len: usize,
        dedicated: bool,
        scheme: AllocationScheme,
    ) -> Result<Memory> {
        let inner = self.inner();
        if !dedicated {
            match inner.allocate(&desc, len, true) {
                Err(error) if inner.may_want_dedicated(&error) => {
                    let shared = desc.clone();
                    desc.allocation_scheme = scheme;
                    return match inner.allocate(&desc, len, false) {
                        Ok(memory) => {
                            inner.gpu.dedicate(memory.memory_type().index);
                            Ok(memory)
                        }
                        Err(error) if error.is_exhaustion() => Err(error),
                        // Not the allocation is refused but the memory type.
                        Err(_) => inner.allocate(&shared, len, false),
                    };
                }
                result => return result,
            }
        }
        desc.allocation_scheme = scheme;
        inner.allocate(&desc, len, false)
    }

    /// gpu-allocator's report: all blocks and what is allocated in them, with names and sizes. `{:?}` prints it.
    #[must_use]
    pub fn report(&self) -> AllocatorReport {
        self.inner().report()
    }

    /// The bytes of all blocks, whether in use or free.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.report().total_capacity_bytes
    }

    /// The handle that the blocks are allocated from.
    #[must_use]
    pub fn owner(&self) -> &Vkgdr {
        &self.inner().owner
    }

    /// The CUDA context that the memory belongs to.
    #[must_use]
    pub fn context(&self) -> CUcontext {
        self.inner().context().raw()
    }
}

fn describe<'a>(
    name: &'a str,
    requirements: &Requirements,
    location: MemoryLocation,
    linear: bool,
) -> AllocationCreateDesc<'a> {
    let allocation_scheme = AllocationScheme::GpuAllocatorManaged;
    AllocationCreateDesc { name, requirements: requirements.memory, location, linear, allocation_scheme }
}

impl fmt::Debug for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Allocator").field("report", &self.report()).finish_non_exhaustive()
    }
}
