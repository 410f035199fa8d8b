//! Each GPU: its memory, its BAR, and what it is.

use vkgdr::ash::vk::MemoryPropertyFlags as Property;
use vkgdr::diagnosis::{Evidence, System};
use vkgdr::{Error, Memory, MemoryInfo, MemoryInfoSource, MemoryKind, OpenFlags, Vkgdr, in_units};

use super::{Check, Group, Level};
use crate::info::{is_simulated, made_by, maker};
use crate::linux;

/// The BAR that is not resized (NVIDIA's BAR 1 default), of which a driver reserves a part.
const SMALL_BAR: u64 = 256 << 20;
/// `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`.
const EXPORTS_DMA_BUF: i32 = 124;
/// Whether the CPU can map a dma-buf of CUDA's memory, since CUDA 13.3. cudarc has no name for it.
const MAPS_DMA_BUF: i32 = 152;
/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: i32 = 100;
/// `CUDA_ERROR_DEVICE_UNAVAILABLE`.
const BUSY: i32 = 46;

/// The remedy for an error that names none.
const SYSTEM_SAYS: &str = "see what `nvidia-smi` and the kernel's log (`dmesg`) say";

/// What was found out by opening the GPUs.
pub(super) struct Gpus {
    /// How the CUDA driver starts; none if it cannot be loaded.
    pub(super) start: Option<Check>,
    pub(super) devices: Vec<Device>,
}

#[derive(Default)]
pub(super) struct Device {
    pub(super) opened: bool,
    pub(super) mapped: bool,
    pub(super) simulated: bool,
    pub(super) checks: Vec<Check>,
}

pub(super) fn all(system: &System, evidence: &Evidence) -> Gpus {
    let (id, subject) = ("cuda", "CUDA devices");
    let count = match vkgdr::device_count() {
        Ok(count) => count,
        Err(Error::Library { .. } | Error::Symbol { .. }) => return Gpus { start: None, devices: Vec::new() },
        Err(error) => {
            // The text of another error ends with its own remedy.
            let remedy = (error.cuda_code() == Some(NO_DEVICE)).then(no_device);
            let check = Check { level: Level::Failed, remedy, ..Check::ok(id, subject, error.to_string()) };
            return Gpus { start: Some(check), devices: Vec::new() };
        }
    };
    let check = Check::ok(id, subject, count.to_string());
    let check = if count == 0 { check.at(Level::Failed, no_device()) } else { check };
    Gpus { start: Some(check), devices: (0..count).map(|number| device(system, evidence, number)).collect() }
}

fn no_device() -> String {
    match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(value) => format!("CUDA_VISIBLE_DEVICES is '{value}': unset it, or name a GPU of `nvidia-smi -L`"),
        Err(_) => "see what `nvidia-smi` says; after an update of the driver, restart".to_owned(),
    }
}

fn device(system: &System, evidence: &Evidence, number: i32) -> Device {
    let opened = Vkgdr::open(number, OpenFlags::empty()).and_then(|gpu| {
        // Other errors, as of a GPU whose memory is full, say nothing of what it can do.
        let is_busy = |error: &vkgdr::Error| error.cuda_code() == Some(BUSY);
        Vkgdr::open_primary_context(number, OpenFlags::empty()).err().filter(is_busy).map_or(Ok(gpu), Err)
    });
    let gpu = match opened {
        Ok(gpu) => gpu,
        Err(error) => {
            let check = Check::ok("open", "GPU", format!("cannot be opened: {error}"))
                .at(Level::Failed, "see what `nvidia-smi` says");
            return Device { checks: vec![check.on(number)], ..Device::default() };
        }
    };
    let mapped = tried(&gpu, MemoryKind::Mapped);
    let at = gpu.pci_bus_id().map_or_else(|_| String::new(), |id| format!(", PCI {id}"));
    let mut checks = vec![Check::ok("open", "GPU", format!("{}{at}", gpu.name()))];
    checks.extend(Evidence::is_slice(gpu.name()).map(|finding| Check::found("mig", "MIG", finding)));
    checks.extend(is_virtual(gpu.name()).then(virtual_gpu));
    let has_mapped = mapped.is_ok();
    checks.push(mapped_memory(&gpu, evidence, &mapped));
    checks.extend(mapped.ok().and_then(|info| bar(system, &gpu, info.total)));
    checks.push(other_memory(&gpu, MemoryKind::Host));
    checks.push(other_memory(&gpu, MemoryKind::Device));
    checks.push(dma_buf(&gpu));
    if has_mapped {
        checks
            .iter_mut()
            .filter(|check| check.group == Group::Vulkan)
            .for_each(|check| check.excuse("it can be mapped"));
    }
    let checks = checks.into_iter().map(|check| check.on(number)).collect();
    Device { opened: true, mapped: has_mapped, simulated: is_simulated(gpu.name()), checks }
}

/// How much memory of a kind there is, of which some can be allocated: `memory_info` fails for refusals of the kind alone.
fn tried(gpu: &Vkgdr, kind: MemoryKind) -> vkgdr::Result<MemoryInfo> {
    let info = gpu.memory_info(kind)?;
    let own = Vkgdr::open_primary_context(gpu.device(), OpenFlags::empty())?;
    Memory::allocate(&own, 1, kind)?.free()?;
    Ok(info)
}

/// Whether a name is that of a vGPU: `GRID …`, or one that ends in its profile, such as `NVIDIA A40-8Q`.
fn is_virtual(name: &str) -> bool {
    let profile = name.rsplit_once('-').map_or("", |(_, profile)| profile);
    let memory = profile.trim_end_matches(['A', 'B', 'C', 'Q']);
    name.starts_with("GRID ")
        || (memory.len() + 1 == profile.len() && !memory.is_empty() && memory.bytes().all(|byte| byte.is_ascii_digit()))
}

