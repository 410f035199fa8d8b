//! [`Allocation`]: one allocation with all its [`stages`].
//!
//! Vulkan's stages are memory with its host mapping and the exported file descriptor ([`vulkan`]), and the CUDA import with its
//! device mapping ([`cuda`]). Without Vulkan there are registered pages ([`registered`]), CUDA's own memory, and memory that
//! exists already ([`existing`]).
//!
//! Each stage is a value with `Drop` before the next call that can fail, so that a failure leaves nothing behind.
//! Contexts, and work that still uses the memory, are the callers' responsibility.

mod cuda;
pub(crate) mod existing;
mod registered;
#[cfg(feature = "vulkan")]
mod resources;
#[cfg(test)]
mod shared_fd_tests;
mod shortage;
mod size;
mod stages;
mod vulkan;

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Weak;

use ash::vk;
use cudarc::driver::sys::CUdeviceptr;

use crate::addresses::ListedAddresses;
use crate::device::dma_buf;
use crate::device::gpu::VulkanGpu;
use crate::device::{MemoryType, Source};
use crate::driver::{Handle, descriptor, fork};
use crate::memory::Home;
use crate::report::report;
use crate::{Error, MemoryKind, Result, Vkgdr};
use cuda::DeviceMapping;
use existing::ExistingRange;
use registered::RegisteredPages;
#[cfg(feature = "vulkan")]
pub(crate) use resources::ResourceBlock;
use shortage::{shortage, with_sizes};
pub(crate) use size::{LINE, padded_size};
use stages::Stages;
use vulkan::{Dedication, Request};
pub(crate) use vulkan::{Exported, Layout};

/// One allocation with all its stages.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// First, so that an address is no longer listed when the system gives it to other memory. `None` for memory that
    /// others allocated.
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

impl Allocation {
    /// Allocates `len` bytes in the current context, which must belong to the owner's device.
    ///
    /// When a driver has run out of memory or descriptors, this waits for retired memory, as long as the owner says,
    /// and tries once more. Where a driver refuses to share Vulkan's host memory, this and every later allocation of host memory
    /// is of registered pages. Where its code may also mean something else, this one alone is. Mapped memory for which
    /// Vulkan has no room is CUDA's, where the CPU can map that.
    pub(crate) fn new(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        let memory_type = owner.memory_type(kind)?;
        match Self::make(owner, len, kind, memory_type, None) {
            Err(error)
                if kind == MemoryKind::Host
                    && memory_type.source == Source::Vulkan
                    && (error.is_refusal() || error.may_be_refusal() && !descriptor::are_short()) =>
            {
                Self::register_host(owner, len, &error)
            }
            Err(error @ Error::Allocation { .. })
                if memory_type.source == Source::Vulkan && kind == MemoryKind::Mapped =>
            {
                Self::allocate_exportable(owner, len, kind).map_err(|_| error)
            }
            result => result,
        }
    }

    /// Memory that CUDA allocates and can export as a dma-buf, through which mapped memory is mapped.
    pub(crate) fn allocate_exportable(owner: &Vkgdr, len: usize, kind: MemoryKind) -> Result<Self> {
        let device = owner.device();
        let memory_type = match kind {
            MemoryKind::Mapped => {
                dma_buf::check_mapping(device)?;
                dma_buf::memory_type(device, false, owner.flags())?
            }
            MemoryKind::Device => {
                dma_buf::check_export(device)?;
                dma_buf::device_memory_type(device)?
            }
            MemoryKind::Host => return Err(Error::NoDmaBuf { kind }),
        };
        Self::make(owner, len, kind, memory_type, None)
    }

    /// A new descriptor of the memory as a dma-buf, and the offset of the memory in it. Its context must be current.
    pub(crate) fn dma_buf(&self) -> Result<(OwnedFd, u64)> {
        self.stages.dma_buf(self.len, self.kind)
    }

    /// Allocates one byte of a kind in the current context and frees it, to learn its memory type.
    pub(crate) fn trial(owner: &Vkgdr, kind: MemoryKind) -> Result<MemoryType> {
        let mut allocation = Self::new(owner, 1, kind)?;
        // The device has never used it.
        allocation.release()?;
        Ok(allocation.memory_type)
    }

    /// [`new`](Self::new) for memory that was exported as a descriptor.
    pub(crate) fn import(owner: &Vkgdr, exported: &Exported, len: usize, kind: MemoryKind) -> Result<Self> {
        let memory_type = match kind {
            MemoryKind::Host if exported.is_registered_pages() => owner.registered_memory_type(),
            _ => owner.vulkan_memory_type(kind)?,
        };
        Self::make(owner, len, kind, memory_type, Some(exported))
    }

