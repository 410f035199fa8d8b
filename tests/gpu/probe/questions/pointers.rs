//! What CUDA says of device pointers that come from imported memory, and with whom it lets them be shared.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use vkgdr::MemoryKind;

use super::yes_no;
use crate::cuda::{self, Answer, Buffer};
use crate::{Probe, allocate};

const LEN: usize = 2 << 20;

/// `CUpointer_attribute` values of cuda.h.
const MEMORY_TYPE: i32 = 2;
const ATTRIBUTES: [(i32, &str); 15] = [
    (MEMORY_TYPE, "memory type"),
    (9, "device ordinal"),
    (1, "context"),
    (3, "device pointer"),
    (4, "host pointer"),
    (7, "buffer id"),
    (8, "managed"),
    (10, "IPC capable"),
    (11, "range start"),
    (12, "range size"),
    (13, "mapped"),
    (14, "allowed handle types"),
    (15, "GPUDirect RDMA capable"),
    (16, "access flags"),
    (6, "sync memops"),
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
    const DMA_BUF_SUPPORTED: i32 = 124;
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

/// Registering with a network card needs a card; this tells what the driver would contribute.
pub(super) fn peer(probe: &Probe) -> Answer<String> {
    let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    for module in ["nvidia_peermem", "nv_peer_mem", "ib_uverbs", "gdrdrv", "nvidia_fs"] {
        println!("kernel module {module}: {}", modules.lines().any(|line| line.starts_with(&format!("{module} "))));
    }
    for (attribute, name) in
        [(116, "GPU_DIRECT_RDMA_SUPPORTED"), (117, "FLUSH_WRITES_OPTIONS"), (118, "WRITES_ORDERING")]
    {
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
