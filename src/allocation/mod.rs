//! [`Allocation`]: one allocation with all its [`Stages`], which depend on the memory's source.
//!
//! Vulkan's memory has its host mapping ([`vulkan`]), and an import and mapping by CUDA ([`CudaMemory`]). Without Vulkan there
//! are registered pages, CUDA's own memory, and memory that exists already ([`existing`]).
//!
//! Each stage is a value with `Drop` before the next call that can fail, so that a failure leaves nothing behind.
//! Contexts, and work that still uses the memory, are the callers' responsibility. [`Vkgdr::supports`] and
//! [`Vkgdr::memory_info`] make an allocation to find out.

pub(crate) mod existing;
mod vulkan;

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;

use crate::addresses::{ListedAddresses, Lookup};
pub(crate) use crate::device::LINE;
use crate::device::{self, MemoryType, Source};
use crate::driver::context::PrimaryContext;
use crate::driver::cuda::cuda;
use crate::driver::memory::{CudaMemory, LockedPages};
use crate::driver::os::{self, FileType};
use crate::driver::vulkan::DedicatedTo;
use crate::driver::{Handle, fork};
use crate::error::Call;
use crate::report::report;
use crate::{Error, MemoryInfo, MemoryInfoSource, MemoryKind, MemoryTypeInfo, Result, Vkgdr};
use existing::ExistingRange;
pub(crate) use vulkan::Exported;
use vulkan::VulkanMemory;

/// One allocation with all its stages.
pub(crate) struct Allocation {
    /// First, so that an address is no longer listed when the system gives it to other memory. `None` until it is listed, and for
    /// memory that others allocated.
    addresses: Option<ListedAddresses>,
    stages: Stages,
    /// Null without a host view.
    host_ptr: Handle<*mut u8>,
    device_ptr: CUdeviceptr,
    memory_type: MemoryType,
    kind: MemoryKind,
    len: usize,
    owner: Vkgdr,
}

/// The driver objects of an allocation, which end in the order of the fields. [`Allocation::release_cuda`] ends CUDA's earlier.
#[derive(Debug)]
enum Stages {
    Vulkan {
        cuda: CudaMemory,
        memory: VulkanMemory,
    },
    /// Their file is open as long as they live, so that it can be exported: one descriptor per allocation.
    Registered {
        pages: LockedPages,
        file: OwnedFd,
    },
    Cuda(CudaMemory),
    CudaMapped {
        range: ExistingRange,
        cuda: CudaMemory,
    },
    /// Not an allocation: the mapping of memory that others allocated.
    Existing(ExistingRange),
}

/// The memory to allocate for buffers and images of [`crate::vulkan`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceBlock {
    pub(crate) kind: MemoryKind,
    /// A type of Vulkan's list.
    pub(crate) memory_type: MemoryType,
    /// In bytes, more than 0. For memory that is dedicated to a buffer or image, the size that this requires.
    pub(crate) size: u64,
    pub(crate) dedicated_to: Option<DedicatedTo>,
    /// Only flags whose features the device has.
    pub(crate) flags: vk::MemoryAllocateFlags,
}

/// The memory to allocate, or to import.
#[derive(Clone, Copy)]
struct Request<'a> {
    owner: &'a Vkgdr,
    len: usize,
    /// The bytes that are requested from the drivers, at most the heap's.
    size: u64,
    kind: MemoryKind,
    memory_type: MemoryType,
    /// What to import; `None` to allocate.
    import: Option<&'a Exported>,
    /// What to back, other than plain memory.
    resources: Option<&'a ResourceBlock>,
}

impl Allocation {
    /// Allocates `len` bytes in the current context, which must belong to the owner's device.
    ///
    /// Mapped memory for which Vulkan has no room is CUDA's, where the CPU can map that.
    pub(crate) fn new(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        let memory_type = owner.memory_type(kind)?;
        match Request::new(owner, len, kind, memory_type).and_then(Request::make) {
            Err(error @ Error::Allocation { .. })
                if kind == MemoryKind::Mapped && memory_type.source == Source::Vulkan =>
            {
                Self::allocate_exportable(owner, len, kind).map_err(|_| error)
            }
            made => made,
        }
    }

