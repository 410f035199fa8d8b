//! `vkgdr info`: every CUDA device with the memory that can be allocated on it, as facts for `--json` (docs/command.md describes
//! the fields), and as text for a terminal.

use serde_json::{Map, Value, json};
use vkgdr::ash::vk::MemoryPropertyFlags as Property;
use vkgdr::diagnosis::System;
use vkgdr::{CopyRoutine, MemoryKind, MemoryTypeInfo, OpenFlags, Vkgdr, hyphenated, in_units};

use crate::screen::{Screen, unless_closed, wrap};
use crate::{FAILURE, Result, SUCCESS, linux, text};

/// Whether a GPU of this name is the simulated driver's.
pub(crate) fn is_simulated(name: &str) -> bool {
    name.starts_with("Simulated CUDA device")
}

pub(crate) fn run(screen: &mut Screen, system: &System, json: bool) -> Result<u8> {
    let facts = gather(system);
    let printed = if json { screen.print_json(&facts) } else { screen.print(&page(&facts, screen.width())) };
    unless_closed(printed)?;
    let has_error = |value: &Value| value.get("error").is_some();
    let failed = has_error(&facts) || facts["devices"].as_array().is_some_and(|devices| devices.iter().any(has_error));
    Ok(if failed { FAILURE } else { SUCCESS })
}

fn gather(system: &System) -> Value {
    let mut facts = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cuda_version": vkgdr::driver_version().ok().map(text::cuda_version),
        "nvidia_driver": system.kernel_module(),
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
    let kinds: Map<_, _> = MemoryKind::ALL.iter().map(|kind| (kind.to_string(), facts_of_kind(&gpu, *kind))).collect();
    let bus_id = gpu.pci_bus_id()?;
    let thresholds = gpu.copy_thresholds();
    Ok(json!({
        "device": number,
        "name": gpu.name(),
        "simulated": is_simulated(gpu.name()),
        "uuid": hyphenated(gpu.uuid()),
        "pci_bus_id": bus_id,
        "bar_size": kinds["mapped"].get("total"),
        "bar_free": kinds["mapped"].get("free"),
        "pci_bar1_size": linux::bar_size(system, &bus_id),
        "kinds": kinds,
        "memory_types": gpu.memory_types().iter().map(|found| json!({
            "memory_type": found.index,
            "heap": found.heap,
            "heap_size": found.heap_size,
            "flags": found.property_names(),
        })).collect::<Vec<_>>(),
        "maps_existing": gpu.supports_existing().ok(),
        "copy_thresholds": { "read": thresholds.read, "write": thresholds.write },
    }))
}

fn facts_of_kind(gpu: &Vkgdr, kind: MemoryKind) -> Value {
    let found = gpu.memory_info(kind).and_then(|info| Ok((info, gpu.memory_type_of(kind)?)));
    let (info, memory_type) = match found {
        Ok(found) => found,
        Err(error) => return json!({ "error": error.to_string() }),
    };
    let by_vulkan = memory_type.index != MemoryTypeInfo::OUTSIDE_VULKAN;
    let coherent = kind.has_host_view().then(|| memory_type.flags.contains(Property::HOST_COHERENT));
    json!({
        "made_by": maker(kind, memory_type),
        "memory_type": by_vulkan.then_some(memory_type.index),
        "flags": memory_type.property_names(),
        "coherent": coherent,
        "heap": by_vulkan.then_some(memory_type.heap),
        "heap_size": memory_type.heap_size,
        "free": info.available,
        "total": info.total,
        "source": info.source.to_string(),
    })
}

/// What makes memory of a kind and a type, in the word of `--json`.
pub(crate) fn maker(kind: MemoryKind, memory_type: MemoryTypeInfo) -> &'static str {
    match kind {
        _ if memory_type.index != MemoryTypeInfo::OUTSIDE_VULKAN => "Vulkan",
        MemoryKind::Host => "registered pages",
        _ => "cuMemAlloc",
    }
}

/// The text for a [`maker`].
pub(crate) fn made_by(maker: &str) -> &'static str {
    match maker {
        "Vulkan" => "allocated by Vulkan",
        "cuMemAlloc" => "allocated by CUDA",
        _ => "pages registered with CUDA",
    }
}

/// In terminals with fewer columns each value is below its label.
const NARROW: usize = 60;
/// The columns of the labels.
const LABEL: usize = 9;

/// A label with its lines.
type Row = (&'static str, Vec<String>);

fn page(facts: &Value, width: usize) -> String {
    let mut lines = wrap(&heading(facts), width, "", "  ");
    for device in facts["devices"].as_array().into_iter().flatten() {
        let name = device["name"].as_str().map_or_else(String::new, |name| format!(": {name}"));
        lines.push(String::new());
        lines.extend(wrap(&format!("CUDA device {}{name}", device["device"]), width, "", "  "));
        let failed = device.get("error").is_some();
        for (label, texts) in rows(device, text_of(facts, "copy_routine")) {
            let indent = if width < NARROW || failed { 4 } else { LABEL + 2 };
            let rest = " ".repeat(indent);
            let mut first = format!("  {label:<LABEL$}");
            if indent == 4 {
                lines.push(format!("  {label}"));
                first = rest.clone();
            }
            for text in texts {
                lines.extend(wrap(&text, width, &first, &rest));
                first.clone_from(&rest);
            }
        }
    }
    if let Some(error) = facts["error"].as_str() {
        lines.push(String::new());
        lines.extend(wrap(&format!("There is no GPU to use: {error}"), width, "", "  "));
        lines.extend(wrap("`vkgdr doctor` looks for the reason.", width, "", "  "));
    }
    lines.join("\n")
}

fn heading(facts: &Value) -> String {
    let known = |key: &str, name: &str| facts[key].as_str().map(|version| format!(", {name} {version}"));
    let versions = [known("cuda_version", "CUDA"), known("nvidia_driver", "NVIDIA driver")];
    format!("vkgdr {}{}", text_of(facts, "version"), versions.into_iter().flatten().collect::<String>())
}

fn text_of<'a>(facts: &'a Value, key: &str) -> &'a str {
    facts[key].as_str().unwrap_or_default()
}

