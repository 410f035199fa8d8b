//! [`Allocation`]: CUDA's side of one allocation, its [`Backing`], and its release.
//!
//! Vulkan's memory has its host mapping ([`vulkan`]), and an import and mapping by CUDA ([`CudaMemory`]). Without Vulkan there
//! are registered pages, CUDA's own memory, and memory that exists already ([`existing`]).
//!
//! Each stage is a value with `Drop` before the next call that can fail, so that a failure leaves nothing behind.
//! Callers make the context current, and wait for work that still uses the memory. [`Vkgdr::supports`] and
//! [`Vkgdr::memory_info`] make an allocation to find out.

pub(crate) mod existing;
mod vulkan;

use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;

use crate::addresses::{ListedAddresses, Lookup};
use crate::copy::{self, CopyRoutine};
pub(crate) use crate::device::LINE;
use crate::device::{self, MemoryType};
use crate::driver::context::{Context, PrimaryContext};
use crate::driver::cuda::cuda;
use crate::driver::memory::{CudaMemory, lock_pages};
use crate::driver::os::{self, FileType, Mapping};
use crate::driver::vulkan::DedicatedTo;
use crate::driver::{Handle, fork};
use crate::error::{Call, CudaCode};
use crate::report::log_failure;
use crate::retire::Fence;
use crate::{Error, MemoryInfo, MemoryInfoSource, MemoryKind, MemoryTypeInfo, Result, Vkgdr};
use existing::ExistingRange;
pub(crate) use vulkan::Exported;
use vulkan::VulkanMemory;

/// A live allocation in its context: all of one memory, or divided by a pool or an allocator.
///
/// A drop releases it at once. The last reference is dropped only after the device has finished with all of it.
pub(crate) struct Allocation {
    /// `None` until it is listed, for raw memory, and for memory that others allocated.
    addresses: Option<Arc<ListedAddresses>>,
    /// Ends first, in the context. `None` once it is released, and for memory that others allocated.
    cuda: Option<CudaMemory>,
    backing: Backing,
    /// Null without a host view.
    host_ptr: Handle<*mut u8>,
    device_ptr: CUdeviceptr,
    memory_type: MemoryType,
    len: usize,
    /// How the CPU copies this memory.
    routine: CopyRoutine,
    context: Context,
    owner: Vkgdr,
}

/// What CUDA's side is of, or what maps it for the CPU.
#[derive(Debug)]
enum Backing {
    Vulkan(VulkanMemory),
    /// The file is open as long as the pages are mapped, so that it can be exported: one descriptor per allocation.
    Pages {
        _mapped: Mapping,
        file: OwnedFd,
    },
    /// The pages through which the CPU sees memory that this crate allocated by `cuMemAlloc`.
    Mapped(ExistingRange),
    /// The pages through which the CPU sees memory of others.
    Others(ExistingRange),
    /// Memory of CUDA's that the CPU does not see.
    Unmapped,
}

/// The memory to allocate for buffers and images of [`crate::vulkan`], as gpu-allocator requests it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceBlock {
    /// Of a type that CUDA and the CPU share.
    pub(crate) type_index: u32,
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
    /// Current.
    context: Context,
    len: usize,
    /// The bytes that are requested from the drivers, at most the heap's.
    size: u64,
    memory_type: MemoryType,
    /// What to import; `None` to allocate.
    import: Option<&'a Exported>,
    /// What to back, other than plain memory.
    resources: Option<&'a ResourceBlock>,
}

impl Allocation {
    /// Allocates `len` bytes in `context`, which is current, and of the owner's device. So do the other constructors.
    ///
    /// Mapped memory for which Vulkan has no room is CUDA's, where the CPU can map that. When memory is short, it waits until
    /// `deadline`.
    pub(crate) fn new(
        owner: &Vkgdr,
        context: Context,
        len: usize,
        kind: MemoryKind,
        deadline: Instant,
    ) -> Result<Self> {
        let memory_type = owner.memory_type(kind)?;
        match Request::new(owner, context, len, memory_type).and_then(|request| request.make(deadline)) {
            Err(error @ Error::Allocation { .. }) if kind == MemoryKind::Mapped && memory_type.is_vulkan() => {
                Self::allocate_by_cuda(owner, context, len, kind, deadline).map_err(|_| error)
            }
            made => made,
        }
    }