    /// Memory that CUDA allocates and can export as a dma-buf, through which mapped memory is mapped.
    pub(crate) fn allocate_exportable(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        let device = owner.device();
        let memory_type = match kind {
            MemoryKind::Mapped => {
                device::check_mapping(device)?;
                device::mapped_memory_type(device, false, owner.flags())?
            }
            MemoryKind::Device => {
                device::check_export(device)?;
                device::device_memory_type(device)?
            }
            MemoryKind::Host => return Err(Error::NoDmaBuf { kind }),
        };
        Request::new(owner, len, kind, memory_type).and_then(Request::make)
    }

    /// [`new`](Self::new) for memory that was exported as a descriptor.
    pub(crate) fn import(owner: &Vkgdr, exported: &Exported, len: usize, kind: MemoryKind) -> Result<Self> {
        let memory_type = match kind {
            MemoryKind::Host if exported.is_registered_pages() => owner.registered_memory_type(),
            _ => owner.vulkan_memory_type(kind)?,
        };
        Request { import: Some(exported), ..Request::new(owner, len, kind, memory_type)? }.make()
    }

    /// [`new`](Self::new) for memory of buffers and images. A refusal is the caller's to act on.
    pub(crate) fn allocate_resources(owner: &Vkgdr, block: &ResourceBlock) -> Result<Self> {
        let ResourceBlock { kind, memory_type, size, .. } = *block;
        let len = usize::try_from(size).expect("usize has 64 bits");
        let size = within_heap(Some(size), len, kind, memory_type)?;
        Request { owner, len, size, kind, memory_type, import: None, resources: Some(block) }.make()
    }

    /// A host view of memory that others allocated on the owner's device, in the current context.
    pub(crate) fn map_existing(owner: &Vkgdr, address: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        let range = ExistingRange::map(owner.device(), address, len, pcie)?;
        let memory_type = device::mapped_memory_type(owner.device(), pcie, owner.flags())?;
        Ok(Self {
            addresses: None,
            host_ptr: Handle(range.host_ptr().as_ptr()),
            device_ptr: address,
            stages: Stages::Existing(range),
            memory_type,
            kind: MemoryKind::Mapped,
            len,
            owner: owner.clone(),
        })
    }

    /// The mapped range of memory that others allocated; `None` for an allocation of this crate.
    pub(crate) const fn existing(&self) -> Option<&ExistingRange> {
        match &self.stages {
            Stages::Existing(range) => Some(range),
            _ => None,
        }
    }

    /// Vulkan's memory object; `None` where Vulkan did not allocate the memory.
    pub(crate) const fn device_memory(&self) -> Option<vk::DeviceMemory> {
        match &self.stages {
            Stages::Vulkan { memory, .. } => Some(memory.handle()),
            _ => None,
        }
    }

