//! Attributes of device pointers of imported memory, and ways to share them.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use vkgdr::MemoryKind;
use vkgdr::cudarc::driver::sys::{CUdevice_attribute, CUpointer_attribute};

use super::{kind_named, yes_no};
use crate::cuda::{self, Answer, Buffer, Cuda, Physical, Reservation};
use crate::{Probe, allocate};

const LEN: usize = 2 << 20;
const MEMORY_TYPE: i32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as i32;
const BUFFER_ID: i32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as i32;
const BLOCK_ID: i32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID as i32;
const ATTRIBUTES: [(i32, &str); 16] = [
    (MEMORY_TYPE, "memory type"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as i32, "device ordinal"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT as i32, "context"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER as i32, "device pointer"),
    (CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER as i32, "host pointer"),
    (BUFFER_ID, "buffer id"),
    (BLOCK_ID, "memory block id"),
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

/// Memory whose addresses are asked about.
pub(super) const MEMORY: &[&str] = &["mapped", "host", "device", "cuMemAlloc", "cuMemMap"];

pub(super) fn attributes(probe: &Probe, part: &str) -> Answer<String> {
    match part {
        "cuMemAlloc" => {
            let buffer = Buffer::new(LEN)?;
            print_attributes("cuMemAlloc", buffer.0);
            Ok(format!("{}, {}", memory_type(buffer.0), ids(buffer.0)))
        }
        "cuMemMap" => virtual_memory(&probe.cuda),
        kind => {
            let memory = allocate(&probe.vkgdr()?, LEN, kind_named(kind))?;
            let device = memory.device_ptr();
            print_attributes("device_ptr", device);
            let answer = format!("device_ptr is {}, {}", memory_type(device), ids(device));
            let Some(host) = memory.host_ptr() else { return Ok(answer) };
            let host = host.as_ptr() as u64;
            print_attributes("host_ptr", host);
            Ok(format!("{answer}; host_ptr is {}", memory_type(host)))
        }
    }
}

fn ids(pointer: u64) -> String {
    let id =
        |attribute| cuda::pointer_attribute(attribute, pointer).map_or_else(|refusal| refusal, |id| id.to_string());
    format!("buffer {}, block {}", id(BUFFER_ID), id(BLOCK_ID))
}

/// Which ids tell two pieces of physical memory in one reservation apart, and the second one that is mapped to an address.
fn virtual_memory(cuda: &Cuda) -> Answer<String> {
    let len = Physical::granularity(cuda)?;
    println!("granularity: {len}");
    let reservation = Reservation::new(2 * len)?;
    let pieces = [Physical::new(cuda, len)?, Physical::new(cuda, len)?, Physical::new(cuda, len)?];
    reservation.map(cuda, 0, &pieces[0])?;
    reservation.map(cuda, len, &pieces[1])?;
    let second = reservation.start + len as u64;
    print_attributes("first piece", reservation.start);
    print_attributes("second piece", second);
    let before = [ids(reservation.start), ids(second)];
    reservation.unmap(len, len)?;
    println!("second address, unmapped: {}", ids(second));
    reservation.map(cuda, len, &pieces[2])?;
    let after = ids(second);
    reservation.unmap(0, len)?;
    reservation.unmap(len, len)?;
    let [first, second] = before;
    Ok(format!("first piece: {first}; second piece: {second}; another piece at its address: {after}"))
}

pub(super) fn ipc(probe: &Probe) -> Answer<String> {
    each_kind(probe, cuda::ipc_handle)
}

pub(super) fn dma_buf(probe: &Probe, kind: &str) -> Answer<String> {
    let memory = allocate(&probe.vkgdr()?, LEN, kind_named(kind))?;
    let [plain, pcie] = [0, 1].map(|flags| {
        let answer = yes_no(&cuda::dma_buf(memory.device_ptr(), LEN, flags));
        println!("flags {flags}: {answer}");
        answer
    });
    Ok(format!("{plain}; with the PCIe mapping flag: {pcie}"))
}

/// The same question for imported memory of each kind, then for `cuMemAlloc`.
fn each_kind(probe: &Probe, ask: impl Fn(u64) -> Answer<()>) -> Answer<String> {
    let vkgdr = probe.vkgdr()?;
    let mut answers = Vec::new();
    for kind in MemoryKind::ALL {
        let answer = allocate(&vkgdr, LEN, kind).and_then(|memory| ask(memory.device_ptr()));
        answers.push(format!("{kind}: {}", yes_no(&answer)));
    }
    let answer = Buffer::new(LEN).and_then(|buffer| ask(buffer.0));
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
    let sync_memops = each_kind(probe, cuda::set_sync_memops)?;
    let cards = fs::read_dir("/sys/class/infiniband").map_or(0, Iterator::count);
    let tried = if cards == 0 || !Path::new("/dev/infiniband").exists() {
        "no RDMA network card here, so ibv_reg_mr was not tried".to_owned()
    } else {
        format!("{cards} RDMA network cards here; ibv_reg_mr was not tried")
    };
    Ok(format!("{tried}; SYNC_MEMOPS can be set: {sync_memops}"))
}
