//! What the driver says of memory and contexts once a context is not current, or is gone.
#![forbid(unsafe_code)]

use std::mem::ManuallyDrop;

use vkgdr::MemoryKind;

use super::{kind_named, yes_no};
use crate::cuda::{self, Answer, Buffer, Cuda, Imported, OrdinaryContext, Registered};
use crate::vulkan::{Allocation, Vulkan};
use crate::{Probe, allocate};

const LEN: usize = 1 << 20;

/// Pointer attributes of the library's memory with its context current, with none current, and after the context was reset.
/// Without differences between the first two, they show whether a context still exists.
pub(super) fn witnesses(probe: &Probe, kind: &str) -> Answer<String> {
    // Never dropped: the process ends with this question, and nothing of the context may be touched after the reset.
    let memory = ManuallyDrop::new(allocate(&probe.vkgdr()?, LEN, kind_named(kind))?);
    let address = memory.device_ptr();
    let current = attributes(address);
    println!("current: {current}");
    probe.cuda.leave_context()?;
    let not_current = attributes(address);
    println!("none current: {not_current}");
    probe.cuda.reset()?;
    Ok(format!("current: {current}; none current: {not_current}; after a reset: {}", attributes(address)))
}

fn attributes(address: u64) -> String {
    cuda::pointer_attributes(address).unwrap_or_else(|refusal| refusal)
}

/// Whether a primary context has another id after a reset, and another address. No call names the context that is gone.
pub(super) fn reset(probe: &Probe) -> Answer<String> {
    let (address, id) = probe.cuda.current_context()?;
    println!("before: {address:#x}, id {id}, active: {:?}", probe.cuda.has_primary_context());
    probe.cuda.leave_context()?;
    probe.cuda.reset()?;
    let active = probe.cuda.has_primary_context();
    println!("after the reset: active: {active:?}");
    let again = Cuda::open()?;
    let (new_address, new_id) = again.current_context()?;
    println!("retained again: {new_address:#x}, id {new_id}, active: {:?}", again.has_primary_context());
    let works = yes_no(&Buffer::new(4096).map(drop));
    let (address, id) = (same(address == new_address), same(id == new_id));
    let active = active.map_or_else(|refusal| refusal, |active| if active { "yes" } else { "no" }.to_owned());
    Ok(format!("active after the reset: {active}; the next one has {address} address, {id} id, and allocates: {works}"))
}

fn same(is_same: bool) -> &'static str {
    if is_same { "the same" } else { "another" }
}

/// What calls say while the context that was reset is still current. Undefined: the driver may crash.
pub(super) fn reset_while_current(probe: &Probe) -> Answer<String> {
    probe.cuda.reset()?;
    let current = probe.cuda.current_address();
    println!("cuCtxGetCurrent: {current:x?}");
    let allocates = Buffer::new(4096).map(ManuallyDrop::new);
    println!("cuMemAlloc: {}", yes_no(&allocates));
    let id = probe.cuda.current_context();
    println!("cuCtxGetId: {id:x?}");
    Ok(format!("cuMemAlloc: {}; cuCtxGetId: {}", yes_no(&allocates), yes_no(&id)))
}

/// What belongs to an ordinary context.
pub(super) const BELONGINGS: &[&str] =
    &["cuMemAlloc", "imported mapped memory", "imported host memory", "registered pages"];

/// Pointer attributes before and after `cuCtxDestroy`, and of the next context's memory. No call names the context that is
/// gone. The primary context exists throughout.
pub(super) fn ordinary(probe: &Probe, part: &str) -> Answer<String> {
    let kind = if part.contains("host") { MemoryKind::Host } else { MemoryKind::Mapped };
    let vulkan = if part.starts_with("imported") { Some(probe.vulkan()?) } else { None };
    let memory_type = vulkan.as_ref().map(|vulkan| vulkan.type_of(kind)).transpose()?;
    let source = vulkan.as_ref().zip(memory_type);

    let context = OrdinaryContext::create(&probe.cuda)?;
    let (context_address, id) = probe.cuda.current_context()?;
    // Never dropped, nor is anything else of the contexts: what is left of the first one may not be used.
    let memory = ManuallyDrop::new(Belonging::new(part, source)?);
    let address = memory.address()?;
    println!("context {context_address:#x}, id {id}; memory at {address:#x}");
    let current = attributes(address);
    println!("its context current: {current}");
    OrdinaryContext::pop()?;
    println!("the primary context current: {}", attributes(address));
    probe.cuda.leave_context()?;
    println!("none current: {}", attributes(address));

    context.destroy()?;
    let gone = attributes(address);
    println!("destroyed, none current: {gone}");
    let _next_context = OrdinaryContext::create(&probe.cuda)?;
    let (next_address, next_id) = probe.cuda.current_context()?;
    println!("the next context: {next_address:#x}, id {next_id}");
    println!("the old address, the next context current: {}", attributes(address));
    let next_memory = ManuallyDrop::new(Belonging::new(part, source)?);
    let next = next_memory.address()?;
    println!("memory of the next context at {next:#x}: {}", attributes(next));
    println!("the old address: {}", attributes(address));
    Ok(format!(
        "current: {current}; destroyed: {gone}; the next context has {} address and {} id, its memory {} address",
        same(next_address == context_address),
        same(next_id == id),
        same(next == address)
    ))
}

/// Memory of the context that was current when it was made.
enum Belonging<'a> {
    Plain(Buffer),
    Imported { buffer: Buffer, _memory: Imported, _allocation: Allocation<'a> },
    Pages { registered: Registered, _pages: Vec<u8> },
}

impl<'a> Belonging<'a> {
    fn new(part: &str, source: Option<(&'a Vulkan, u32)>) -> Answer<Self> {
        if let Some((vulkan, memory_type)) = source {
            let allocation = vulkan.allocate(memory_type, LEN as u64)?;
            let memory = Imported::new(allocation.export()?, LEN as u64, false)?;
            return Ok(Self::Imported { buffer: memory.map(0, LEN as u64)?, _memory: memory, _allocation: allocation });
        }
        if part == "registered pages" {
            let mut pages = vec![0; LEN];
            return Ok(Self::Pages { registered: Registered::new(pages.as_mut_ptr(), LEN, 0)?, _pages: pages });
        }
        Ok(Self::Plain(Buffer::new(LEN)?))
    }

    /// Its device address.
    fn address(&self) -> Answer<u64> {
        match self {
            Self::Plain(buffer) | Self::Imported { buffer, .. } => Ok(buffer.0),
            Self::Pages { registered, .. } => registered.device_pointer(),
        }
    }
}