    /// A new descriptor of the memory, for other processes.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        fork::check()?;
        match &self.stages {
            Stages::Vulkan { memory, .. } => memory.export(),
            Stages::Registered { file, .. } => os::duplicate(file),
            Stages::Cuda(_) | Stages::CudaMapped { .. } | Stages::Existing(_) => {
                Err(Error::NoExport { kind: self.kind })
            }
        }
    }

    /// A new descriptor of the memory as a dma-buf, and the offset of the memory in it. Its context must be current.
    pub(crate) fn dma_buf(&self) -> Result<(OwnedFd, u64)> {
        match &self.stages {
            Stages::Existing(range) | Stages::CudaMapped { range, .. } => range.dma_buf(),
            Stages::Cuda(_) => existing::export(self.device_ptr, self.len),
            Stages::Vulkan { .. } | Stages::Registered { .. } => Err(Error::NoDmaBuf { kind: self.kind }),
        }
    }

    /// Releases CUDA's objects in the current context, and takes the addresses off the list. A drop releases the others, and the
    /// handle, which may be what keeps the context alive. A failing stage does not stop the next; the first error is
    /// returned.
    #[inline]
    pub(crate) fn release_cuda(&mut self) -> Result<()> {
        self.addresses = None;
        match &mut self.stages {
            Stages::Vulkan { cuda, .. } | Stages::Cuda(cuda) | Stages::CudaMapped { cuda, .. } => cuda.release(),
            Stages::Registered { pages, .. } => pages.release(),
            Stages::Existing(_) => Ok(()),
        }
    }

    /// Releases only the objects that are not CUDA's, after CUDA released its own with the context.
    pub(crate) fn release_without_cuda(mut self) {
        match &mut self.stages {
            Stages::Vulkan { cuda, .. } | Stages::Cuda(cuda) | Stages::CudaMapped { cuda, .. } => cuda.abandon(),
            Stages::Registered { pages, .. } => pages.abandon(),
            Stages::Existing(_) => {}
        }
    }

    #[inline]
    pub(crate) fn owner(&self) -> &Vkgdr {
        &self.owner
    }

    #[inline]
    pub(crate) const fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The requested bytes.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) const fn memory_type(&self) -> &MemoryType {
        &self.memory_type
    }

    /// Lists the addresses, with what finds the memory there. Memory that others allocated is not listed.
    pub(crate) fn list(&mut self, lookup: Lookup) {
        if self.existing().is_none() {
            let is_registered = self.kind == MemoryKind::Host && self.memory_type.is_system_memory();
            let (device, host) =
                ((self.device_ptr, self.owner.device()), (self.host_ptr.0.cast_const(), is_registered));
            self.addresses = Some(ListedAddresses::new(device, host, self.len, lookup));
        }
    }

    #[inline]
    pub(crate) const fn device_ptr(&self) -> CUdeviceptr {
        self.device_ptr
    }

    #[inline]
    pub(crate) const fn host_ptr(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.host_ptr.0)
    }

    /// Makes the CPU's writes to a range of bytes visible to the device. The range must lie within the
    /// allocation. Memory that is not Vulkan's is coherent: the call is made only because the handle's flags ask for it.
    pub(crate) fn flush(&self, offset: usize, len: usize) -> Result<()> {
        match &self.stages {
            Stages::Vulkan { memory, .. } => memory.flush(self.atoms(offset, len)),
            _ => fork::check(),
        }
    }

    /// Makes the device's writes to a range of bytes visible to the CPU, as [`flush`](Self::flush) for the CPU's.
    pub(crate) fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        match &self.stages {
            Stages::Vulkan { memory, .. } => memory.invalidate(self.atoms(offset, len)),
            _ => fork::check(),
        }
    }

    /// The atoms that cover a range, as offset and size. The allocation is whole atoms, see [`padded_size`].
    fn atoms(&self, offset: usize, len: usize) -> (u64, u64) {
        let atom = self.memory_type.atom as u64;
        let (start, end) = (offset as u64, (offset + len) as u64);
        let start = start - start % atom;
        (start, end.next_multiple_of(atom) - start)
    }
}

impl<'a> Request<'a> {
    /// Plain memory.
    fn new(owner: &'a Vkgdr, len: usize, kind: MemoryKind, memory_type: MemoryType) -> Result<Self> {
        let size = padded_size(len, kind, memory_type)?;
        Ok(Self { owner, len, size, kind, memory_type, import: None, resources: None })
    }

    /// Makes the memory. When a driver has run out of memory or descriptors, this waits for retired memory, as long as the owner
    /// says, and tries once more.
    #[inline]
    fn make(self) -> Result<Allocation> {
        let retired = self.owner.gpu().retired();
        match self.acquire() {
            Err(error) if error.is_exhaustion() && retired.drain(Some(self.owner.shortage_deadline())) => {
                self.acquire().map_err(|error| error.with_still_used(retired.len()))
            }
            result => result,
        }
    }

    /// The size, which is at most `isize::MAX`.
    fn bytes(&self) -> usize {
        usize::try_from(self.size).expect("usize has 64 bits")
    }

    #[inline(never)]
    fn acquire(&self) -> Result<Allocation> {
        fork::check()?;
        let Self { owner, len, kind, memory_type, .. } = *self;
        let (host_ptr, device_ptr, stages) = match memory_type.source {
            Source::Vulkan => {
                let shared = VulkanMemory::share(owner.vulkan()?, self).map_err(|error| self.explained(error));
                let (memory, cuda, host_ptr) = shared?;
                (host_ptr, cuda.pointer(), Stages::Vulkan { cuda, memory })
            }
            Source::RegisteredPages => {
                let (file, len) = self.memory_file()?;
                let pages = LockedPages::map_file(file.as_fd(), len)?;
                (Some(pages.start()), pages.device_ptr(), Stages::Registered { pages, file })
            }
            Source::Cuda => {
                let cuda = CudaMemory::allocate(self.bytes())?;
                (None, cuda.pointer(), Stages::Cuda(cuda))
            }
            Source::DmaBuf => {
                let cuda = CudaMemory::allocate(self.bytes())?;
                let range = ExistingRange::map(owner.device(), cuda.pointer(), self.bytes(), false)?;
                (Some(range.host_ptr()), cuda.pointer(), Stages::CudaMapped { range, cuda })
            }
        };
        debug_assert!(host_ptr.is_none_or(|pointer| pointer.addr().get().is_multiple_of(LINE)));
        let host_ptr = Handle(host_ptr.map_or(ptr::null_mut(), NonNull::as_ptr));
        let owner = owner.clone();
        Ok(Allocation { addresses: None, stages, host_ptr, device_ptr, memory_type, kind, len, owner })
    }

