//! The facts as text for a terminal.

use serde_json::Value;

use crate::screen::wrap;
use crate::text::size;

/// In terminals with fewer columns each value is below its label.
const NARROW: usize = 60;
/// The columns of the labels.
const LABEL: usize = 9;

/// A label with its lines.
type Row = (&'static str, Vec<String>);

pub(super) fn text(facts: &Value, width: usize) -> String {
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
    let mut text = format!("vkgdr {}", text_of(facts, "version"));
    if let Some(version) = facts["cuda_version"].as_str() {
        text += &format!(", the driver has CUDA {version}");
    }
    if let Some(version) = facts["nvidia_driver"].as_str() {
        text += &format!(", NVIDIA {version}");
    }
    text
}

fn text_of<'a>(facts: &'a Value, key: &str) -> &'a str {
    facts[key].as_str().unwrap_or_default()
}

fn size_of(facts: &Value, key: &str) -> String {
    facts[key].as_u64().map_or_else(|| "?".to_owned(), size)
}

fn rows(device: &Value, routine: &str) -> Vec<Row> {
    if let Some(error) = device["error"].as_str() {
        return vec![("cannot be opened", vec![error.to_owned()])];
    }
    let kinds = &device["kinds"];
    vec![
        ("UUID", vec![text_of(device, "uuid").to_owned()]),
        ("PCI bus", vec![text_of(device, "pci_bus_id").to_owned()]),
        ("BAR", bar(device)),
        ("mapped", kind(&kinds["mapped"])),
        ("host", kind(&kinds["host"])),
        ("device", kind(&kinds["device"])),
        ("existing", existing(&device["maps_existing"])),
        ("types", types(&device["memory_types"])),
        ("copies", copies(&device["copy_thresholds"], routine)),
    ]
}

fn bar(device: &Value) -> Vec<String> {
    let (mapped, device_kind) = (&device["kinds"]["mapped"], &device["kinds"]["device"]);
    if device["bar_size"].is_null() {
        return vec!["none that Vulkan can map".to_owned()];
    }
    let all = if mapped["heap"] == device_kind["heap"] { ": all of the GPU's memory" } else { "" };
    let mut lines = vec![format!("{}, the heap of mapped memory{all}", size_of(device, "bar_size"))];
    if !device["pci_bar1_size"].is_null() {
        lines.push(format!("{}, PCI's BAR 1 as Linux has it", size_of(device, "pci_bar1_size")));
    }
    lines
}

fn kind(facts: &Value) -> Vec<String> {
    if let Some(error) = facts["error"].as_str() {
        return vec![format!("none: {error}")];
    }
    let total = size_of(facts, "total");
    let source = match text_of(facts, "source") {
        "budget" => "by Vulkan's live budget",
        "system" => "by the system",
        "cuMemGetInfo" => "by cuMemGetInfo",
        _ => "",
    };
    let amount = match source {
        "" => format!("{total}, no live budget"),
        source => format!("{} free of {total}, {source}", size_of(facts, "free")),
    };
    let place = match text_of(facts, "made_by") {
        "Vulkan" => format!("made by Vulkan, memory type {}, heap {}", facts["memory_type"], facts["heap"]),
        "cuMemAlloc" => "made by cuMemAlloc, not from Vulkan".to_owned(),
        _ => "pages registered with CUDA, not from Vulkan".to_owned(),
    };
    let coherence = match facts["coherent"].as_bool() {
        Some(true) => ", coherent",
        Some(false) => ", not coherent: flush and invalidate",
        None => "",
    };
    vec![amount, format!("{place}{coherence}"), flags(facts)]
}

/// Memory that other libraries allocated.
fn existing(maps: &Value) -> Vec<String> {
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

fn types(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return vec!["none, without Vulkan".to_owned()];
    }
    let line = |found: &Value| {
        format!(
            "{} in heap {} of {}: {}",
            found["memory_type"],
            found["heap"],
            size_of(found, "heap_size"),
            flags(found)
        )
    };
    list.iter().map(line).collect()
}

fn copies(thresholds: &Value, routine: &str) -> Vec<String> {
    let from = |key: &str| match thresholds[key].as_u64() {
        Some(bytes) if bytes < usize::MAX as u64 => format!("from {}", size(bytes)),
        _ => "never".to_owned(),
    };
    vec![
        format!("by the CPU with the routine {routine}"),
        format!("by the copy engine, once prepared: reads {}, writes {}", from("read"), from("write")),
    ]
}