fn size_of(facts: &Value, key: &str) -> String {
    facts[key].as_u64().map_or_else(|| "?".to_owned(), in_units)
}

fn rows(device: &Value, routine: &str) -> Vec<Row> {
    if let Some(error) = device["error"].as_str() {
        return vec![("cannot be opened", vec![error.to_owned()])];
    }
    let kinds = &device["kinds"];
    let kind = |name: &'static str| (name, kind(name, &kinds[name]));
    vec![
        kind("mapped"),
        kind("host"),
        kind("device"),
        ("BAR", bar(device)),
        ("others", others(&device["maps_existing"])),
        ("copies", copies(&device["copy_thresholds"], &kinds["mapped"], routine)),
        ("Vulkan", types(&device["memory_types"], kinds)),
        ("PCI bus", vec![text_of(device, "pci_bus_id").to_owned()]),
        ("UUID", vec![text_of(device, "uuid").to_owned()]),
    ]
}

/// How much there is of a kind, what it is for, and how it is made.
fn kind(name: &str, facts: &Value) -> Vec<String> {
    if let Some(error) = facts["error"].as_str() {
        return vec![format!("none: {error}")];
    }
    let total = size_of(facts, "total");
    let amount = match text_of(facts, "source") {
        "heap size" => format!("{total}; how much of it is free is not known"),
        _ => format!("{} free of {total}", size_of(facts, "free")),
    };
    let is_cached = flags(facts).contains("HOST_CACHED");
    let purpose = match name {
        "mapped" if is_cached => "GPU memory that the CPU writes and reads fast",
        "mapped" => "GPU memory that the CPU writes fast and reads slowly",
        "host" => "system memory, which the GPU reaches over the bus",
        _ => "GPU memory that the CPU does not reach",
    };
    let way = made_by(text_of(facts, "made_by"));
    let coherence = match facts["coherent"].as_bool() {
        Some(true) => ", coherent",
        Some(false) => ", not coherent: flush after the CPU's writes, invalidate before its reads",
        None => "",
    };
    vec![amount, purpose.to_owned(), format!("{way}{coherence}")]
}

/// How much of the GPU's memory the CPU can map.
fn bar(device: &Value) -> Vec<String> {
    let (mapped, all) = (&device["kinds"]["mapped"], &device["kinds"]["device"]);
    let offered = match (device["bar_size"].is_null(), mapped["heap"] == all["heap"]) {
        (true, _) => "no memory can be mapped".to_owned(),
        (false, true) => "all of the GPU's memory is offered for mapping".to_owned(),
        (false, false) => format!("{} of {} can be mapped", size_of(device, "bar_size"), size_of(all, "total")),
    };
    let by_linux = (!device["pci_bar1_size"].is_null())
        .then(|| format!("Linux gives BAR 1 of the GPU {}", size_of(device, "pci_bar1_size")));
    [Some(offered), by_linux].into_iter().flatten().collect()
}

/// Memory that other libraries allocated.
fn others(maps: &Value) -> Vec<String> {
    let text = match maps.as_bool() {
        Some(true) => "the CPU can map CUDA memory of other libraries",
        Some(false) => "the CPU cannot map CUDA memory of other libraries",
        None => "not known",
    };
    vec![text.to_owned()]
}

fn flags(facts: &Value) -> String {
    let names: Vec<_> = facts["flags"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { "no property flags".to_owned() } else { names.join(", ") }
}

/// Vulkan's memory types, with the kinds that are of each.
fn types(list: &Value, kinds: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return vec!["cannot be used for this GPU".to_owned()];
    }
    let line = |found: &Value| {
        let (index, heap) = (&found["memory_type"], &found["heap"]);
        let is_of = |kind: &MemoryKind| kinds[kind.to_string()]["memory_type"] == *index;
        let names: Vec<_> = MemoryKind::ALL.iter().filter(|kind| is_of(kind)).map(MemoryKind::to_string).collect();
        let of = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        format!("memory type {index}{of}, heap {heap} of {}: {}", size_of(found, "heap_size"), flags(found))
    };
    list.iter().map(line).collect()
}

fn copies(thresholds: &Value, mapped: &Value, routine: &str) -> Vec<String> {
    let from = |key: &str| match thresholds[key].as_u64() {
        Some(bytes) if bytes < usize::MAX as u64 => format!("from {}", in_units(bytes)),
        _ => "never".to_owned(),
    };
    let by_engine = match mapped["coherent"].as_bool() {
        Some(true) if !flags(mapped).contains("HOST_CACHED") => {
            format!("the copy engine copies once it is prepared: reads {}, writes {}", from("read"), from("write"))
        }
        _ => "the copy engine copies device memory alone".to_owned(),
    };
    vec![format!("the CPU copies, by its routine {routine}"), by_engine]
}
