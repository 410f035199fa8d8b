//! Host views of CUDA memory that others allocated: which there are, and what they show.

mod life;
mod virtual_memory;

use std::os::fd::AsRawFd;

use support::cuda::{Context, CudaMemory, PrimaryContext, memcpy_htod, memset_d8, no_context, synchronize};
use support::ledger::Calls;
use support::profile::command;
use support::{Random, Result, assert_says, child, device_read, host_read, host_write, pattern, refused};
use vkgdr::{CopyPolicy, Error, MapMode, MappingFlags, Memory, MemoryKind, NoMapping, OpenFlags, Vkgdr};

use crate::dma_buf::bytes_of;
use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const PAGE: usize = Memory::EXISTING_PAGE;

fn open() -> Result<(PrimaryContext, Vkgdr)> {
    support::open(NONE)
}

fn of(gpu: &Vkgdr, memory: &CudaMemory) -> vkgdr::Result<Memory> {
    support::map_existing(gpu, memory.address(), memory.len(), MappingFlags::empty())
}

/// Maps random parts of memory, and writes by both sides, against a model of the bytes.
fn follow_the_model() -> Result {
    const LEN: usize = 5 * PAGE + 777;
    const VIEWS: usize = 6;
    let (_context, gpu) = open()?;
    let memory = CudaMemory::device(LEN);
    memset_d8(memory.address(), 0, LEN);
    synchronize();
    let mut model = vec![0; LEN];
    let mut random = Random::new(18);
    let mut views: Vec<(usize, Memory)> = Vec::new();
    for step in 0..400_u64 {
        if views.len() < VIEWS || step % 20 == 0 {
            let (offset, len) = random.range_within(LEN);
            let flags = if step % 3 == 0 { MappingFlags::FORCE_PCIE } else { MappingFlags::empty() };
            if step % 3 == 0 {
                // Another descriptor of the same pages.
                views.retain(|(_, view)| view.len() % 2 == 0);
            }
            let view = support::map_existing(&gpu, memory.address() + offset as u64, len, flags)?;
            assert_eq!((view.device_ptr(), view.len()), (memory.address() + offset as u64, len));
            views.push((offset, view));
            views.drain(..views.len().saturating_sub(VIEWS));
        }
        let chosen = random.below(views.len());
        let (base, view) = &views[chosen];
        let (offset, len) = random.range_within(view.len());
        let bytes = pattern(len, step);
        let place = base + offset..base + offset + len;
        match step % 5 {
            0 => memcpy_htod(view.device_ptr() + offset as u64, &bytes),
            1 => view.write_with(CopyPolicy::Dma, offset, &bytes)?,
            2 => view.slice(offset..offset + len)?.write(0, &bytes)?,
            3 => view.map(MapMode::Write, offset..offset + len)?.write(0, &bytes)?,
            _ => view.write_with(CopyPolicy::Cpu, offset, &bytes)?,
        }
        view.flush(offset..offset + len)?;
        model[place].copy_from_slice(&bytes);
        if step % 7 == 0 {
            let value = step.to_le_bytes()[0];
            view.fill(.., value)?;
            model[*base..base + view.len()].fill(value);
        }
        for (base, view) in &views {
            assert!(host_read(view, 0, view.len())? == model[*base..base + view.len()], "step {step}");
        }
        assert!(device_read(memory.address(), LEN) == model, "step {step}");
    }
    Ok(())
}

#[test]
fn both_views_hold_the_same_bytes_under_random_writes_of_both_sides() -> Result {
    ["dma-buf", "dma-buf-cached", "dma-buf-no-vulkan"]
        .into_iter()
        .try_for_each(|profile| under(profile, follow_the_model))
}

#[test]
fn a_mapping_is_mapped_memory_with_the_drivers_properties() -> Result {
    let check = |cached| {
        move || {
            let (_context, gpu) = open()?;
            assert!(gpu.supports_existing()?);
            let memory = CudaMemory::device(3 * PAGE + 100);
            let exports = Calls::of("cuMemGetHandleForAddressRange");
            let view = support::map_existing(&gpu, memory.address() + 1000, 2 * PAGE, MappingFlags::empty())?;
            assert_eq!((view.kind(), view.is_coherent(), view.is_cached()), (MemoryKind::Mapped, true, cached));
            let pcie = support::map_existing(&gpu, memory.address(), 1, MappingFlags::FORCE_PCIE)?;
            assert!(!pcie.is_cached());
            exports.assert(2, "each way has a mapping of its own");
            let unknown = support::map_existing(&gpu, memory.address(), 1, MappingFlags::from_bits_retain(2));
            assert!(matches!(refused(unknown), Error::UnknownFlags { bits: 2 }));
            Ok(())
        }
    };
    under("dma-buf", check(false))?;
    under("dma-buf-cached", check(true))
}

/// Memory memory of each kind is refused, with `reason` for device memory.
fn refuse_all(reason: NoMapping, says: &[&str]) -> Result {
    let (_context, gpu) = open()?;
    assert!(!gpu.supports_existing()?);
    let memory = CudaMemory::device(PAGE);
    let error = refused(of(&gpu, &memory));
    assert!(
        matches!(error, Error::NoMapping { address, reason: found } if address == memory.address() && found == reason)
    );
    assert_says(&error, says);
    assert_says(&error, &["allocate mapped memory with this library"]);
    Ok(())
}

#[test]
fn what_a_driver_or_a_gpu_cannot_do_is_named_with_what_works_instead() -> Result {
    let old = NoMapping::Driver { version: 13_000 };
    under("rebar", || refuse_all(old, &["the driver supports CUDA 13.0", "needs CUDA 13.3"]))?;
    under("gb10", || refuse_all(old, &["CUDA 13.3"]))?;
    let no_mmap = NoMapping::NoMmap { device: 0 };
    under("dma-buf-no-mmap", || refuse_all(no_mmap, &["device attribute 152 is 0 or unknown"]))
}