    /// Host memory of registered pages, after a driver did not share Vulkan's because of `error`. If that is a refusal, all
    /// later host memory of the GPU is made so.
    #[cold]
    fn register_host(owner: &Vkgdr, len: usize, error: &Error) -> Result<Self> {
        let kind = MemoryKind::Host;
        let allocation = Self::make(owner, len, kind, owner.registered_memory_type(), None)?;
        if error.is_refusal() && owner.gpu().register_host() {
            report!(Info, "host memory of {} is registered pages from now on: {error}", owner.name());
        }
        Ok(allocation)
    }

    #[inline]
    fn make(
        owner: &Vkgdr,
        len: usize,
        kind: MemoryKind,
        memory_type: MemoryType,
        exported: Option<&Exported>,
    ) -> Result<Self> {
        let retired = owner.gpu().retired();
        retired.poll(None);
        let size = padded_size(len, kind, memory_type)?;
        let acquire = || Self::acquire(owner, len, size, kind, memory_type, exported);
        match acquire() {
            Err(error) if error.is_exhaustion() && retired.drain(Some(owner.shortage_deadline())) => {
                acquire().map_err(|error| error.with_still_used(retired.len()))
            }
            result => result,
        }
    }

    #[inline(never)]
    fn acquire(
        owner: &Vkgdr,
        len: usize,
        size: u64,
        kind: MemoryKind,
        memory_type: MemoryType,
        exported: Option<&Exported>,
    ) -> Result<Self> {
        let count = |max| {
            let too_many = || shortage(None, vk::Result::ERROR_TOO_MANY_OBJECTS, kind, len, memory_type);
            owner.gpu().count_allocation(max).ok_or_else(too_many)
        };
        let stages = match memory_type.source {
            Source::Vulkan => {
                let gpu = owner.vulkan()?;
                let share = |dedicated| {
                    let counted = count(gpu.device().physical.max_allocations)?;
                    let dedication = if dedicated { Dedication::Own } else { Dedication::None };
                    let flags = vk::MemoryAllocateFlags::empty();
                    let request = Request { gpu, memory_type: &memory_type, size, dedication, flags };
                    Stages::share(counted, request, kind, exported)
                };
                // The exporter's choice, Vulkan's answer, or what drivers were found to want. Read once: another thread may change that meanwhile.
                let layout = exported.and_then(Exported::layout);
                let wants = || gpu.device().sharing().dedicated_only || gpu.is_dedicated(memory_type.info.index);
                let dedicated = layout.map_or_else(wants, |layout| layout.dedicated);
                let shared = match ask(|| share(dedicated)) {
                    Err(error) if !dedicated && layout.is_none() && error.asks_for_dedicated() => {
                        try_dedicated(gpu, &memory_type, error, || ask(|| share(true)))
                    }
                    result => result,
                };
                shared.map_err(|error| match exported {
                    None => shortage::explain(owner, error, kind, len, memory_type),
                    Some(_) => with_sizes(error, kind, len, memory_type),
                })?
            }
            Source::RegisteredPages => {
                fork::check()?;
                let counted = count(u32::MAX)?;
                Stages::Registered(match exported {
                    None => RegisteredPages::allocate(counted, size),
                    Some(exported) => RegisteredPages::import(counted, exported, size),
                }?)
            }
            Source::Cuda => {
                let counted = count(u32::MAX)?;
                let size = usize::try_from(size).expect("usize has 64 bits");
                Stages::Cuda { device_memory: DeviceMapping::allocate(size)?, _counted: counted }
            }
            Source::DmaBuf => {
                let counted = count(u32::MAX)?;
                let size = usize::try_from(size).expect("usize has 64 bits");
                let device_memory = DeviceMapping::allocate(size)?;
                let range = ExistingRange::map(owner.device(), device_memory.pointer(), size, false)?;
                Stages::CudaMapped { range, device_memory, _counted: counted }
            }
        };
        Ok(Self::with_stages(owner, len, kind, memory_type, stages))
    }