    /// The file of registered pages, and their bytes: the size in whole pages.
    fn memory_file(&self) -> Result<(OwnedFd, usize)> {
        let len = self.bytes().next_multiple_of(os::page_size());
        let Some(exported) = self.import else { return Ok((os::memory_file(len)?, len)) };
        // The file's size is sealed: every page of the mapping exists.
        let FileType::Regular(size) = os::file_type(&exported.fd)? else { unreachable!("a memory file is regular") };
        let size = usize::try_from(size).expect("usize has 64 bits");
        if len > size {
            return Err(Error::OutOfRange { offset: 0, len, size });
        }
        Ok((os::duplicate(&exported.fd)?, len))
    }

    /// Adds the sizes to a Vulkan error that means a shortage of memory or address space, not of descriptors. An error of the BAR
    /// also gets the budget and the other kinds of memory: the BAR is full or fragmented if the driver places no memory
    /// although the budget has room for it.
    #[cold]
    fn explained(&self, error: Error) -> Error {
        let Self { owner, len, kind, memory_type, .. } = *self;
        let Error::Vulkan { operation, code, call } = error else { return error };
        if call == Call::ExportMemory || !error.is_exhaustion() {
            return error;
        }
        let mut shortage = Error::shortage(Some(operation), code, kind, len as u64, memory_type.info.heap_size);
        let is_placement = call == Call::AllocateMemory && code == vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        // Cached memory belongs to an integrated GPU, or one whose memory is coherent with the CPU's: without a BAR.
        let is_bar = is_placement && kind == MemoryKind::Mapped && !memory_type.is_cached();
        // A driver that keeps memory in files (Mesa's lavapipe) returns this code also without a free descriptor.
        if self.import.is_none()
            && self.resources.is_none()
            && is_bar
            && !os::descriptors_are_short()
            && let Error::Allocation { asked, free, others, .. } = &mut shortage
            && let Ok(vulkan) = owner.vulkan()
            && let Some(available) = vulkan.device().heap_budget(memory_type.info.heap)
            && available >= *asked
        {
            *free = Some(available);
            others.extend(
                MemoryKind::ALL.into_iter().filter(|other| *other != kind && owner.memory_type(*other).is_ok()),
            );
        }
        shortage
    }
}

/// The bytes that are requested for `len`: whole units, so that a flush that is rounded outwards stays within the memory.
pub(crate) fn padded_size(len: usize, kind: MemoryKind, memory_type: MemoryType) -> Result<u64> {
    if len == 0 {
        return Err(Error::ZeroSize { kind });
    }
    within_heap((len as u64).checked_next_multiple_of(memory_type.unit as u64), len, kind, memory_type)
}

/// Fails for a size beyond the heap, which Vulkan does not define (VUID-vkAllocateMemory-pAllocateInfo-01713), and beyond
/// `isize::MAX`, the longest slice.
fn within_heap(size: Option<u64>, len: usize, kind: MemoryKind, memory_type: MemoryType) -> Result<u64> {
    match size {
        Some(size) if size <= memory_type.info.heap_size && isize::try_from(size).is_ok() => Ok(size),
        _ => Err(Error::shortage(
            None,
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
            kind,
            len as u64,
            memory_type.info.heap_size,
        )),
    }
}

