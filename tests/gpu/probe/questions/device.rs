//! Properties of the GPU and its memory, as reported by both drivers.
#![forbid(unsafe_code)]

use ash::vk;
use vkgdr::MemoryKind;
use vkgdr::cudarc::driver::sys::CUdevice_attribute;

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
    const ATTRIBUTES: [(i32, &str); 23] = [
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as i32, "compute capability, major"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as i32, "compute capability, minor"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as i32, "multiprocessors"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE as i32, "L2 cache bytes"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED as i32, "integrated"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY as i32, "can map host memory"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT as i32, "async engines"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING as i32, "unified addressing"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY as i32, "managed memory"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED as i32, "host native atomics"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS as i32, "pageable memory access"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS as i32, "concurrent managed access"),
        (
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM as i32,
            "host pointer for registered memory",
        ),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 as i32, "stream waits and writes"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES as i32, "can flush remote writes"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED as i32, "host register"),
        (
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES as i32,
            "pageable access by host page tables",
        ),
        (
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED as i32,
            "POSIX descriptors for VMM",
        ),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED as i32, "read-only host register"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED as i32, "GPUDirect RDMA"),
        (
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS as i32,
            "GPUDirect RDMA: ways to flush writes",
        ),
        (
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING as i32,
            "GPUDirect RDMA: ordering of writes",
        ),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED as i32, "dma-buf"),
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
    .map(|(name, handle)| {
        let external = vulkan.external_buffer(handle);
        println!("{name}: exportFromImportedHandleTypes {:?}", external.export_from_imported_handle_types);
        println!("{name}: compatibleHandleTypes {:?}", external.compatible_handle_types);
        match external.external_memory_features {
            features if features.is_empty() => format!("{name}: none"),
            features => format!("{name}: {features:?}"),
        }
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
