//! What the two sides see of each other's bytes, by the way in which they share them.
#![forbid(unsafe_code)]

use ash::vk::MemoryPropertyFlags as Property;
use vkgdr::MemoryKind;

use super::{SKIPPED, kind_named};
use crate::Probe;
use crate::cuda::{self, Answer, Imported, Kernel, Registered, Stream};
use crate::host::{Words, store_fence};
use crate::vulkan::Vulkan;

const LEN: usize = 1 << 20;
const ROUNDS: u32 = 500;

/// A type of system memory, and how CUDA gets it.
pub(super) const HOST_MEMORY: &[&str] = &[
    "cached, imported",
    "cached, dedicated, imported",
    "cached, registered",
    "uncached, imported",
    "uncached, registered",
    "pages, registered",
];

/// Whether each side sees what the other stores into system memory.
pub(super) fn host_memory(probe: &Probe, part: &str) -> Answer<String> {
    if part == "pages, registered" {
        let mut pages = vec![0_u32; LEN / 4 + 1024];
        let words = Words::whole_pages(&mut pages, LEN);
        let registered = Registered::new(words.as_ptr(), LEN, 0)?;
        return both_ways(probe, &words, registered.device_pointer()?);
    }
    let vulkan = probe.vulkan()?;
    let memory_type = host_type(&vulkan, part.starts_with("cached"))?;
    let allocation = match part {
        "cached, dedicated, imported" => vulkan.allocate_dedicated(memory_type, LEN as u64)?,
        _ => vulkan.allocate(memory_type, LEN as u64)?,
    };
    let words = Words::map(&allocation, LEN)?;
    if part.ends_with("imported") {
        let imported = Imported::new(allocation.export()?, allocation.size, part.contains("dedicated"))?;
        let buffer = imported.map(0, LEN as u64)?;
        both_ways(probe, &words, buffer.0)
    } else {
        let registered = Registered::new(words.as_ptr(), LEN, 0)?;
        both_ways(probe, &words, registered.device_pointer()?)
    }
}

fn host_type(vulkan: &Vulkan, cached: bool) -> Answer<u32> {
    let memory = vulkan.memory();
    let found = (0..).zip(memory.memory_types_as_slice()).find(|(_, memory_type)| {
        let flags = memory_type.property_flags;
        flags.contains(Property::HOST_VISIBLE | Property::HOST_COHERENT)
            && !flags.contains(Property::DEVICE_LOCAL)
            && flags.contains(Property::HOST_CACHED) == cached
    });
    found.map(|(index, _)| index).ok_or_else(|| format!("{SKIPPED}there is no such memory type"))
}

fn both_ways(probe: &Probe, words: &Words<'_>, address: u64) -> Answer<String> {
    let (kernel, stream, result) = (Kernel::load("copy")?, Stream::new()?, cuda::Buffer::new(4096)?);
    let (mut stale_copies, mut stale_kernels, mut stale_reads) = (0, 0, 0);
    let mut seen = [0_u32];
    for round in 1..=ROUNDS {
        words.set(0, round);
        store_fence();
        cuda::copy_to_host(&mut seen, address)?;
        stale_copies += u32::from(seen[0] != round);
        words.set(1024, round);
        store_fence();
        stream.launch(&kernel, &[address + 4096, result.0, 0])?;
        stream.synchronize()?;
        cuda::copy_to_host(&mut seen, result.0)?;
        stale_kernels += u32::from(seen[0] != round);
        stream.launch(&kernel, &[result.0, address + 8192, 0])?;
        stream.synchronize()?;
        stale_reads += u32::from(words.get(2048) != seen[0]);
    }
    probe.cuda.synchronize()?;
    Ok(format!("of {ROUNDS}, stale to a copy {stale_copies}, to a kernel {stale_kernels}, to the CPU {stale_reads}"))
}

/// A kind of memory, and whether its import may be exported.
pub(super) const IMPORTS: &[&str] =
    &["mapped, plain", "mapped, exportable", "host, plain", "host, exportable", "device, plain", "device, exportable"];

/// Whether Vulkan's import of its own export is the same memory: as the CPU sees it, or by another export and CUDA.
pub(super) fn vulkan_imports(probe: &Probe, part: &str) -> Answer<String> {
    let (kind, how) = part.split_once(", ").unwrap_or((part, ""));
    let (kind, vulkan) = (kind_named(kind), probe.vulkan()?);
    let memory_type = vulkan.type_of(kind)?;
    let original = vulkan.allocate(memory_type, LEN as u64)?;
    let first = Imported::new(original.export()?, LEN as u64, false)?;
    let first = first.map(0, LEN as u64)?;
    let imported = vulkan.import(original.export()?, memory_type, LEN as u64, how == "exportable")?;
    cuda::memset(first.0, 0x77, LEN)?;
    probe.cuda.synchronize()?;
    let mut answers = Vec::new();
    let same = |seen: u32| if seen == 0x7777_7777 { "the same bytes" } else { "OTHER BYTES" };
    if kind != MemoryKind::Device {
        answers.push(format!("mapped: {}", same(Words::map(&imported, LEN)?.get(5000))));
    }
    match imported.export().and_then(|fd| Imported::new(fd, LEN as u64, false)) {
        Ok(second) => {
            let (second, mut seen) = (second.map(0, LEN as u64)?, [0_u32]);
            cuda::copy_to_host(&mut seen, second.0)?;
            answers.push(format!("exported again: {}", same(seen[0])));
        }
        Err(refusal) => answers.push(format!("exported again: {refusal}")),
    }
    Ok(answers.join(", "))
}
