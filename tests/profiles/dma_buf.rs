//! Memory that CUDA allocates and the CPU maps by its dma-buf: for network cards, and where Vulkan has none.
#![expect(unsafe_code, reason = "maps descriptors")]

use std::os::fd::AsRawFd;

use support::cuda::{PrimaryContext, memcpy_htod};
use support::state::State;
use support::{Result, assert_says, device_read, free, host_read, host_write, pattern, refused};
use vkgdr::{
    AllocateOptions, DmaBuf, Error, Memory, MemoryInfoSource, MemoryKind, MemoryTypeInfo, NoMapping, OpenFlags, Pool,
    PoolOptions, RawMemory, Vkgdr,
};

use crate::under;

fn open() -> Result<(PrimaryContext, Vkgdr)> {
    support::open(OpenFlags::empty())
}

/// The bytes of a dma-buf, mapped here in place of a card.
pub(crate) fn bytes_of(dma_buf: &DmaBuf) -> Result<Vec<u8>> {
    let offset = usize::try_from(dma_buf.offset)?;
    let len = offset + dma_buf.len;
    let fd = dma_buf.fd.as_raw_fd();
    // SAFETY: a new mapping at an address that the system chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: mapped, and nothing writes to it meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), len) }[offset..].to_vec();
    // SAFETY: mapped above, and not used again.
    unsafe { libc::munmap(at, len) };
    Ok(bytes)
}

/// Memory with a dma-buf, whose bytes the CPU, the device and a card share.
fn check_card_memory(gpu: &Vkgdr, kind: MemoryKind) -> Result {
    const LEN: usize = 100_000;
    let memory = Memory::allocate_with(gpu, LEN, AllocateOptions::new(kind).with_dma_buf())?;
    assert_eq!((memory.kind(), memory.host_ptr().is_some()), (kind, kind.has_host_view()));
    assert_eq!(memory.memory_type().index, MemoryTypeInfo::OUTSIDE_VULKAN);
    memcpy_htod(memory.device_ptr(), &pattern(LEN, 1));
    if kind.has_host_view() {
        assert!(host_read(&memory, 0, LEN)? == pattern(LEN, 1));
        host_write(&memory, 0, &pattern(LEN, 2))?;
        assert!(device_read(memory.device_ptr(), LEN) == pattern(LEN, 2));
    }
    let dma_buf = memory.dma_buf()?;
    assert_eq!(dma_buf.len, LEN);
    if kind.has_host_view() {
        assert!(bytes_of(&dma_buf)? == pattern(LEN, 2));
    }
    let refused = refused(memory.export_fd());
    assert!(matches!(refused, Error::NoExport { .. }), "{refused}");
    assert_eq!(memory.slice(1000..)?.dma_buf()?.offset, dma_buf.offset + 1000);
    memory.free()?;
    Ok(())
}

#[test]
fn memory_for_cards_is_allocated_by_cuda_and_mapped() -> Result {
    let with_dma_buf = |gpu: &Vkgdr, kind| Memory::allocate_with(gpu, 1, AllocateOptions::new(kind).with_dma_buf());
    let both = || {
        let (_context, gpu) = open()?;
        check_card_memory(&gpu, MemoryKind::Mapped)?;
        check_card_memory(&gpu, MemoryKind::Device)?;
        let host = refused(with_dma_buf(&gpu, MemoryKind::Host));
        assert!(matches!(host, Error::NoDmaBuf { kind: MemoryKind::Host }), "{host}");
        Ok(())
    };
    under("dma-buf", both)?;
    under("dma-buf-no-vulkan", both)?;
    under("dma-buf-no-mmap", || {
        let (_context, gpu) = open()?;
        let mapped = refused(with_dma_buf(&gpu, MemoryKind::Mapped));
        assert!(matches!(mapped, Error::NoMapping { reason: NoMapping::NoMmap { device: 0 }, .. }), "{mapped}");
        assert_says(&mapped, &["use device memory with a dma-buf"]);
        check_card_memory(&gpu, MemoryKind::Device)?;
        let options = AllocateOptions::new(MemoryKind::Mapped).fallback([MemoryKind::Device]).with_dma_buf();
        assert_eq!(Memory::allocate_with(&gpu, 1, options)?.kind(), MemoryKind::Device);
        Ok(())
    })?;
    under("rebar", || {
        let (_context, gpu) = open()?;
        let device = refused(with_dma_buf(&gpu, MemoryKind::Device));
        assert!(matches!(device, Error::NoMapping { reason: NoMapping::NoExport { device: 0 }, .. }), "{device}");
        assert_says(&device, &["register host memory by its pointer"]);
        let vulkans = refused(Memory::allocate(&gpu, 1, MemoryKind::Mapped)?.dma_buf());
        assert_says(&vulkans, &["mapped memory", "with_dma_buf", "by its pointer"]);
        Ok(())
    })?;
    // Device memory is CUDA's here, and the driver is too old to export it.
    under("no-vulkan", || {
        let refused = refused(Memory::allocate(&open()?.1, 1, MemoryKind::Device)?.dma_buf());
        assert!(matches!(refused, Error::NoMapping { reason: NoMapping::NoExport { device: 0 }, .. }), "{refused}");
        Ok(())
    })
}

#[test]
fn without_vulkan_mapped_memory_is_cudas() -> Result {
    under("dma-buf-no-vulkan", || {
        let (_context, gpu) = support::open(OpenFlags::REQUIRE_COHERENT)?;
        assert!(gpu.supports(MemoryKind::Mapped));
        assert_eq!(gpu.memory_info(MemoryKind::Mapped)?.source, MemoryInfoSource::Cuda);
        // The handle retains the context with the first memory in it.
        Memory::allocate(&gpu, 1, MemoryKind::Mapped)?.free()?;
        let before = State::take();
        for len in [1, 5000, 3 << 20] {
            let memory = Memory::allocate(&gpu, len, MemoryKind::Mapped)?;
            host_write(&memory, 0, &pattern(len, 1))?;
            assert!(device_read(memory.device_ptr(), len) == pattern(len, 1));
            let mut raw = RawMemory::allocate(&gpu, len, MemoryKind::Mapped)?;
            free(&mut raw)?;
        }
        State::assert_unchanged(&before, "allocating");
        let pool = Pool::new(&gpu, PoolOptions::default())?;
        let chunk = pool.allocate(100)?;
        host_write(&chunk, 0, &[3; 100])?;
        assert!(device_read(chunk.device_ptr(), 100) == [3; 100]);
        Ok(())
    })
}

#[test]
fn memory_that_does_not_fit_the_bar_heap_is_cudas() -> Result {
    under("dma-buf-bar256", || {
        let (_context, gpu) = open()?;
        let source = |memory: &Memory| memory.memory_type().index == MemoryTypeInfo::OUTSIDE_VULKAN;
        let memory: Vec<_> =
            (0..6).map(|_| Memory::allocate(&gpu, 60 << 20, MemoryKind::Mapped)).collect::<vkgdr::Result<_>>()?;
        assert_eq!((source(&memory[0]), source(&memory[5])), (false, true));
        host_write(&memory[5], 0, &[7; 10])?;
        assert!(device_read(memory[5].device_ptr(), 10) == [7; 10]);
        // The error is that of Vulkan's heap if CUDA has no room either.
        let error = refused(Memory::allocate(&gpu, 1 << 50, MemoryKind::Mapped));
        assert_says(&error, &["VK_ERROR_OUT_OF_DEVICE_MEMORY"]);
        Ok(())
    })
}