fn virtual_gpu() -> Check {
    Check::ok("vgpu", "vGPU", "this is a virtual GPU; NVIDIA has Vulkan for profiles of series Q only")
        .of(Group::Vulkan)
        .at(Level::Limited, "ask the host's administrator for a profile of series Q, or pass a whole GPU through")
}

fn mapped_memory(gpu: &Vkgdr, evidence: &Evidence, mapped: &vkgdr::Result<MemoryInfo>) -> Check {
    let (id, subject) = ("mapped", "mapped memory");
    let limited = |text: String| Check { level: Level::Limited, ..Check::ok(id, subject, text) };
    match mapped {
        Ok(info) => {
            let amount = match info.source {
                MemoryInfoSource::Budget => format!("{} free of {}", in_units(info.available), in_units(info.total)),
                _ => in_units(info.total),
            };
            let is_coherent =
                gpu.memory_type_of(MemoryKind::Mapped).is_ok_and(|found| found.flags.contains(Property::HOST_COHERENT));
            let check = Check::ok(id, subject, format!("{amount}, coherent"));
            if is_coherent {
                return check;
            }
            let text = format!("{amount}, not coherent");
            Check { text, ..check }.at(Level::Note, "flush after the CPU's writes, invalidate before its reads")
        }
        Err(Error::NoVulkan { error, headless, .. }) => {
            limited(error.to_string()).at(Level::Limited, evidence.cause(gpu.name(), headless).to_string())
        }
        Err(Error::NoSuitableMemoryType { wanted, .. }) => {
            limited(format!("the GPU has no memory that the CPU can map ({wanted})"))
                .at(Level::Limited, "enable Above 4G decoding and Resizable BAR in the firmware, or use host memory")
        }
        Err(Error::Extension { device, extension }) => limited(format!("Vulkan device {device} has no {extension}"))
            .at(Level::Limited, "install a newer NVIDIA driver"),
        Err(error) => limited(error.to_string()).at(Level::Limited, SYSTEM_SAYS),
    }
}

/// How much of the GPU's memory can be mapped. None if the two kinds have one heap.
fn bar(system: &System, gpu: &Vkgdr, mapped: u64) -> Option<Check> {
    let heap = |kind| gpu.memory_type_of(kind).ok().map(|found| found.heap);
    let device = gpu.memory_info(MemoryKind::Device).ok()?.total;
    let (id, subject) = ("bar", "BAR");
    if heap(MemoryKind::Mapped) == heap(MemoryKind::Device) || mapped >= device {
        return Some(Check::ok(id, subject, "all of the GPU's memory is offered for mapping"));
    }
    let check = Check::ok(id, subject, format!("{} of {} can be mapped", in_units(mapped), in_units(device)));
    if mapped > SMALL_BAR {
        return Some(Check { level: Level::Note, ..check });
    }
    let bus_id = gpu.pci_bus_id().unwrap_or_default();
    let advice = "enable Above 4G decoding and Resizable BAR in the firmware";
    let now = linux::bar_size(system, &bus_id);
    let remedy = match linux::largest_bar(system, &bus_id) {
        Some(largest) if now.is_none_or(|now| largest > now) => {
            format!("this GPU's BAR can have {}: {advice}", in_units(largest))
        }
        _ if now.is_some() => format!("{advice}; Linux sees no larger size: the GPU may need a newer VBIOS"),
        _ => format!("{advice}; some GPUs need a newer VBIOS"),
    };
    Some(check.at(Level::Limited, remedy))
}

fn other_memory(gpu: &Vkgdr, kind: MemoryKind) -> Check {
    let (id, subject) = if kind == MemoryKind::Host { ("host", "host memory") } else { ("device", "device memory") };
    match tried(gpu, kind).and_then(|_| gpu.memory_type_of(kind)) {
        Ok(found) => Check::ok(id, subject, made_by(maker(kind, found))),
        Err(error) => Check::ok(id, subject, error.to_string()).at(Level::Limited, SYSTEM_SAYS),
    }
}

/// Whether other libraries' CUDA memory can be mapped.
fn dma_buf(gpu: &Vkgdr) -> Check {
    let (id, subject) = ("dma-buf", "dma-buf");
    let holds = |number| gpu.attribute(number).map(|value| value != 0);
    let (level, text) = match (holds(EXPORTS_DMA_BUF), holds(MAPS_DMA_BUF)) {
        _ if gpu.supports_existing().is_ok_and(|supported| supported) => {
            (Level::Ok, "the CPU can map CUDA memory of other libraries")
        }
        (Ok(true), Ok(false)) => (Level::Note, "CUDA memory can be exported, but the CPU cannot map it"),
        (Ok(true), Ok(true) | Err(_)) => (Level::Note, "CUDA memory can be exported; mapping it needs CUDA 13.3"),
        _ => (Level::Note, "the CPU cannot map CUDA memory of other libraries"),
    };
    Check { level, ..Check::ok(id, subject, text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_gpus_are_known_by_their_names() {
        for name in ["GRID T4-8Q", "NVIDIA A40-48Q", "NVIDIA A100-10C", "GRID RTX6000-1B"] {
            assert!(is_virtual(name), "{name}");
        }
        for name in [
            "NVIDIA A40",
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA A100-PCIE-40GB",
            "NVIDIA H100 PCIe",
            "Tesla V100-SXM2-16GB",
            "X-Q",
        ] {
            assert!(!is_virtual(name), "{name}");
        }
    }
}