#[test]
fn a_driver_before_13_3_is_the_reason_whatever_the_gpu_could_do() -> Result {
    if child::role().is_some() {
        refuse_all(NoMapping::Driver { version: 13_020 }, &["the driver supports CUDA 13.2"])?;
        child::say("done");
        return Ok(());
    }
    let Some(mut command) = command("dma-buf", "old")? else { return Ok(()) };
    command.env("SIMCUDA_DRIVER_VERSION", "13020");
    assert_eq!(child::run(command)?, ["done"]);
    Ok(())
}

#[test]
fn memory_that_needs_no_view_and_ranges_outside_of_memory_are_refused() -> Result {
    under("dma-buf", || {
        let (_context, gpu) = open()?;
        let reason = |mapping: vkgdr::Result<Memory>| match refused(mapping) {
            Error::NoMapping { reason, .. } => reason,
            error => panic!("{error}"),
        };
        let len = 2 * PAGE;
        assert_eq!(reason(of(&gpu, &CudaMemory::managed(len))), NoMapping::Managed);
        assert_eq!(reason(of(&gpu, &CudaMemory::host(len))), NoMapping::Host);
        let memory = CudaMemory::device(len);
        let (address, map) =
            (memory.address(), |address, len| support::map_existing(&gpu, address, len, MappingFlags::empty()));
        assert_eq!(reason(map(address, 0)), NoMapping::Empty);
        assert_eq!(reason(map(0, PAGE)), NoMapping::Unknown);
        assert_eq!(reason(map(u64::MAX, usize::MAX)), NoMapping::Unknown);
        for (offset, len) in [(0, len + 1), (len - 1, 2), (1, usize::MAX)] {
            let error = refused(map(address + offset as u64, len));
            assert!(matches!(error, Error::OutOfRange { size, .. } if size == memory.len()), "{error}");
        }
        drop(memory);
        assert_eq!(reason(map(address, PAGE)), NoMapping::Unknown);
        let memory = CudaMemory::device(len);
        let error = no_context(|| refused(of(&gpu, &memory)));
        assert_says(&error, &["CUDA_ERROR_INVALID_CONTEXT", "open_primary_context"]);
        // A handle with a context of its own needs none; nor does the memory's have to be that one.
        let other = Context::create(0);
        let foreign = CudaMemory::device(len);
        let primary = Vkgdr::open_primary_context(0, NONE)?;
        let view = no_context(|| of(&primary, &foreign))?;
        host_write(&view, 0, &pattern(len, 1))?;
        assert!(device_read(foreign.address(), len) == pattern(len, 1));
        drop((view, foreign));
        other.destroy();
        Ok(())
    })
}

#[test]
fn memory_of_a_card_is_described_by_descriptor_and_offset() -> Result {
    under("dma-buf", || {
        let (_context, gpu) = open()?;
        let memory = CudaMemory::device(3 * PAGE);
        let view = support::map_existing(&gpu, memory.address() + 70_000, 1000, MappingFlags::empty())?;
        host_write(&view, 0, &pattern(1000, 1))?;
        let dma_buf = view.dma_buf()?;
        assert_eq!((dma_buf.offset, dma_buf.len), (70_000, 1000));
        let fd = dma_buf.fd.as_raw_fd();
        // SAFETY: an open descriptor.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_GETFD) }, libc::FD_CLOEXEC, "closed in other programs");
        assert!(bytes_of(&dma_buf)? == pattern(1000, 1));
        Ok(())
    })
}

#[test]
fn memory_of_this_crate_has_a_view_on_every_gpu_which_keeps_it() -> Result {
    let check = || {
        let (_context, gpu) = open()?;
        let exports = Calls::of("cuMemGetHandleForAddressRange");
        let memory = Memory::allocate(&gpu, 1000, MemoryKind::Mapped)?;
        let (host, device) = (memory.host_ptr(), memory.device_ptr());
        let view = support::map_existing(&gpu, device + 100, 50, MappingFlags::empty())?;
        assert_eq!((view.device_ptr(), view.len()), (device + 100, 50));
        assert_eq!(view.host_ptr().map(|at| at.addr().get()), host.map(|at| at.addr().get() + 100));
        for len in [901, usize::MAX] {
            assert!(matches!(
                refused(support::map_existing(&gpu, device + 100, len, MappingFlags::empty())),
                Error::OutOfRange { size: 1000, .. }
            ));
        }
        drop(memory);
        host_write(&view, 0, &[7; 50])?;
        assert!(device_read(device + 100, 50) == [7; 50]);
        assert!(view.is_current()?);
        exports.assert(0, "it is mapped already");
        let device = Memory::allocate(&gpu, 1000, MemoryKind::Device)?;
        let error = refused(support::map_existing(&gpu, device.device_ptr(), 1000, MappingFlags::empty()));
        assert!(matches!(error, Error::NoHostView { kind: MemoryKind::Device }), "{error}");
        Ok(())
    };
    under("rebar", check)?;
    under("dma-buf", check)?;
    under("dma-buf-no-vulkan", || {
        // Device memory is CUDA's here.
        let (_context, gpu) = open()?;
        let memory = Memory::allocate(&gpu, 1000, MemoryKind::Device)?;
        let view = support::map_existing(&gpu, memory.device_ptr(), 1000, MappingFlags::empty())?;
        host_write(&view, 0, &[9; 1000])?;
        assert!(device_read(memory.device_ptr(), 1000) == [9; 1000]);
        Ok(())
    })
}
