//! The facts, as `--json` prints them. docs/command.md describes the fields.

use serde_json::{Map, Value, json};
use vkgdr::ash::vk::MemoryPropertyFlags as Property;
use vkgdr::diagnosis::System;
use vkgdr::{CopyRoutine, MemoryKind, MemoryTypeInfo, OpenFlags, Vkgdr};

use crate::linux;
use crate::text;

/// The names of a memory type's properties.
const PROPERTIES: [(Property, &str); 6] = [
    (Property::DEVICE_LOCAL, "DEVICE_LOCAL"),
    (Property::HOST_VISIBLE, "HOST_VISIBLE"),
    (Property::HOST_COHERENT, "HOST_COHERENT"),
    (Property::HOST_CACHED, "HOST_CACHED"),
    (Property::LAZILY_ALLOCATED, "LAZILY_ALLOCATED"),
    (Property::PROTECTED, "PROTECTED"),
];

/// Whether a GPU of this name is the simulated driver's.
pub(crate) fn is_simulated(name: &str) -> bool {
    name.starts_with("Simulated CUDA device")
}

pub(super) fn gather(system: &System) -> Value {
    let mut facts = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cuda_version": vkgdr::driver_version().ok().map(text::cuda_version),
        "nvidia_driver": linux::nvidia_version(system),
        "copy_routine": CopyRoutine::chosen().name(),
        "devices": [],
    });
    match vkgdr::device_count() {
        Ok(0) => facts["error"] = "the CUDA driver has no device".into(),
        Ok(count) => facts["devices"] = (0..count).map(|number| device(system, number)).collect(),
        Err(error) => facts["error"] = error.to_string().into(),
    }
    facts
}

fn device(system: &System, number: i32) -> Value {
    facts_of_device(system, number).unwrap_or_else(|error| json!({ "device": number, "error": error.to_string() }))
}

fn facts_of_device(system: &System, number: i32) -> vkgdr::Result<Value> {
    let gpu = Vkgdr::open(number, OpenFlags::empty())?;
    // Trials decide how host memory is made.
    let kinds: Map<_, _> = MemoryKind::ALL.iter().map(|kind| (kind.to_string(), facts_of_kind(&gpu, *kind))).collect();
    let bus_id = gpu.pci_bus_id()?;
    let thresholds = gpu.copy_thresholds();
    Ok(json!({
        "device": number,
        "name": gpu.name(),
        "simulated": is_simulated(gpu.name()),
        "uuid": text::uuid(gpu.uuid()),
        "pci_bus_id": bus_id,
        "bar_size": kinds["mapped"].get("total"),
        "bar_free": kinds["mapped"].get("free"),
        "pci_bar1_size": linux::bar_size(system, &bus_id),
        "kinds": kinds,
        "memory_types": gpu.memory_types().iter().map(|found| json!({
            "memory_type": found.index,
            "heap": found.heap,
            "heap_size": found.heap_size,
            "flags": names(found.flags),
        })).collect::<Vec<_>>(),
        "maps_existing": gpu.supports_existing().ok(),
        "copy_thresholds": { "read": thresholds.read, "write": thresholds.write },
    }))
}

fn facts_of_kind(gpu: &Vkgdr, kind: MemoryKind) -> Value {
    // The first may change the answer of the second.
    let found = gpu.memory_info(kind).and_then(|info| Ok((info, gpu.memory_type_of(kind)?)));
    let (info, memory_type) = match found {
        Ok(found) => found,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let by_vulkan = memory_type.index != MemoryTypeInfo::OUTSIDE_VULKAN;
    let coherent = kind.has_host_view().then(|| memory_type.flags.contains(Property::HOST_COHERENT));
    json!({
        "made_by": match kind {
            _ if by_vulkan => "Vulkan",
            MemoryKind::Host => "registered pages",
            _ => "cuMemAlloc",
        },
        "memory_type": by_vulkan.then_some(memory_type.index),
        "flags": names(memory_type.flags),
        "coherent": coherent,
        "heap": by_vulkan.then_some(memory_type.heap),
        "heap_size": memory_type.heap_size,
        "free": info.available,
        "total": info.total,
        "source": info.source.to_string(),
    })
}

fn names(properties: Property) -> Vec<&'static str> {
    PROPERTIES.iter().filter(|(property, _)| properties.contains(*property)).map(|(_, name)| *name).collect()
}
