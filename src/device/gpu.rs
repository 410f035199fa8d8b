//! [`Gpu`]: the state that all handles of a GPU share. [`VulkanGpu`]: its Vulkan device and memory types.
//!
//! A `Gpu` has the GPU's retired memory and copy thresholds, and lives as long as the process.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ash::vk;

use cudarc::driver::sys::CUdevice;

use super::memory_type::{self, MemoryType, MemoryTypeInfo};
use crate::diagnosis::{Evidence, System};
use crate::driver::cuda::cuda;
use crate::driver::os;
use crate::driver::vulkan::{Device, HEADLESS, Instance, PhysicalDevice};
use crate::engine::CopyThresholds;
use crate::error::hyphenated;
use crate::lock::Lock;
use crate::retire::RetireQueue;
use crate::{Error, MemoryKind, OpenFlags, Result};

/// A GPU that CUDA knows.
pub(crate) struct Gpu {
    pub(super) uuid: [u8; 16],
    /// What CUDA calls it.
    pub(super) name: String,
    /// The Vulkan device, or that Vulkan lacks the GPU, once either is known. Locked by the thread that looks for it.
    vulkan: Lock<Option<Result<Arc<VulkanGpu>>>>,
    /// The trial allocations that succeeded, by kind and by the index of the memory type.
    trials: Lock<HashSet<(MemoryKind, u32)>>,
    retired: RetireQueue,
    /// Of reads and of writes.
    thresholds: [AtomicUsize; 2],
}

/// A GPU's Vulkan device and its memory types. Handles of the GPU share one that is never freed, or a program's.
pub(crate) struct VulkanGpu {
    device: Device,
    memory: vk::PhysicalDeviceMemoryProperties,
    /// Bit mask of the memory types of which CUDA imports nothing, learned from refusals.
    refused_types: AtomicU32,
    /// Cloned by each live allocation.
    allocations: Arc<()>,
    /// Held by the part of the program that uses the device's queue. All values of a device share it.
    pub(crate) queue: Arc<Mutex<()>>,
}

impl VulkanGpu {
    /// Finds the Vulkan device of a CUDA device, by the loader, otherwise by NVIDIA's headless driver without the loader, and
    /// creates the logical one. `name` is what CUDA calls the GPU. Also returns a line for the log.
    /// The error is the loader's, with the cause as far as the system shows one.
    fn create(device: CUdevice, uuid: [u8; 16], name: &str) -> Result<(Self, Option<String>)> {
        let with = |(instance, physical): (&Instance, _)| instance.create_device(physical).map(Self::new);
        let error = match among(Instance::get(), device, uuid) {
            Ok(found) => return Ok((with(found)?, None)),
            // The loader knows no driver for the GPU. Other errors, such as a lack of memory, would meet the other, too.
            Err(error @ (Error::Library { .. } | Error::NoMatchingDevice { .. })) => error,
            Err(error @ Error::Vulkan { code: vk::Result::ERROR_INCOMPATIBLE_DRIVER, .. }) => error,
            Err(error @ Error::Vulkan { code: vk::Result::ERROR_INITIALIZATION_FAILED, .. }) => error,
            Err(error) => return Err(error),
        };
        let found = among(Instance::headless(), device, uuid).map_err(|headless| {
            let cause = Evidence::gather(&System::here()).cause(name, &headless).to_string();
            Error::NoVulkan { error: Box::new(error.clone()), headless: Box::new(headless), cause }
        })?;
        let note = format!("using {HEADLESS} without the Vulkan loader, since: {error}");
        Ok((with(found)?, Some(note)))
    }

    pub(crate) fn new(device: Device) -> Self {
        let memory = device.instance.memory_properties(&device.physical);
        let queue = QUEUES.shared(device.handle());
        Self { device, memory, refused_types: AtomicU32::new(0), allocations: Arc::default(), queue }
    }

    #[inline]
    pub(crate) const fn device(&self) -> &Device {
        &self.device
    }

    /// Counts an allocation until the result is dropped.
    pub(crate) fn count_allocation(&self) -> Arc<()> {
        self.allocations.clone()
    }

    pub(super) fn live_allocations(&self) -> usize {
        Arc::strong_count(&self.allocations) - 1
    }

    /// One bit for each memory type of which CUDA imports nothing.
    pub(crate) fn refused_types(&self) -> u32 {
        self.refused_types.load(Ordering::Relaxed)
    }

    /// Adds memory types of which CUDA imports nothing. Returns those that are new.
    pub(crate) fn refuse_types(&self, types: u32) -> u32 {
        types & !self.refused_types.fetch_or(types, Ordering::Relaxed)
    }

    /// A type of Vulkan's list for a handle with these flags. `None` for types that CUDA and the CPU cannot share.
    pub(crate) fn type_at(&self, index: u32, flags: OpenFlags) -> Option<MemoryType> {
        memory_type::at(&self.memory, self.device.physical.atom, index, flags)
    }

    pub(super) fn memory_type(&self, kind: MemoryKind, flags: OpenFlags) -> Option<MemoryType> {
        memory_type::choose(&self.memory, self.device.physical.atom, kind, flags)
    }

    pub(super) fn memory_types(&self) -> Vec<MemoryTypeInfo> {
        memory_type::list(&self.memory).collect()
    }