    /// An allocation that has all its stages.
    fn with_stages(owner: &Vkgdr, len: usize, kind: MemoryKind, memory_type: MemoryType, stages: Stages) -> Self {
        let (host_ptr, device_ptr) = stages.pointers();
        debug_assert!(host_ptr.is_none_or(|pointer| pointer.addr().get().is_multiple_of(LINE)));
        let host_ptr = Handle(host_ptr.map_or(std::ptr::null_mut(), NonNull::as_ptr));
        let is_registered = memory_type.source == Source::RegisteredPages;
        let addresses = ListedAddresses::new((device_ptr, owner.device()), (host_ptr.0, is_registered), len);
        let addresses = Some(addresses);
        Self { addresses, stages, host_ptr, device_ptr, memory_type, kind, len, owner: owner.clone() }
    }

    /// A host view of memory that others allocated on the owner's device, in the current context.
    pub(crate) fn map_existing(owner: &Vkgdr, address: CUdeviceptr, len: usize, pcie: bool) -> Result<Self> {
        let device = owner.device();
        let range = ExistingRange::map(device, address, len, pcie)?;
        let memory_type = dma_buf::memory_type(device, pcie, owner.flags())?;
        let stages = Stages::Existing(range);
        let (host_ptr, device_ptr) = stages.pointers();
        let host_ptr = Handle(host_ptr.map_or(std::ptr::null_mut(), NonNull::as_ptr));
        let kind = MemoryKind::Mapped;
        Ok(Self { addresses: None, stages, host_ptr, device_ptr, memory_type, kind, len, owner: owner.clone() })
    }

    /// The mapped range of memory that others allocated; `None` for an allocation of this crate.
    pub(crate) const fn existing(&self) -> Option<&ExistingRange> {
        match &self.stages {
            Stages::Existing(range) => Some(range),
            _ => None,
        }
    }

    /// How memory that can be exported was allocated.
    pub(crate) fn layout(&self) -> Result<Layout> {
        match self.stages.layout() {
            Some(layout) => Ok(layout),
            None => Ok(Layout { size: padded_size(self.len, self.kind, self.memory_type)?, dedicated: false }),
        }
    }

    /// A new descriptor of the memory.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        fork::check()?;
        self.stages.export(self.kind)
    }

    /// Releases every stage in the current context, and keeps the handle, which may be what keeps the context alive. A
    /// failing stage does not stop the next; the first error is returned.
    #[inline]
    pub(crate) fn release(&mut self) -> Result<()> {
        self.addresses = None;
        self.stages.release()
    }

    /// Releases only the objects that are not CUDA's, after CUDA released its own with the context.
    pub(crate) fn release_without_cuda(mut self) {
        self.stages.abandon();
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

    /// Lets lookups find its memory. Memory that others allocated is not listed.
    pub(crate) fn set_home(&self, home: Weak<dyn Home>) {
        if let Some(addresses) = &self.addresses {
            addresses.set_home(home);
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
    /// allocation.
    pub(crate) fn flush(&self, offset: usize, len: usize) -> Result<()> {
        self.stages.flush(self.atoms(offset, len))
    }

    /// Makes the device's writes to a range of bytes visible to the CPU. The range must lie within the
    /// allocation.
    pub(crate) fn invalidate(&self, offset: usize, len: usize) -> Result<()> {
        self.stages.invalidate(self.atoms(offset, len))
    }

    /// The atoms that cover a range, as offset and size. The allocation is whole atoms, see [`padded_size`].
    fn atoms(&self, offset: usize, len: usize) -> (u64, u64) {
        let atom = self.memory_type.atom as u64;
        let (start, end) = (offset as u64, (offset + len) as u64);
        let start = start - start % atom;
        (start, end.next_multiple_of(atom) - start)
    }
}

/// Shares memory, and once more if CUDA refuses: a refusal is remembered for the process, so that one strange error must not
/// count as one.
fn ask(share: impl Fn() -> Result<Stages>) -> Result<Stages> {
    match share() {
        Err(error) if error.is_refusal() => share(),
        result => result,
    }
}

/// Tries a dedicated allocation after CUDA refused to share another one as if it asked for that. If it succeeds, all later
/// memory of the type is dedicated.
#[cold]
fn try_dedicated(
    gpu: &VulkanGpu,
    memory_type: &MemoryType,
    refusal: Error,
    share: impl FnOnce() -> Result<Stages>,
) -> Result<Stages> {
    let index = memory_type.info.index;
    match share() {
        Ok(stages) => {
            gpu.dedicate(index);
            report!(Info, "memory of type {index} is dedicated allocations from now on: {refusal}");
            Ok(stages)
        }
        Err(error) if error.is_exhaustion() => Err(error),
        Err(error) => {
            report!(Debug, "a dedicated allocation is refused as well: {error}");
            Err(refusal)
        }
    }
}
