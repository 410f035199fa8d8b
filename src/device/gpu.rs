//! The state that all handles of a GPU share for the life of the process: its Vulkan device, deferred frees and copy
//! engines.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};

use ash::vk;

use cudarc::driver::sys::CUdevice;

use super::deferred_frees::DeferredFrees;
use super::facts::MemoryTypeInfo;
use super::memory_type::{self, MemoryType};
use super::startup::{self, Found};
use crate::copy_engine::CopyEngines;
use crate::driver::cuda::cuda;
use crate::driver::vulkan::Device;
use crate::lock::Lock;
use crate::report::report;
use crate::{Error, MemoryKind, OpenFlags, Result};

/// A GPU that CUDA and Vulkan both know.
pub(crate) struct Gpu {
    uuid: [u8; 16],
    name: String,
    vulkan: Device,
    memory: vk::PhysicalDeviceMemoryProperties,
    deferred_frees: DeferredFrees,
    live_allocations: AtomicU32,
    copy_engines: CopyEngines,
    pools: Lock<Vec<Weak<dyn Collect>>>,
}

/// A pool, as its GPU knows it.
pub(crate) trait Collect: Send + Sync {
    /// Releases what the device has finished with. Does not wait.
    fn collect(&self);
}

/// One live allocation in its GPU's count.
#[derive(Debug)]
pub(crate) struct CountedAllocation(&'static Gpu);

impl CountedAllocation {
    pub(crate) const fn gpu(&self) -> &'static Gpu {
        self.0
    }
}

impl Drop for CountedAllocation {
    fn drop(&mut self) {
        self.0.live_allocations.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gpu {
    /// The GPU with this UUID. The first call for a GPU creates its Vulkan device.
    pub(crate) fn find(device: CUdevice, uuid: [u8; 16]) -> Result<&'static Self> {
        static GPUS: Lock<Vec<&'static Gpu>> = Lock::new(Vec::new());
        let mut gpus = GPUS.lock();
        if let Some(gpu) = gpus.iter().find(|gpu| gpu.uuid == uuid) {
            return Ok(gpu);
        }
        let (gpu, note) = Self::create(device, uuid)?;
        let gpu: &'static Self = Box::leak(Box::new(gpu));
        gpus.push(gpu);
        drop(gpus);
        if let Some(note) = note {
            report!(Info, "{note}");
        }
        Ok(gpu)
    }

    /// The GPU, and a line for the log.
    fn create(device: CUdevice, uuid: [u8; 16]) -> Result<(Self, Option<String>)> {
        let name = cuda()?.device_name(device)?;
        let Found { instance, physical, note } = startup::find(device, uuid, &name)?;
        let vulkan = instance.create_device(physical)?;
        let memory = instance.memory_properties(&vulkan.physical);
        let (deferred_frees, live_allocations) = (DeferredFrees::default(), AtomicU32::new(0));
        let (copy_engines, pools) = (CopyEngines::default(), Lock::default());
        Ok((Self { uuid, name, vulkan, memory, deferred_frees, live_allocations, copy_engines, pools }, note))
    }

    pub(crate) const fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Vulkan's UUID of the driver.
    pub(crate) const fn driver_uuid(&self) -> [u8; 16] {
        self.vulkan.physical.driver_uuid
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn vulkan(&self) -> &Device {
        &self.vulkan
    }

    /// Counts an allocation that is about to be made. None at the device's limit: Vulkan leaves more than
    /// `maxMemoryAllocationCount` live allocations undefined (VUID-vkAllocateMemory-maxMemoryAllocationCount-04101).
    pub(crate) fn count_allocation(&'static self) -> Option<CountedAllocation> {
        let before = self.live_allocations.fetch_add(1, Ordering::Relaxed);
        // Also at the limit: its drop takes the count back.
        let counted = CountedAllocation(self);
        (before < self.vulkan.physical.max_allocations).then_some(counted)
    }

    pub(super) fn live_allocations(&self) -> u32 {
        self.live_allocations.load(Ordering::Relaxed)
    }

    pub(crate) const fn deferred_frees(&self) -> &DeferredFrees {
        &self.deferred_frees
    }

    /// Adds a pool to those that [`Vkgdr::collect`](crate::Vkgdr::collect) visits.
    pub(crate) fn add_pool(&self, pool: Weak<dyn Collect>) {
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(pool);
    }

    pub(super) fn collect_pools(&self) {
        let pools: Vec<_> = {
            let pools = self.pools.lock();
            pools.iter().filter_map(Weak::upgrade).collect()
        };
        pools.iter().for_each(|pool| pool.collect());
    }

    #[inline]
    pub(crate) const fn copy_engines(&self) -> &CopyEngines {
        &self.copy_engines
    }

    pub(crate) fn memory_type(&self, kind: MemoryKind, flags: OpenFlags) -> Option<MemoryType> {
        memory_type::choose(&self.memory, self.vulkan.physical.atom, kind, flags)
    }

    pub(super) fn memory_types(&self) -> Vec<MemoryTypeInfo> {
        memory_type::list(&self.memory).collect()
    }

    pub(crate) fn no_memory_type(&self, kind: MemoryKind, flags: OpenFlags) -> Error {
        // Without any such memory, coherence is not the missing property.
        let less = flags - OpenFlags::REQUIRE_COHERENT;
        let flags = if self.memory_type(kind, less).is_some() { flags } else { less };
        let wanted = format!("{:?}", memory_type::required(kind, flags));
        Error::NoSuitableMemoryType { device: self.vulkan.physical.name.clone(), kind, wanted }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
