//! Attributes of device pointers of imported memory, and ways to share them.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use vkgdr::MemoryKind;
use vkgdr::cudarc::driver::sys::{CUdevice_attribute, CUpointer_attribute};

use super::yes_no;
use crate::cuda::{self, Answer, Buffer};
use crate::{Probe, allocate};

const LEN: usize = 2 << 20;
const MEMORY_TYPE: i32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as i32;
const ATTRIBUTES: [(i32, &str); 15] = [
    (MEMORY_TYPE, "memory type"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as i32, "device ordinal"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT as i32, "context"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER as i32, "device pointer"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER as i32, "host pointer"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as i32, "buffer id"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as i32, "managed"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE as i32, "IPC capable"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as i32, "range start"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as i32, "range size"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED as i32, "mapped"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES as i32, "allowed handle types"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE as i32, "GPUDirect RDMA capable"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS as i32, "access flags"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as i32, "sync memops"),
];

fn print_attributes(what: &str, pointer: u64) {
    println!("{what} {pointer:#x}:");
    for (attribute, name) in ATTRIBUTES {
        match cuda::pointer_attribute(attribute, pointer) {
            Ok(value) => println!("  {name}: {value:#x}"),
            Err(refusal) => println!("  {name}: {refusal}"),
        }
    }
    match cuda::address_range(pointer) {
        Ok((base, len)) => println!("  cuMemGetAddressRange: {base:#x}, {len} bytes"),
        Err(refusal) => println!("  {refusal}"),
    }
}

fn memory_type(pointer: u64) -> String {
    match cuda::pointer_attribute(MEMORY_TYPE, pointer) {
        Ok(1) => "host".to_owned(),
        Ok(2) => "device".to_owned(),
        Ok(4) => "unified".to_owned(),
        Ok(other) => format!("type {other}"),
        Err(refusal) => format!("unknown to CUDA ({refusal})"),
    }
}

pub(super) fn attributes(probe: &Probe) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    let mut answers = Vec::new();
    for kind in MemoryKind::ALL {
        let memory = match allocate(&vkgdr, LEN, kind) {
            Ok(memory) => memory,
            Err(refusal) => {
                println!("{kind}: {refusal}");
                continue;
            }
        };
        print_attributes(&format!("{kind} device_ptr"), memory.device_ptr());
        answers.push(format!("{kind} device_ptr is {}", memory_type(memory.device_ptr())));
        if let Some(host) = memory.host_ptr() {
            let host = host.as_ptr() as u64;
            print_attributes(&format!("{kind} host_ptr"), host);
            answers.push(format!("its host_ptr is {}", memory_type(host)));
        }
    }
    if let Ok(buffer) = Buffer::new(LEN) {
        print_attributes("cuMemAlloc, to compare with:", buffer.0);
    }
    Ok(answers.join("; "))
}

pub(super) fn ipc(probe: &Probe) -> Answer<String> {
    each_kind(probe, |_, pointer| cuda::ipc_handle(pointer))
}

pub(super) fn dma_buf(probe: &Probe) -> Answer<String> {
    const DMA_BUF_SUPPORTED: i32 = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED as i32;
    println!("CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: {:?}", probe.cuda.attribute(DMA_BUF_SUPPORTED));
    each_kind(probe, |name, pointer| {
        println!("{name}, with the PCIe mapping flag: {}", yes_no(&cuda::dma_buf(pointer, LEN, 1)));
        cuda::dma_buf(pointer, LEN, 0)
    })
}

/// The same question for imported memory of each kind, then for `cuMemAlloc`.
fn each_kind(probe: &Probe, ask: impl Fn(&str, u64) -> Answer<()>) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    let mut answers = Vec::new();
    for kind in MemoryKind::ALL {
        let name = kind.to_string();
        let answer = allocate(&vkgdr, LEN, kind).and_then(|memory| ask(&name, memory.device_ptr()));
        answers.push(format!("{name}: {}", yes_no(&answer)));
    }
    let answer = Buffer::new(LEN).and_then(|buffer| ask("cuMemAlloc", buffer.0));
    answers.push(format!("cuMemAlloc: {}", yes_no(&answer)));
    Ok(answers.join("; "))
}

/// Registration with a network card needs a card; this reports the driver's side only.
pub(super) fn peer(probe: &Probe) -> Answer<String> {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    for module in ["nvidia_peermem", "nv_peer_mem", "ib_uverbs", "gdrdrv", "nvidia_fs"] {
        println!("kernel module {module}: {}", modules.lines().any(|line| line.starts_with(&format!("{module} "))));
    }
    for (attribute, name) in [
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED as i32, "GPU_DIRECT_RDMA_SUPPORTED"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS as i32, "FLUSH_WRITES_OPTIONS"),
        (CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING as i32, "WRITES_ORDERING"),
    ] {
        println!("{name}: {:?}", probe.cuda.attribute(attribute));
    }
    let sync_memops = each_kind(probe, |_, pointer| cuda::set_sync_memops(pointer))?;
    let cards = fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    let tried = if cards == 0 || !Path::new("/dev/infiniband").exists() {
        "no RDMA network card here, so ibv_reg_mr was not tried".to_owned()
    } else {
        format!("{cards} RDMA network cards here; ibv_reg_mr was not tried")
    };
    Ok(format!("{tried}; SYNC_MEMOPS can be set: {sync_memops}"))
}
