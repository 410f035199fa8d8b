//! Pointer attributes: properties of the allocation that an address lies in, or of the range of reserved addresses.

use cudarc::driver::sys::{CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS, CUmemorytype};

use crate::boundary::exports;
use crate::code::{Code, INVALID_VALUE, NOT_SUPPORTED, Outcome};
use crate::context;
use crate::ffi::{In, Out};
use crate::memory::table::{self, Found, Kind};
use crate::memory::window::Window;
use crate::owner::Owner;
use crate::profile::profile;
use crate::virtual_memory::{self, Mapped};

const MEMORY_TYPE_HOST: u32 = CUmemorytype::CU_MEMORYTYPE_HOST as u32;
const MEMORY_TYPE_DEVICE: u32 = CUmemorytype::CU_MEMORYTYPE_DEVICE as u32;
// No memory is bound to a part of its device.
const NOT_LOCALIZED: i32 = -1;
// The device ordinal that cuPointerGetAttributes reports for an unknown address.
const INVALID_ORDINAL: i32 = -2;
const NO_ACCESS: u32 = CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS::CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE as u32;
const READ_WRITE: u32 = CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS::CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE as u32;

/// A value of the type that the attribute is documented to have.
enum Value {
    Bool(bool),
    Int(i32),
    Uint(u32),
    Wide(u64),
    Pointer(usize),
}

impl Value {
    fn write(self, out: Out<u8>) {
        match self {
            Value::Bool(value) => out.set_if_wanted(u8::from(value)),
            Value::Int(value) => out.cast().set_if_wanted(value),
            Value::Uint(value) => out.cast().set_if_wanted(value),
            Value::Wide(value) => out.cast().set_if_wanted(value),
            Value::Pointer(value) => out.cast().set_if_wanted(value),
        }
    }
}

/// The attributes, as the integers that callers pass.
mod attribute {
    use cudarc::driver::sys::CUpointer_attribute;

    pub(super) const CONTEXT: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT as u32;
    pub(super) const MEMORY_TYPE: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as u32;
    pub(super) const DEVICE_POINTER: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER as u32;
    pub(super) const HOST_POINTER: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER as u32;
    pub(super) const P2P_TOKENS: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_P2P_TOKENS as u32;
    pub(super) const SYNC_MEMOPS: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as u32;
    pub(super) const BUFFER_ID: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as u32;
    pub(super) const IS_MANAGED: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED as u32;
    pub(super) const DEVICE_ORDINAL: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as u32;
    pub(super) const IS_LEGACY_CUDA_IPC_CAPABLE: u32 =
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE as u32;
    pub(super) const RANGE_START_ADDR: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as u32;
    pub(super) const RANGE_SIZE: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as u32;
    pub(super) const MAPPED: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPED as u32;
    pub(super) const ALLOWED_HANDLE_TYPES: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES as u32;
    pub(super) const IS_GPU_DIRECT_RDMA_CAPABLE: u32 =
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE as u32;
    pub(super) const ACCESS_FLAGS: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS as u32;
    pub(super) const MEMPOOL_HANDLE: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as u32;
    pub(super) const MAPPING_SIZE: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE as u32;
    pub(super) const MAPPING_BASE_ADDR: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR as u32;
    pub(super) const MEMORY_BLOCK_ID: u32 = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID as u32;
    pub(super) const IS_HW_DECOMPRESS_CAPABLE: u32 =
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE as u32;
    pub(super) const LOCALITY_DOMAIN_ORDINAL: u32 =
        CUpointer_attribute::CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL as u32;
}
use attribute::*;

