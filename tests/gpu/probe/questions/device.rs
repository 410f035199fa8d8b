//! What the two drivers say of the GPU and its memory.
#![forbid(unsafe_code)]

use ash::vk;
use vkgdr::MemoryKind;

use super::mib;
use crate::Probe;
use crate::allocate;
use crate::cuda::Answer;

pub(super) fn uuids(probe: &Probe) -> Answer<String> {
    let [v2, v1] = probe.cuda.uuids();
    println!("cuDeviceGetUuid_v2: {v2:?}");
    println!("cuDeviceGetUuid:    {v1:?}");
    let vulkan = probe.vulkan().map(|_| "Vulkan has a device with the UUID of cuDeviceGetUuid_v2".to_owned());
    let same = if v1 == v2 { "both CUDA calls agree" } else { "the CUDA calls DIFFER" };
    Ok(format!("{}; {same}", vulkan.unwrap_or_else(|refusal| format!("NO MATCH ({refusal})"))))
}

pub(super) fn memory_types(probe: &Probe) -> Answer<String> {
    let vulkan = probe.vulkan()?;
    let memory = vulkan.memory();
    let budgets = vulkan.budgets();
    for (index, heap) in memory.memory_heaps_as_slice().iter().enumerate() {
        let budget = budgets.as_ref().and_then(|budgets| budgets.get(index));
        let budget = budget.map_or_else(
            || "no budget known".to_owned(),
            |(budget, usage)| format!("budget {}, used {}", mib(*budget), mib(*usage)),
        );
        println!("heap {index}: {} {:?}, {budget}", mib(heap.size), heap.flags);
    }
    for (index, memory_type) in memory.memory_types_as_slice().iter().enumerate() {
        println!("type {index}: heap {} {:?}", memory_type.heap_index, memory_type.property_flags);
    }
    let limits = vulkan.properties().limits;
    println!("nonCoherentAtomSize: {}", limits.non_coherent_atom_size);
    println!("minMemoryMapAlignment: {}", limits.min_memory_map_alignment);
    println!("maxMemoryAllocationCount: {}", limits.max_memory_allocation_count);
    println!("maxMemoryAllocationSize: {}", mib(vulkan.max_allocation()));
    let wanted = vk::MemoryPropertyFlags::DEVICE_LOCAL | vk::MemoryPropertyFlags::HOST_VISIBLE;
    let mapped: Vec<String> = memory
        .memory_types_as_slice()
        .iter()
        .filter(|memory_type| memory_type.property_flags.contains(wanted))
        .map(|memory_type| {
            let heap = memory.memory_heaps_as_slice().get(memory_type.heap_index as usize);
            format!("{:?} in a heap of {}", memory_type.property_flags, heap.map_or_else(String::new, |h| mib(h.size)))
        })
        .collect();
    Ok(format!("{} types for mapped memory: {}", mapped.len(), mapped.join("; ")))
}

pub(super) fn attributes(probe: &Probe) -> Answer<String> {
    /// `CUdevice_attribute` values of cuda.h.
    const ATTRIBUTES: [(i32, &str); 23] = [
        (75, "compute capability, major"),
        (76, "compute capability, minor"),
        (16, "multiprocessors"),
        (38, "L2 cache bytes"),
        (18, "integrated"),
        (19, "can map host memory"),
        (40, "async engines"),
        (41, "unified addressing"),
        (83, "managed memory"),
        (86, "host native atomics"),
        (88, "pageable memory access"),
        (89, "concurrent managed access"),
        (91, "host pointer for registered memory"),
        (92, "stream waits and writes"),
        (98, "can flush remote writes"),
        (99, "host register"),
        (100, "pageable access by host page tables"),
        (103, "POSIX descriptors for VMM"),
        (113, "read-only host register"),
        (116, "GPUDirect RDMA"),
        (117, "GPUDirect RDMA: ways to flush writes"),
        (118, "GPUDirect RDMA: ordering of writes"),
        (124, "dma-buf"),
    ];
    let mut known = 0;
    for (attribute, name) in ATTRIBUTES {
        match probe.cuda.attribute(attribute) {
            Ok(value) => {
                println!("{name}: {value}");
                known += 1;
            }
            Err(refusal) => println!("{name}: {refusal}"),
        }
    }
    Ok(format!("{known} of {} known to the driver", ATTRIBUTES.len()))
}

pub(super) fn external_features(probe: &Probe) -> Answer<String> {
    let vulkan = probe.vulkan()?;
    let answers = [
        ("opaque fd", vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD),
        ("dma-buf", vk::ExternalMemoryHandleTypeFlags::DMA_BUF_EXT),
        ("host allocation", vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT),
    ]
    .map(|(name, handle)| match vulkan.external_buffer(handle) {
        features if features.is_empty() => format!("{name}: none"),
        features => format!("{name}: {features:?}"),
    });
    Ok(answers.join("; "))
}

pub(super) fn kinds(probe: &Probe) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    println!("{} {}", vkgdr.name(), crate::cuda::hex(&vkgdr.uuid()));
    let mut answers = Vec::new();
    for kind in MemoryKind::ALL {
        if !vkgdr.supports(kind) {
            answers.push(format!("{kind}: not supported"));
            continue;
        }
        println!("{kind}: {:?}", vkgdr.memory_info(kind));
        let memory = allocate(&vkgdr, 4096, kind)?;
        let coherent = if memory.is_coherent() { "coherent" } else { "NOT coherent" };
        let pointers = match memory.host_ptr() {
            Some(host) if host.as_ptr() as u64 == memory.device_ptr() => "one address for both sides",
            Some(_) => "two addresses",
            None => "no host view",
        };
        answers.push(format!("{kind}: {coherent}, atom {}, {pointers}", memory.non_coherent_atom_size()));
    }
    Ok(answers.join("; "))
}
