//! Imports of Vulkan memory into CUDA.
#![forbid(unsafe_code)]

use ash::vk;
use vkgdr::MemoryKind;

use super::{NO_MORE, kind_named, yes_no};
use crate::cuda::{self, Answer, Imported};
use crate::host::Words;
use crate::vulkan::Vulkan;
use crate::{Probe, allocate};

/// Numbers of memory types. Vulkan has at most 32 (`VK_MAX_MEMORY_TYPES`), NVIDIA's drivers up to 11.
pub(super) const TYPES: &[&str] =
    &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15"];

pub(super) fn kinds(probe: &Probe, kind: &str) -> Answer<String> {
    let memory = allocate(&probe.vkgdr()?, 1 << 20, kind_named(kind));
    Ok(yes_no(&memory.and_then(|memory| cuda::memset(memory.device_ptr(), 1, 1 << 20))))
}

pub(super) fn types(probe: &Probe, number: &str) -> Answer<String> {
    let vulkan = match probe.vulkan() {
        // The first type has said why.
        Err(_) if number != "0" => return Ok(NO_MORE.to_owned()),
        vulkan => vulkan?,
    };
    let wanted: u32 = number.parse().map_err(|error| format!("{number}: {error}"))?;
    match memory_types(&vulkan).into_iter().find(|(index, _)| *index == wanted) {
        Some((index, flags)) => Ok(format!("{flags:?}: {}", yes_no(&try_type(&vulkan, index, flags)))),
        None => Ok(NO_MORE.to_owned()),
    }
}

fn memory_types(vulkan: &Vulkan) -> Vec<(u32, vk::MemoryPropertyFlags)> {
    (0..).zip(vulkan.memory().memory_types_as_slice().iter().map(|memory_type| memory_type.property_flags)).collect()
}

/// Allocates, exports, imports, and lets the device write and, with a host view, the host read.
fn try_type(vulkan: &Vulkan, index: u32, flags: vk::MemoryPropertyFlags) -> Answer<()> {
    const LEN: usize = 1 << 20;
    let allocation = vulkan.allocate(index, LEN as u64)?;
    let imported = Imported::new(allocation.export()?, LEN as u64, false)?;
    let buffer = imported.map(0, LEN as u64)?;
    cuda::memset(buffer.0, 0x5a, LEN)?;
    if flags.contains(vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT) {
        let seen = {
            let mut first = [0_u32];
            cuda::copy_to_host(&mut first, buffer.0)?;
            Words::map(&allocation, LEN)?.get(LEN / 4 - 1)
        };
        if seen != 0x5a5a_5a5a {
            return Err(format!("imported, but the host sees {seen:#x} where the device wrote 0x5a5a5a5a"));
        }
    }
    Ok(())
}

pub(super) fn sizes(probe: &Probe) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    let vulkan = probe.vulkan()?;
    let memory_type = vulkan.type_of(MemoryKind::Mapped)?;
    let mut through_library = Vec::new();
    for len in [1_usize, 4095, 4096, 4097, 65537] {
        let answer = allocate(&vkgdr, len, MemoryKind::Mapped).map(|memory| {
            println!("{len}: host_ptr {:?}, device_ptr {:#x}", memory.host_ptr(), memory.device_ptr());
            println!("{len}: cuMemGetAddressRange {:?}", cuda::address_range(memory.device_ptr()));
        });
        through_library.push(format!("{len} {}", yes_no(&answer)));

        let size = len as u64;
        if let Ok(needed) = vulkan.buffer_requirements(size) {
            println!("{len}: a buffer needs {} bytes, alignment {}", needed.size, needed.alignment);
        }
        for (what, claimed) in [
            ("the size itself", size),
            ("one byte more", size + 1),
            ("rounded to 4 KiB", size.next_multiple_of(4 << 10)),
            ("rounded to 64 KiB", size.next_multiple_of(64 << 10)),
            ("rounded to 2 MiB", size.next_multiple_of(2 << 20)),
            ("64 MiB", 64 << 20),
        ] {
            let answer = vulkan.allocate(memory_type, size).and_then(|allocation| {
                let imported = Imported::new(allocation.export()?, claimed, false)?;
                let buffer = imported.map(0, claimed)?;
                cuda::address_range(buffer.0)
            });
            let dedicated = vulkan
                .allocate(memory_type, size)
                .and_then(|allocation| Imported::new(allocation.export()?, claimed, true).map(drop));
            println!(
                "{len}: imported as {what} ({claimed}): {}; as dedicated: {}",
                answer.map_or_else(|refusal| format!("no ({refusal})"), |range| format!("yes, range {range:?}")),
                yes_no(&dedicated)
            );
        }
    }
    Ok(format!("through the library: {}", through_library.join(", ")))
}

pub(super) fn overlap(probe: &Probe) -> Answer<String> {
    const SIZE: u64 = 1 << 20;
    let vulkan = probe.vulkan()?;
    let allocation = vulkan.allocate(vulkan.type_of(MemoryKind::Mapped)?, SIZE)?;
    let imported = Imported::new(allocation.export()?, SIZE, false)?;
    let whole = imported.map(0, SIZE)?;
    for (offset, size) in [(4096, 4096), (1, 10), (256, SIZE - 256), (SIZE - 1, 1), (SIZE, 1)] {
        let answer = imported.map(offset, size).map(|buffer| describe(whole.0, buffer.0, offset));
        println!("offset {offset}, size {size}: {}", answer.unwrap_or_else(|refusal| refusal));
    }
    let again = imported.map(0, SIZE)?;
    // Both addresses must reach the same bytes.
    cuda::memset(whole.0, 0x11, 4096)?;
    cuda::memset(again.0 + 1024, 0x22, 1024)?;
    let mut seen = [0_u32; 1024];
    cuda::copy_to_host(&mut seen, whole.0)?;
    let shared = seen[0] == 0x1111_1111 && seen[256] == 0x2222_2222;
    let placed = describe(whole.0, again.0, 0);
    Ok(format!("accepted, {placed}, {}", if shared { "the same bytes" } else { "NOT THE SAME BYTES" }))
}