/// What the driver knows of an address.
struct Known {
    /// The allocation. `None` for reserved addresses without memory.
    found: Option<Found>,
    /// Whether the allocation's own device has access to it.
    accessible: bool,
    /// The range of addresses that the address is in: the reservation, where there is one, and not what is mapped.
    address: usize,
    size: usize,
    /// `CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID`: 0 without memory.
    block_id: u64,
    /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`. Whether drivers give reserved addresses one id, or each of their mappings, is not
    /// documented: here the addresses have one, which tells a program less.
    buffer_id: u64,
}

impl Known {
    fn at(address: usize) -> Option<Known> {
        let found = table::find(address);
        // Memory of another kind lies in no reservation; the reservations are locked while one is unmapped.
        if let Some(Found { kind, window }) = found
            && kind != Kind::Virtual
        {
            let Window { id, address, size, .. } = window;
            return Some(Known { found, accessible: true, address, size, block_id: id, buffer_id: id });
        }
        let reserved = virtual_memory::reserved(address)?;
        let accessible = reserved.mapped.is_some_and(|mapped| mapped.accessible);
        let block_id = reserved.mapped.map_or(0, |mapped| mapped.block_id);
        let mapping = |Mapped { id, address, size, device, .. }| {
            let synchronous = found.is_some_and(|found| found.window.synchronous);
            let owner = Owner { device, ..Owner::NONE };
            Found { kind: Kind::Virtual, window: Window { id, address, size, owner, synchronous } }
        };
        let found = reserved.mapped.map(mapping);
        let virtual_memory::Reserved { address, size, id: buffer_id, .. } = reserved;
        Some(Known { found, accessible, address, size, block_id, buffer_id })
    }

    fn value(&self, attribute: u32, address: usize) -> Result<Value, Code> {
        match (attribute, &self.found) {
            (RANGE_START_ADDR, _) => Ok(Value::Pointer(self.address)),
            (RANGE_SIZE, _) => Ok(Value::Pointer(self.size)),
            (BUFFER_ID, Some(_)) => Ok(Value::Wide(self.buffer_id)),
            (MEMORY_BLOCK_ID, Some(_)) => Ok(Value::Wide(self.block_id)),
            (MAPPED, found) => Ok(Value::Bool(found.is_some())),
            (DEVICE_POINTER, _) if !self.accessible => Err(INVALID_VALUE),
            (ACCESS_FLAGS, Some(found)) => Ok(Value::Uint(self.access(found))),
            (_, Some(found)) => value(attribute, address, found),
            (_, None) => Err(INVALID_VALUE),
        }
    }

    /// The access that the current context's device has. Devices are no peers, so that it has none to another's memory.
    fn access(&self, found: &Found) -> u32 {
        let owner = found.window.owner.device;
        let elsewhere = context::current().is_ok_and(|context| context.owner().device != owner);
        if self.accessible && !(elsewhere && found.kind.is_device()) { READ_WRITE } else { NO_ACCESS }
    }
}

/// The attributes of an allocation that depend on nothing else.
fn value(attribute: u32, address: usize, found: &Found) -> Result<Value, Code> {
    let window = &found.window;
    let device_side = found.kind.is_device();
    Ok(match attribute {
        // Pools and mapped memory are a device's, not a context's.
        CONTEXT if matches!(found.kind, Kind::Pooled { .. } | Kind::Virtual) => Value::Pointer(0),
        CONTEXT => Value::Pointer(window.owner.context),
        MEMORY_TYPE if device_side || found.kind.is_managed() => Value::Uint(MEMORY_TYPE_DEVICE),
        MEMORY_TYPE => Value::Uint(MEMORY_TYPE_HOST),
        DEVICE_POINTER => Value::Pointer(address),
        HOST_POINTER if device_side => return Err(INVALID_VALUE),
        HOST_POINTER => Value::Pointer(address),
        P2P_TOKENS => return Err(NOT_SUPPORTED),
        SYNC_MEMOPS => Value::Uint(window.synchronous.into()),
        IS_MANAGED => Value::Bool(found.kind.is_managed()),
        DEVICE_ORDINAL => Value::Int(window.owner.device),
        IS_LEGACY_CUDA_IPC_CAPABLE => Value::Bool(found.kind == Kind::Device),
        IS_GPU_DIRECT_RDMA_CAPABLE => Value::Bool(match found.kind {
            Kind::Device => profile().gpu_direct_rdma(),
            Kind::Virtual => virtual_memory::is_for_rdma(address),
            _ => false,
        }),
        IS_HW_DECOMPRESS_CAPABLE => Value::Bool(false),
        MAPPING_BASE_ADDR => Value::Pointer(window.address),
        MAPPING_SIZE => Value::Pointer(window.size),
        ALLOWED_HANDLE_TYPES => Value::Wide(virtual_memory::handle_types(address).into()),
        MEMPOOL_HANDLE => match found.kind {
            Kind::Pooled { pool } => Value::Pointer(pool),
            _ => Value::Pointer(0),
        },
        LOCALITY_DOMAIN_ORDINAL => Value::Int(NOT_LOCALIZED),
        _ => return Err(INVALID_VALUE),
    })
}

// The value that cuPointerGetAttributes writes for an attribute that the address does not have.
fn nothing(attribute: u32) -> Option<Value> {
    Some(match attribute {
        CONTEXT | DEVICE_POINTER | HOST_POINTER | RANGE_START_ADDR | RANGE_SIZE | MEMPOOL_HANDLE | MAPPING_SIZE
        | MAPPING_BASE_ADDR => Value::Pointer(0),
        MEMORY_TYPE | SYNC_MEMOPS | ACCESS_FLAGS => Value::Uint(0),
        BUFFER_ID | ALLOWED_HANDLE_TYPES | MEMORY_BLOCK_ID => Value::Wide(0),
        IS_MANAGED | IS_LEGACY_CUDA_IPC_CAPABLE | MAPPED | IS_GPU_DIRECT_RDMA_CAPABLE | IS_HW_DECOMPRESS_CAPABLE => {
            Value::Bool(false)
        }
        DEVICE_ORDINAL => Value::Int(INVALID_ORDINAL),
        LOCALITY_DOMAIN_ORDINAL => Value::Int(NOT_LOCALIZED),
        _ => return None,
    })
}

fn get(out: Out<u8>, attribute: u32, address: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    let known = Known::at(address).ok_or(INVALID_VALUE)?;
    known.value(attribute, address)?.write(out);
    Ok(())
}

/// Needs no current context: libraries call it on threads without one.
fn get_many(count: u32, attributes: In<u32>, results: In<Out<u8>>, address: usize) -> Outcome {
    if let Ok(context) = context::current() {
        context.health.check()?;
    }
    let known = Known::at(address);
    for index in 0..usize::try_from(count).map_err(|_| INVALID_VALUE)? {
        let attribute = attributes.element(index)?;
        let result = results.element(index)?;
        result.required()?;
        let value = known.as_ref().and_then(|known| known.value(attribute, address).ok());
        value.or_else(|| nothing(attribute)).ok_or(INVALID_VALUE)?.write(result);
    }
    Ok(())
}

/// Only `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` can be set. Synchronous functions that are still at work are waited for, as
/// documented: they work on the legacy default stream.
fn set(value: In<u32>, attribute: u32, address: usize) -> Outcome {
    let context = context::usable()?;
    let synchronous = value.get()? != 0;
    if attribute != SYNC_MEMOPS || !table::set_synchronous(address, synchronous) {
        return Err(INVALID_VALUE);
    }
    if synchronous {
        context.streams.legacy().tail().wait();
    }
    context.health.check()
}

exports! {
    cuPointerGetAttribute => get(out: Out<u8>, attribute: u32, address: usize);
    cuPointerGetAttributes => get_many(count: u32, attributes: In<u32>, results: In<Out<u8>>, address: usize);
    cuPointerSetAttribute => set(value: In<u32>, attribute: u32, address: usize);
}