    /// Memory that CUDA allocates and can export as a dma-buf, through which mapped memory is mapped.
    pub(crate) fn allocate_by_cuda(
        owner: &Vkgdr,
        context: Context,
        len: usize,
        kind: MemoryKind,
        deadline: Instant,
    ) -> Result<Self> {
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
        Request::new(owner, context, len, memory_type)?.make(deadline)
    }

    /// [`new`](Self::new) for memory that was exported as a descriptor.
    pub(crate) fn import(
        owner: &Vkgdr,
        context: Context,
        exported: &Exported,
        len: usize,
        kind: MemoryKind,
    ) -> Result<Self> {
        let memory_type = match kind {
            MemoryKind::Host if exported.is_registered_pages() => owner.memory_type(kind)?,
            _ => owner.vulkan_memory_type(kind)?,
        };
        Request { import: Some(exported), ..Request::new(owner, context, len, memory_type)? }
            .make(owner.shortage_deadline())
    }

    /// [`new`](Self::new) for memory of buffers and images. A refusal is the caller's to act on.
    pub(crate) fn allocate_resources(
        owner: &Vkgdr,
        context: Context,
        block: &ResourceBlock,
        deadline: Instant,
    ) -> Result<Self> {
        let ResourceBlock { type_index, size, .. } = *block;
        let found = owner.vulkan()?.type_at(type_index, owner.flags());
        let memory_type = found.expect("gpu-allocator takes the device's own types");
        let len = usize::try_from(size).expect("usize has 64 bits");
        let size = within_heap(Some(size), len, memory_type)?;
        Request { owner, context, len, size, memory_type, import: None, resources: Some(block) }.make(deadline)
    }

    /// A host view of memory that others allocated on the owner's device.
    pub(crate) fn of_existing(owner: &Vkgdr, context: Context, range: ExistingRange) -> Result<Self> {
        let (address, len, pcie) = range.extent();
        let memory_type = device::mapped_memory_type(owner.device(), pcie, owner.flags())?;
        let request = Request { owner, context, len, size: len as u64, memory_type, import: None, resources: None };
        Ok(request.with_backing(Some(range.host_ptr()), address, None, Backing::Others(range)))
    }

    /// The mapped range of memory that others allocated; `None` for an allocation of this crate.
    pub(crate) fn existing(&self) -> Option<&ExistingRange> {
        match &self.backing {
            Backing::Others(range) => Some(range),
            _ => None,
        }
    }

    /// Vulkan's memory object; `None` where Vulkan did not allocate the memory.
    pub(crate) fn device_memory(&self) -> Option<vk::DeviceMemory> {
        match &self.backing {
            Backing::Vulkan(memory) => Some(memory.handle()),
            _ => None,
        }
    }