    pub(super) fn no_memory_type(&self, kind: MemoryKind, flags: OpenFlags) -> Error {
        // Without any such memory, coherence is not the missing property.
        let less = flags - OpenFlags::REQUIRE_COHERENT;
        let flags = if self.memory_type(kind, less).is_some() { flags } else { less };
        let wanted = format!("{:?}", memory_type::required(kind, flags));
        Error::NoSuitableMemoryType { device: self.device.physical.name.clone(), kind, wanted }
    }
}

/// The device of an instance with this UUID.
fn among(
    instance: Result<&'static Instance>,
    device: CUdevice,
    uuid: [u8; 16],
) -> Result<(&'static Instance, PhysicalDevice)> {
    let instance = instance?;
    let mut devices = instance.physical_devices()?;
    // A driver that does not report a UUID leaves zeroes, which must not match each other.
    if let Some(matching) = devices.iter().position(|found| found.uuid == uuid && uuid != [0; 16]) {
        return Ok((instance, devices.swap_remove(matching)));
    }
    let list: Vec<_> = devices.iter().map(|found| format!("{} ({})", found.name, hyphenated(found.uuid))).collect();
    let found = match list.as_slice() {
        [] => "Vulkan has no device at all".to_owned(),
        list => format!("Vulkan has {}", list.join(", ")),
    };
    Err(Error::NoMatchingDevice { device, uuid, found })
}

/// The mutexes for the queues of Vulkan devices. A program may open handles on its device more than once, and on that of this
/// crate.
static QUEUES: Lock<Vec<(vk::Device, Weak<Mutex<()>>)>> = Lock::new(Vec::new());

/// Every GPU that was opened. No driver is called under this lock.
static GPUS: Lock<Vec<&'static Gpu>> = Lock::new(Vec::new());

impl Gpu {
    /// The GPU with this UUID, and its Vulkan device, or the error of finding the Vulkan device.
    ///
    /// The first call for a GPU creates its Vulkan device, while others for that GPU wait. That Vulkan lacks the GPU is
    /// remembered: each search loads graphics libraries, and leaves some of them loaded. Other failures, of creating the
    /// device, are not. A transient one, such as a shortage of memory, is this call's error.
    pub(super) fn find(device: CUdevice, uuid: [u8; 16]) -> Result<(&'static Self, Result<Arc<VulkanGpu>>)> {
        let gpu = Self::without_vulkan(device, uuid)?;
        let mut known = gpu.vulkan.lock();
        if let Some(known) = &*known {
            return Ok((gpu, known.clone()));
        }
        match VulkanGpu::create(device, uuid, &gpu.name) {
            Ok((vulkan, note)) => {
                let vulkan = Ok(Arc::new(vulkan));
                *known = Some(vulkan.clone());
                drop(known);
                if let Some(note) = note {
                    log::info!("{note}");
                }
                Ok((gpu, vulkan))
            }
            Err(error) if error.is_exhaustion() || matches!(error, Error::Forked) => Err(error),
            // Libraries and drivers that cannot be opened look as if they were not there.
            Err(_) if os::descriptors_are_short(1) => Err(Error::System { operation: "open", code: libc::EMFILE }),
            Err(error) => {
                if matches!(error, Error::NoVulkan { .. }) {
                    *known = Some(Err(error.clone()));
                }
                Ok((gpu, Err(error)))
            }
        }
    }

    /// The GPU with this UUID, without looking for its Vulkan device.
    pub(crate) fn without_vulkan(device: CUdevice, uuid: [u8; 16]) -> Result<&'static Self> {
        let known = |gpus: &[&'static Self]| gpus.iter().find(|gpu| gpu.uuid == uuid).copied();
        if let Some(gpu) = known(&GPUS.lock()) {
            return Ok(gpu);
        }
        let CopyThresholds { read, write } = CopyThresholds::default();
        let created = Self {
            uuid,
            name: cuda()?.device_name(device)?,
            vulkan: Lock::default(),
            trials: Lock::default(),
            retired: RetireQueue::default(),
            thresholds: [read.into(), write.into()],
        };
        let mut gpus = GPUS.lock();
        // Another thread may have added it meanwhile.
        Ok(known(&gpus).unwrap_or_else(|| {
            let gpu: &'static Self = Box::leak(Box::new(created));
            gpus.push(gpu);
            gpu
        }))
    }

    /// Whether an earlier trial of a memory type for its kind has succeeded.
    pub(crate) fn is_tried(&self, memory_type: &MemoryType) -> bool {
        self.trials.lock().contains(&(memory_type.kind, memory_type.info.index))
    }

    /// Remembers that a trial has succeeded.
    pub(crate) fn record_trial(&self, memory_type: &MemoryType) {
        self.trials.lock().insert((memory_type.kind, memory_type.info.index));
    }

    pub(crate) const fn retired(&self) -> &RetireQueue {
        &self.retired
    }

    pub(crate) fn copy_thresholds(&self) -> CopyThresholds {
        let [read, write] = self.thresholds.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
        CopyThresholds { read, write }
    }

    pub(crate) fn set_copy_thresholds(&self, CopyThresholds { read, write }: CopyThresholds) {
        let bytes = self.thresholds.iter().zip([read, write]);
        bytes.for_each(|(threshold, bytes)| threshold.store(bytes, Ordering::Relaxed));
    }
}

impl fmt::Debug for VulkanGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device.fmt(f)
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