/// What needs a trial: whether there is a kind of memory, and how much.
impl Vkgdr {
    /// Whether memory of a kind can be allocated.
    ///
    /// That Vulkan lists a memory type is not enough: the drivers may still refuse to share its memory. So the first
    /// call for a kind allocates one byte and frees it; a success is kept for the GPU. It does that in the handle's
    /// primary context if it retains that, otherwise in the current context. Where none of the device is current, it
    /// retains the device's primary context for this call. Like any allocation, it may wait for a running kernel.
    ///
    /// Where the allocation fails for another reason than a refusal, such as a shortage of memory, the answer is that of
    /// the list, and the next call tries again. [`memory_type_of`](Self::memory_type_of) asks the list alone. In a forked child,
    /// nothing can be allocated.
    #[must_use]
    pub fn supports(&self, kind: MemoryKind) -> bool {
        fork::check().is_ok() && self.tried_type(kind).is_ok()
    }

    /// Whether an allocation of this kind failed with `error` because the kind is missing, exhausted or refused by a driver, so
    /// that there may be memory of another kind.
    #[doc(hidden)]
    pub fn lacks(&self, kind: MemoryKind, error: &Error) -> bool {
        // A kind that has no memory type fails with any of the errors of starting Vulkan.
        error.concerns_the_kind() || self.memory_type(kind).is_err()
    }

    /// How much memory of a kind there is. Asks a driver or reads `/proc/meminfo`: not for hot loops. The first call for a kind
    /// tries to allocate some, as [`supports`](Self::supports) does.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuitableMemoryType`] when the GPU has no such memory, the driver's error when it refuses to share it, and
    /// without Vulkan the error that says what is missing; [`Error::Forked`]. For device memory without Vulkan also the
    /// errors of `cuMemGetInfo` and of retaining the primary context.
    pub fn memory_info(&self, kind: MemoryKind) -> Result<MemoryInfo> {
        fork::check()?;
        let memory_type = self.tried_type(kind)?;
        let MemoryTypeInfo { heap, heap_size: total, .. } = memory_type.info;
        let (available, source) = match memory_type.source {
            Source::Vulkan => match self.vulkan()?.device().heap_budget(heap) {
                Some(available) => (available, MemoryInfoSource::Budget),
                None => (total, MemoryInfoSource::Heap),
            },
            Source::RegisteredPages => (os::available_memory(), MemoryInfoSource::System),
            Source::Cuda | Source::DmaBuf => (self.in_some_context(|| cuda()?.free_memory())?, MemoryInfoSource::Cuda),
        };
        Ok(MemoryInfo { total, available, source })
    }

    /// The memory type of a kind, after its trial; an error if the drivers refuse the kind.
    fn tried_type(&self, kind: MemoryKind) -> Result<MemoryType> {
        let listed = self.memory_type(kind)?;
        if self.gpu().is_tried(kind, &listed) {
            return Ok(listed);
        }
        let trial = || {
            let mut allocation = Allocation::new(self, 1, kind)?;
            // The device has never used it.
            allocation.release_cuda()?;
            Ok(allocation.memory_type)
        };
        match self.in_some_context(|| cuda()?.outside_captures(trial)) {
            Ok(tried) => {
                self.gpu().record_trial(kind, &tried);
                Ok(tried)
            }
            Err(error) if error.is_refusal() => Err(error),
            Err(error) => {
                report!(Debug, "whether {kind} memory can be allocated is not known: {error}");
                Ok(listed)
            }
        }
    }

    /// Runs `work` in the handle's primary context if it retains that, otherwise in the current context if that belongs to
    /// the device, otherwise in the device's primary context.
    fn in_some_context<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        if let Some(context) = self.primary_context() {
            return context.run(work);
        }
        match self.check_current_context() {
            Ok(()) => work(),
            Err(Error::Forked) => Err(Error::Forked),
            Err(_) => PrimaryContext::retain(self.device())?.context().run(work),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_padded_to_whole_atoms_and_lines() {
        let flags = vk::MemoryPropertyFlags::HOST_VISIBLE;
        let info = MemoryTypeInfo { index: 0, heap: 0, heap_size: 1 << 30, flags };
        let of = |len, atom| padded_size(len, MemoryKind::Mapped, MemoryType::new(Source::Vulkan, info, atom, true));
        for (len, atom, size) in [
            (1, 1, 64),
            (1, 64, 64),
            (64, 64, 64),
            (65, 1, 128),
            (4097, 64, 4160),
            (1, 256, 256),
            (1 << 30, 64, 1 << 30),
        ] {
            assert!(matches!(of(len, atom), Ok(padded) if padded == size), "{len} bytes, atom {atom}");
        }
    }
}