    /// A new descriptor of the memory, for other processes.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        fork::check()?;
        match &self.backing {
            Backing::Vulkan(memory) => memory.export(),
            Backing::Pages { file, .. } => os::duplicate(file),
            Backing::Mapped(_) | Backing::Others(_) | Backing::Unmapped => Err(Error::NoExport { kind: self.kind() }),
        }
    }

    /// A new descriptor of the memory as a dma-buf, and the offset of the memory in it. Its context must be current.
    pub(crate) fn dma_buf(&self) -> Result<(OwnedFd, u64)> {
        match &self.backing {
            Backing::Mapped(range) | Backing::Others(range) => range.dma_buf(),
            Backing::Unmapped => {
                device::check_export(self.owner.device())?;
                existing::export(self.device_ptr, self.len)
            }
            Backing::Vulkan(_) | Backing::Pages { .. } => Err(Error::NoDmaBuf { kind: self.kind() }),
        }
    }

    /// Releases it, as a drop does, and returns the first error. Where another thread still has a reference, it does.
    pub(crate) fn free(self: Arc<Self>) -> Result<()> {
        Arc::into_inner(self).map_or(Ok(()), |mut last| last.release())
    }

    /// [`free`](Self::free) of several.
    #[inline]
    pub(crate) fn free_all(allocations: Vec<Arc<Self>>) -> Result<()> {
        // Mostly none, of a pool.
        if allocations.is_empty() {
            return Ok(());
        }
        allocations.into_iter().map(Self::free).fold(Ok(()), Result::and)
    }

    /// Releases it in its context. A failing stage does not stop the next; the first error is returned. A second call does
    /// nothing. Where the driver does not make the context current for now, it is released later.
    pub(crate) fn release(&mut self) -> Result<()> {
        // The device keeps memory of others: only the host's view ends, with this value.
        let Some(cuda) = self.cuda.take() else { return Ok(()) };
        let (addresses, backing) = (self.addresses.take(), mem::replace(&mut self.backing, Backing::Unmapped));
        match self.context.enter() {
            Ok(guard) => {
                // Before the system gives an address to other memory.
                drop(addresses);
                let released = cuda.release();
                // Before the handle is dropped, which may be the last owner of the context.
                let left = guard.leave();
                released.and(left)
            }
            // In a forked child it is the parent's. After CUDA's shutdown it is left to the end of the process: the Vulkan
            // driver may have shut down, too.
            Err(error) if error.cuda_code() == Some(CudaCode::DEINITIALIZED) || matches!(error, Error::Forked) => {
                let _ = ManuallyDrop::new((cuda, backing, addresses, self.owner.clone()));
                Ok(())
            }
            Err(error) if error.context_is_gone() => {
                // CUDA's side went with the context, a primary one that was reset.
                let _ = ManuallyDrop::new(cuda);
                drop((addresses, backing));
                let (len, kind) = (self.len, self.kind());
                log::warn!(
                    "the CUDA context of {len} bytes of {kind} memory was destroyed before the memory; freed without CUDA"
                );
                Ok(())
            }
            Err(error) => {
                let mut later = Self { cuda: Some(cuda), backing, addresses, owner: self.owner.clone(), ..*self };
                let queue = self.owner.gpu().retired();
                queue.push(Fence::of_context(self.context), move || later.release());
                Err(error)
            }
        }
    }

    #[inline]
    pub(crate) fn owner(&self) -> &Vkgdr {
        &self.owner
    }

    pub(crate) const fn context(&self) -> Context {
        self.context
    }

    pub(crate) const fn routine(&self) -> CopyRoutine {
        self.routine
    }

    #[inline]
    pub(crate) const fn kind(&self) -> MemoryKind {
        self.memory_type.kind
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
            let (device, host) = (self.owner.device(), self.host_ptr.0.cast_const());
            self.addresses = Some(ListedAddresses::new(device, self.device_ptr, host, self.len, lookup));
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

    /// Makes the CPU's writes to a range visible to the device. Rounds outwards to whole atoms. The range must lie within the
    /// allocation.
    #[inline]
    pub(crate) fn flush(&self, offset: usize, len: usize) -> Result<()> {
        fence(Ordering::Release);
        copy::order_writes(self.routine);
        if self.memory_type.coherent || len == 0 {
            return Ok(());
        }
        match &self.backing {
            Backing::Vulkan(memory) => memory.flush(self.atoms(offset, len)),
            // Memory that is not Vulkan's is coherent: the handle's flags alone ask for this.
            _ => fork::check(),
        }
    }

    /// Makes the device's writes to a range visible to the CPU, as [`flush`](Self::flush) the CPU's.
    #[inline]
    pub(crate) fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        if !self.memory_type.coherent && len > 0 {
            match &self.backing {
                Backing::Vulkan(memory) => memory.invalidate(self.atoms(offset, len)),
                _ => fork::check(),
            }?;
        }
        copy::order_reads(self.routine);
        fence(Ordering::Acquire);
        Ok(())
    }

    /// The atoms that cover a range, as offset and size. The allocation is whole atoms, see [`padded_size`].
    fn atoms(&self, offset: usize, len: usize) -> (u64, u64) {
        let atom = self.memory_type.atom as u64;
        let (start, end) = (offset as u64, (offset + len) as u64);
        let start = start - start % atom;
        (start, end.next_multiple_of(atom) - start)
    }
}

impl Drop for Allocation {
    #[inline]
    fn drop(&mut self) {
        log_failure("memory", self.release());
    }
}

impl<'a> Request<'a> {
    /// Plain memory.
    fn new(owner: &'a Vkgdr, context: Context, len: usize, memory_type: MemoryType) -> Result<Self> {
        let size = padded_size(len, memory_type)?;
        Ok(Self { owner, context, len, size, memory_type, import: None, resources: None })
    }