fn describe(whole: u64, second: u64, offset: u64) -> String {
    if second == whole + offset {
        "at the same address".to_owned()
    } else {
        format!("at another address ({second:#x} beside {whole:#x})")
    }
}

pub(super) fn twice(probe: &Probe) -> Answer<String> {
    const SIZE: u64 = 1 << 20;
    let vulkan = probe.vulkan()?;
    let allocation = vulkan.allocate(vulkan.type_of(MemoryKind::Mapped)?, SIZE)?;
    let first = Imported::new(allocation.export()?, SIZE, false)?;
    let first = first.map(0, SIZE)?;
    let second = Imported::new(allocation.export()?, SIZE, false)?;
    let second = second.map(0, SIZE)?;
    cuda::memset(first.0, 0x77, 4096)?;
    let mut seen = [0_u32];
    cuda::copy_to_host(&mut seen, second.0)?;
    let same = if seen[0] == 0x7777_7777 { "the same bytes" } else { "NOT THE SAME BYTES" };
    // Does CUDA's reference alone keep the memory?
    drop(allocation);
    let survives = cuda::memset(second.0, 0x66, 4096).and_then(|()| cuda::copy_to_host(&mut seen, first.0));
    Ok(format!("accepted, {same}; usable after vkFreeMemory: {}", yes_no(&survives)))
}

/// Vulkan imports memory that it has exported, and exports it again, whether or not it says that it can.
pub(super) fn again(probe: &Probe) -> Answer<String> {
    const SIZE: u64 = 1 << 20;
    let vulkan = probe.vulkan()?;
    let opaque = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
    let types = vulkan.external_buffer(opaque).export_from_imported_handle_types;
    println!("exportFromImportedHandleTypes: {types:?}");
    let memory_type = vulkan.type_of(MemoryKind::Mapped)?;
    let original = vulkan.allocate(memory_type, SIZE)?;
    let first = Imported::new(original.export()?, SIZE, false)?;
    let first = first.map(0, SIZE)?;
    let plain = vulkan.import(original.export()?, memory_type, SIZE, false).map(drop);
    println!("imported by Vulkan: {}", yes_no(&plain));
    let exportable = vulkan.import(original.export()?, memory_type, SIZE, true);
    println!("imported to be exported: {}", yes_no(&exportable));
    let bytes = exportable.and_then(|exportable| {
        let fd = exportable.export()?;
        println!("exported again");
        let second = Imported::new(fd, SIZE, false)?;
        let second = second.map(0, SIZE)?;
        cuda::memset(first.0, 0x77, 4096)?;
        let mut seen = [0_u32];
        cuda::copy_to_host(&mut seen, second.0)?;
        Ok(if seen[0] == 0x7777_7777 { "yes, the same bytes" } else { "yes, but NOT THE SAME BYTES" })
    });
    let says = if types.contains(opaque) { "it can" } else { "it cannot" };
    Ok(format!(
        "Vulkan says {says}; imported at all: {}; exported again and imported by CUDA: {}",
        yes_no(&plain),
        match bytes {
            Ok(bytes) => bytes.to_owned(),
            Err(refusal) => format!("no ({refusal})"),
        }
    ))
}

/// A kind of memory, and whether CUDA is told that it is dedicated.
pub(super) const DEDICATED: &[&str] =
    &["mapped, with the flag", "mapped, without the flag", "host, with the flag", "host, without the flag"];

/// A dedicated allocation of Vulkan, to which its buffer is bound.
pub(super) fn dedicated(probe: &Probe, part: &str) -> Answer<String> {
    let (kind, flag) = part.split_once(", ").unwrap_or((part, ""));
    let vulkan = probe.vulkan()?;
    let allocation = vulkan.allocate_dedicated(vulkan.type_of(kind_named(kind))?, 1 << 20)?;
    let outcome = allocation.export().and_then(|fd| {
        let imported = Imported::new(fd, allocation.size, flag == "with the flag")?;
        let buffer = imported.map(0, allocation.size)?;
        cuda::memset(buffer.0, 0x5a, 1 << 20)?;
        probe.cuda.synchronize()?;
        Ok(Words::map(&allocation, 1 << 20)?.get((1 << 18) - 1))
    });
    Ok(match outcome {
        Ok(0x5a5a_5a5a) => "yes".to_owned(),
        Ok(seen) => format!("imported, and the host sees {seen:#x} where the device wrote 0x5a5a5a5a"),
        Err(refusal) => format!("no ({refusal})"),
    })
}

pub(super) fn visibility(probe: &Probe, kind: &str) -> Answer<String> {
    const LEN: usize = (16 << 20) + 4;
    let memory = allocate(&probe.vkgdr()?, LEN, kind_named(kind))?;
    let words = Words::of(&memory)?;
    cuda::memset(memory.device_ptr(), 0x3c, LEN)?;
    probe.cuda.synchronize()?;
    memory.invalidate(..).map_err(|error| error.to_string())?;
    let ends = [words.get(0), words.get(LEN / 8), words.get(LEN / 4 - 1)];
    Ok(if ends == [0x3c3c_3c3c; 3] { "yes".to_owned() } else { format!("no, the host sees {ends:x?}") })
}
