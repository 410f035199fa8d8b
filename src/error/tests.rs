//! The texts of errors.

use super::*;

#[test]
fn an_allocation_error_names_operation_token_sizes_and_remedy() {
    let error = |operation, asked| Error::Allocation {
        operation,
        code: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        kind: MemoryKind::Mapped,
        asked,
        heap: 256 << 20,
        free: None,
        others: Vec::new(),
    };
    assert_eq!(
        error(Some("vkAllocateMemory"), 200 << 20).to_string(),
        "vkAllocateMemory failed (VK_ERROR_OUT_OF_DEVICE_MEMORY): requested 200 MiB of mapped memory; \
         the heap has 256 MiB; enable Resizable BAR in the firmware to map more"
    );
    assert_eq!(
        error(None, 2 << 30).to_string(),
        "requested 2 GiB of mapped memory; the heap has 256 MiB (VK_ERROR_OUT_OF_DEVICE_MEMORY); \
         enable Resizable BAR in the firmware to map more"
    );
    assert_eq!(
        error(Some("vkAllocateMemory"), 4096).to_string(),
        "vkAllocateMemory failed (VK_ERROR_OUT_OF_DEVICE_MEMORY): requested 4 KiB of mapped memory; the heap has \
         256 MiB; enable Resizable BAR in the firmware to map more, or, if too many files are open, raise ulimit -n"
    );
    assert!(error(None, 2 << 30).is_exhaustion() && error(None, 2 << 30).exceeds_the_heap());
    assert!(!error(Some("vkAllocateMemory"), 200 << 20).exceeds_the_heap());
}

#[test]
fn an_allocation_error_in_spite_of_the_budget_says_so_and_names_other_kinds() {
    let error = |heap: u64, others: &[MemoryKind]| Error::Allocation {
        operation: Some("vkAllocateMemory"),
        code: vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        kind: MemoryKind::Mapped,
        asked: 100 << 20,
        heap,
        free: Some(200 << 20),
        others: others.to_vec(),
    };
    assert_eq!(
        error(246 << 20, &[MemoryKind::Host, MemoryKind::Device]).to_string(),
        "vkAllocateMemory failed (VK_ERROR_OUT_OF_DEVICE_MEMORY): requested 100 MiB of mapped memory; \
         the heap has 246 MiB; the BAR is full or fragmented: 200 MiB of 246 MiB free by the budget; \
         host and device memory would work; enable Resizable BAR in the firmware to map more"
    );
    let large = error(8 << 30, &[MemoryKind::Host]).to_string();
    assert!(large.ends_with("200 MiB of 8 GiB free by the budget; host memory would work"), "{large}");
    assert!(error(8 << 30, &[]).to_string().ends_with("free by the budget"));
}

#[test]
fn a_missing_host_view_names_the_address_of_memory_and_none_for_a_device() {
    let error = |address, reason| Error::NoMapping { address, reason }.to_string();
    assert!(error(0x1000, NoMapping::Empty).starts_with("no host view of the memory at 0x1000: "));
    assert!(error(0, NoMapping::Unknown).starts_with("no host view of the memory at 0x0: "));
    assert!(error(0, NoMapping::NoMmap { device: 3 }).starts_with("the CPU cannot map a dma-buf of CUDA device 3"));
}

#[test]
fn codes_that_nobody_knows_keep_their_number() {
    let vulkan = Error::Vulkan { operation: "vkMapMemory", code: vk::Result::from_raw(-987_654) };
    assert_eq!(vulkan.to_string(), "vkMapMemory failed (unknown Vulkan error -987654)");
    let cuda = Error::Cuda { operation: "cuMemFree", code: CudaCode::new(4242, None) };
    assert_eq!(cuda.to_string(), "cuMemFree failed (unknown CUDA error 4242)");
}