    /// Makes the memory. When a driver has run out of memory or descriptors, this waits for retired memory until `deadline`, and
    /// tries once more.
    #[inline]
    fn make(self, deadline: Instant) -> Result<Allocation> {
        let retired = self.owner.gpu().retired();
        match self.acquire() {
            Err(error) if error.is_exhaustion() && retired.drain(Some(deadline)) => {
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
        let Self { owner, memory_type, .. } = *self;
        let (host_ptr, cuda, backing) = match memory_type.kind {
            _ if memory_type.is_vulkan() => {
                let shared = VulkanMemory::share(owner.vulkan()?, self).map_err(|error| self.explained(error));
                let (memory, cuda, host_ptr) = shared?;
                (host_ptr, cuda, Backing::Vulkan(memory))
            }
            MemoryKind::Host => {
                let (file, len) = self.memory_file()?;
                let (cuda, mapped) = lock_pages(file.as_fd(), len)?;
                (Some(mapped.start()), cuda, Backing::Pages { _mapped: mapped, file })
            }
            MemoryKind::Device => (None, CudaMemory::allocate(self.bytes())?, Backing::Unmapped),
            MemoryKind::Mapped => {
                let cuda = CudaMemory::allocate(self.bytes())?;
                let range = ExistingRange::map(owner.device(), cuda.pointer(), self.bytes(), false)?;
                (Some(range.host_ptr()), cuda, Backing::Mapped(range))
            }
        };
        debug_assert!(host_ptr.is_none_or(|pointer| pointer.addr().get().is_multiple_of(LINE)));
        Ok(self.with_backing(host_ptr, cuda.pointer(), Some(cuda), backing))
    }

    fn with_backing(
        &self,
        host_ptr: Option<NonNull<u8>>,
        device_ptr: CUdeviceptr,
        cuda: Option<CudaMemory>,
        backing: Backing,
    ) -> Allocation {
        let Self { owner, context, len, memory_type, .. } = *self;
        Allocation {
            addresses: None,
            cuda,
            backing,
            host_ptr: Handle(host_ptr.map_or(ptr::null_mut(), NonNull::as_ptr)),
            device_ptr,
            memory_type,
            len,
            // The first call of the process may log.
            routine: CopyRoutine::of(memory_type.is_cached()),
            context,
            owner: owner.clone(),
        }
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
    /// also gets the budget and the other kinds of memory.
    #[cold]
    fn explained(&self, error: Error) -> Error {
        let Self { owner, len, memory_type, .. } = *self;
        let kind = memory_type.kind;
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
            && !os::descriptors_are_short(os::DESCRIPTORS_OF_ALLOCATION)
            && let Error::Allocation { asked, free, others, .. } = &mut shortage
            && let Ok(vulkan) = owner.vulkan()
            && let Some(available) = vulkan.device().heap_budget(memory_type.info.heap)
        {
            *free = Some(available);
            let has_room = |other: MemoryType| {
                !other.is_vulkan() || vulkan.device().heap_budget(other.info.heap).is_some_and(|room| room >= *asked)
            };
            let works = |other| other != kind && owner.memory_type(other).is_ok_and(has_room);
            others.extend(MemoryKind::ALL.into_iter().filter(|&other| works(other)));
        }
        shortage
    }
}

/// The bytes that are requested for `len`: whole units, so that a flush that is rounded outwards stays within the memory.
pub(crate) fn padded_size(len: usize, memory_type: MemoryType) -> Result<u64> {
    if len == 0 {
        return Err(Error::ZeroSize { kind: memory_type.kind });
    }
    within_heap((len as u64).checked_next_multiple_of(memory_type.size_unit() as u64), len, memory_type)
}

/// Fails for a size beyond the heap, which Vulkan does not define (VUID-vkAllocateMemory-pAllocateInfo-01713), and beyond
/// `isize::MAX`, the longest slice.
fn within_heap(size: Option<u64>, len: usize, memory_type: MemoryType) -> Result<u64> {
    let (kind, heap) = (memory_type.kind, memory_type.info.heap_size);
    match size {
        Some(size) if size <= heap && isize::try_from(size).is_ok() => Ok(size),
        _ => Err(Error::shortage(None, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY, kind, len as u64, heap)),
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
    /// Where the allocation fails for another reason than a refusal, such as a shortage of memory, the answer is the list's. The
    /// next call then tries again. [`memory_type_of`](Self::memory_type_of) asks the list alone. In a forked child, nothing can
    /// be allocated.
    #[must_use]
    pub fn supports(&self, kind: MemoryKind) -> bool {
        fork::check().is_ok() && self.tried_type(kind).is_ok()
    }

    /// What `make` returns for the first of some kinds of which there is memory. If each is missing, exhausted or refused by a
    /// driver, the error is that of the first exhausted one, or else of the first. Any other error is returned at once.
    #[doc(hidden)]
    pub fn first_kind<T>(
        &self,
        kinds: impl IntoIterator<Item = MemoryKind>,
        mut make: impl FnMut(MemoryKind) -> Result<T>,
    ) -> Result<T> {
        let mut refusal = None::<Error>;
        for kind in kinds {
            match make(kind) {
                // A kind that has no memory type fails with any of the errors of starting Vulkan.
                Err(error) if error.concerns_the_kind() || self.memory_type(kind).is_err() => {
                    if refusal.as_ref().is_none_or(|first| error.is_out_of_memory() && !first.is_out_of_memory()) {
                        refusal = Some(error);
                    }
                }
                made => return made,
            }
        }
        Err(refusal.expect("there is a first kind"))
    }

    /// How much memory of a kind there is. Asks a driver or reads `/proc/meminfo`: not for hot loops. The first call for a kind
    /// tries to allocate some, as [`supports`](Self::supports) does.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuitableMemoryType`] when the GPU has no such memory, the driver's error when it refuses to share it, and
    /// [`Error::Forked`]. Without Vulkan, the error that says what is missing. For device memory without Vulkan also the
    /// errors of `cuMemGetInfo` and of retaining the primary context.
    pub fn memory_info(&self, kind: MemoryKind) -> Result<MemoryInfo> {
        fork::check()?;
        let memory_type = self.tried_type(kind)?;
        let MemoryTypeInfo { heap, heap_size: total, .. } = memory_type.info;
        let (available, source) = match kind {
            _ if memory_type.is_vulkan() => match self.vulkan()?.device().heap_budget(heap) {
                Some(available) => (available, MemoryInfoSource::Budget),
                None => (total, MemoryInfoSource::Heap),
            },
            MemoryKind::Host => (os::available_memory(), MemoryInfoSource::System),
            MemoryKind::Mapped | MemoryKind::Device => {
                (self.in_some_context(|_| cuda()?.free_memory())?, MemoryInfoSource::Cuda)
            }
        };
        Ok(MemoryInfo { total, available, source })
    }

    /// The memory type of a kind, after its trial; an error if the drivers refuse the kind.
    fn tried_type(&self, kind: MemoryKind) -> Result<MemoryType> {
        let listed = self.memory_type(kind)?;
        if self.gpu().is_tried(&listed) {
            return Ok(listed);
        }
        let trial = |context| {
            let mut allocation = Allocation::new(self, context, 1, kind, self.shortage_deadline())?;
            // The device has never used it.
            allocation.release()?;
            Ok(allocation.memory_type)
        };
        match self.in_some_context(|context| cuda()?.outside_captures(|| trial(context))) {
            Ok(tried) => {
                self.gpu().record_trial(&listed);
                Ok(tried)
            }
            Err(error) if error.is_refusal() => Err(error),
            Err(error) => {
                log::debug!("whether {kind} memory can be allocated is not known: {error}");
                Ok(listed)
            }
        }
    }

    /// Runs `work` in the handle's primary context if retained, else in the current context if that is the device's, else
    /// in the device's primary context.
    fn in_some_context<T>(&self, work: impl FnOnce(Context) -> Result<T>) -> Result<T> {
        let retained;
        let context = match self.primary_context().map_or_else(Context::current, |own| Ok((own, self.device()))) {
            Ok((context, device)) if device == self.device() => context,
            Err(Error::Forked) => return Err(Error::Forked),
            _ => {
                retained = PrimaryContext::retain(self.device())?;
                retained.context()
            }
        };
        context.run(|| work(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenFlags;

    #[test]
    fn sizes_are_padded_to_whole_atoms_and_lines() {
        let flags = vk::MemoryPropertyFlags::HOST_VISIBLE;
        let info = MemoryTypeInfo { index: 0, heap: 0, heap_size: 1 << 30, flags };
        let of = |len, atom| padded_size(len, MemoryType::new(MemoryKind::Mapped, info, atom, OpenFlags::empty()));
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
