//! Memory where the drivers do not share it as vkgdr 0.1 expected: the library's second ways.
#![expect(unsafe_code, reason = "imports descriptors, and frees raw memory")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use support::cuda::{Context, PrimaryContext, reset_primary};
use support::ledger::Calls;
use support::resources::Snapshot;
use support::{Result, device_read, host_read, host_write, import, pattern, refused};
use vkgdr::ash::vk;
use vkgdr::ipc;
use vkgdr::{
    AllocateOptions, CopyPolicy, Error, Memory, MemoryInfoSource, MemoryKind, MemoryTypeInfo, OpenFlags, Pool,
    PoolOptions, RawMemory, Vkgdr,
};

use crate::raw::Raw;
use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const HOST: MemoryKind = MemoryKind::Host;
const MAPPED: MemoryKind = MemoryKind::Mapped;
/// Not a multiple of a page.
const LEN: usize = 5000;
const IMPORT: &str = "cuImportExternalMemory";
const REGISTER: &str = "cuMemHostRegister";

/// Both sides see each other's writes to the memory, and those to `others`, which share its bytes.
fn check_bytes(memory: &Memory, others: &[&Memory]) -> Result {
    let len = memory.len();
    for (seed, writer) in (1..).zip(std::iter::once(memory).chain(others.iter().copied())) {
        let readers = || std::iter::once(memory).chain(others.iter().copied());
        support::cuda::memcpy_htod(writer.device_ptr(), &pattern(len, seed));
        support::cuda::synchronize();
        for reader in readers() {
            assert!(device_read(reader.device_ptr(), len) == pattern(len, seed), "{reader:?}");
            if reader.kind().has_host_view() {
                assert!(host_read(reader, 0, len)? == pattern(len, seed), "{reader:?}");
            }
        }
        if writer.kind().has_host_view() {
            host_write(writer, 0, &pattern(len, seed + 100))?;
            for reader in readers() {
                assert!(host_read(reader, 0, len)? == pattern(len, seed + 100), "{reader:?}");
                assert!(device_read(reader.device_ptr(), len) == pattern(len, seed + 100), "{reader:?}");
            }
        }
    }
    Ok(())
}

fn is_registered(gpu: &Vkgdr) -> vkgdr::Result<bool> {
    Ok(gpu.memory_type_of(HOST)?.index == MemoryTypeInfo::OUTSIDE_VULKAN)
}

/// Host memory of registered pages in all of its uses.
fn use_registered(gpu: &Vkgdr) -> Result {
    assert!(gpu.supports(HOST) && is_registered(gpu)?);
    let info = gpu.memory_info(HOST)?;
    assert_eq!(info.source, MemoryInfoSource::System);
    assert!(info.total >= info.available && info.total > 64 << 20, "{info:?}");
    let before = Snapshot::take();
    for len in [1, LEN, 70_000] {
        let memory = Memory::allocate(gpu, len, HOST)?;
        assert!(memory.is_coherent() && memory.non_coherent_atom_size() == 1);
        check_bytes(&memory, &[])?;
        memory.fill(.., 7_u8)?;
        assert!(device_read(memory.device_ptr(), len) == vec![7; len]);
        memory.write_with(CopyPolicy::Dma, 0, &pattern(len, 9))?;
        assert!(host_read(&memory, 0, len)? == pattern(len, 9));
        let address = memory.host_ptr().ok_or("no host view")?.addr().get() as u64;
        let end = memory.device_ptr() + len as u64 - 1;
        for address in [memory.device_ptr(), end, address] {
            assert_eq!(vkgdr::pointer_device(address)?, Some(gpu.device()));
        }
        let imports = [import(gpu, memory.export_fd()?, &memory)?, import(gpu, memory.export_fd()?, &memory)?];
        check_bytes(&memory, &[&imports[0], &imports[1]])?;
        memory.free()?;
        assert!(vkgdr::pointer_device(end)?.is_none());
        let again = import(gpu, imports[0].export_fd()?, &imports[0])?;
        check_bytes(&again, &[&imports[0], &imports[1]])?;
    }
    let pool = Pool::new(gpu, PoolOptions::new(HOST))?;
    let chunks = [pool.allocate(64)?, pool.allocate(100_000)?];
    chunks.iter().try_for_each(|chunk| check_bytes(chunk, &[]))?;
    drop((chunks, pool));
    let mut raw = RawMemory::allocate(gpu, LEN, HOST)?;
    raw.flush(0, LEN)?;
    // SAFETY: nothing uses the memory.
    unsafe { raw.free() }?;
    Snapshot::assert_unchanged(&before);
    for flags in [OpenFlags::FORCE_NON_COHERENT, OpenFlags::FORCE_NON_COHERENT | OpenFlags::REQUIRE_COHERENT] {
        let Ok(forced) = Vkgdr::open(0, flags) else { continue };
        let memory = Memory::allocate(&forced, LEN, HOST)?;
        assert!(!memory.is_coherent() && memory.non_coherent_atom_size() == 64);
        check_bytes(&memory, &[])?;
    }
    Ok(())
}

#[test]
fn host_memory_is_registered_pages_although_vulkan_has_host_memory() -> Result {
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        use_registered(&gpu)?;
        let (imports, registrations) = (Calls::of(IMPORT), Calls::of(REGISTER));
        Memory::allocate(&gpu, LEN, HOST)?.free()?;
        imports.assert(0, "host memory");
        registrations.assert(1, "host memory");
        let (before, fd) = (Snapshot::take(), Memory::allocate(&gpu, LEN, HOST)?.export_fd()?);
        // SAFETY: the size of the file is checked.
        let error = refused(unsafe { Memory::import_fd(&gpu, fd, 3 * LEN, HOST) });
        assert!(matches!(error, Error::OutOfRange { size: 8192, .. }), "{error}");
        Snapshot::assert_unchanged(&before);
        Ok(())
    })
}

/// What another program exports. CUDA refuses to import it.
#[test]
fn system_memory_of_vulkans_is_registered_where_it_is_mapped() -> Result {
    const SYSTEM: u32 = 3;
    const SIZE: usize = 64 << 10;
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        let raw = Raw::open()?;
        let theirs = raw.allocate_to_export(SYSTEM, SIZE as u64, vk::Buffer::null())?;
        let fd = raw.export(theirs)?;
        let imports = Calls::of(IMPORT);
        // SAFETY: exported on the same GPU from memory of this kind, type and length.
        let memory = unsafe { Memory::import_fd(&gpu, fd, SIZE, HOST) }?;
        imports.assert(0, "system memory");
        assert_eq!(memory.memory_type().index, SYSTEM);
        check_bytes(&memory, &[&import(&gpu, memory.export_fd()?, &memory)?])?;
        host_write(&memory, 0, &pattern(SIZE, 7))?;
        let first = raw.map(theirs, 0, vk::WHOLE_SIZE)?;
        // SAFETY: mapped, and nothing writes to it.
        assert!(unsafe { std::slice::from_raw_parts(first, SIZE) } == pattern(SIZE, 7));
        Ok(memory.free()?)
    })
}

#[test]
fn without_vulkan_there_are_host_and_device_memory() -> Result {
    under("no-vulkan", || {
        let primary = Vkgdr::open_primary_context(0, NONE)?;
        let (_context, gpu) = support::open(NONE)?;
        for gpu in [&gpu, &primary] {
            assert_eq!(MemoryKind::ALL.map(|kind| gpu.supports(kind)), [false, true, true]);
            use_registered(gpu)?;
            let device = Memory::allocate(gpu, LEN, MemoryKind::Device)?;
            check_bytes(&device, &[])?;
            assert_eq!(vkgdr::pointer_device(device.device_ptr())?, Some(0));
            assert!(matches!(device.export_fd(), Err(Error::NoExport { kind: MemoryKind::Device })));
            let missing = refused(Memory::allocate(gpu, LEN, MAPPED)).to_string();
            assert!(missing.starts_with("vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)"), "{missing}");
            let fd = Memory::allocate(gpu, LEN, HOST)?.export_fd()?;
            // SAFETY: refused.
            let refused = refused(unsafe { Memory::import_fd(gpu, fd, LEN, MAPPED) });
            assert_eq!(refused.to_string(), missing);
            let pool = Pool::new(gpu, PoolOptions::new(MemoryKind::Device))?;
            let chunk = pool.allocate(100)?;
            check_bytes(&chunk, &[])?;
        }
        Ok(())
    })
}

#[test]
fn a_message_with_the_descriptor_of_another_kind_is_refused() -> Result {
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        let (ours, theirs) = UnixStream::pair()?;
        let memories = [Memory::allocate(&gpu, LEN, HOST)?, Memory::allocate(&gpu, LEN, MAPPED)?];
        for memory in &memories {
            ipc::send(&ours, memory)?;
            let received = ipc::recv(&theirs, &gpu)?;
            assert_eq!(received.memory_type(), memory.memory_type());
            check_bytes(memory, &[&received])?;
        }
        let [first, second] = memories.each_ref().map(support::socket::genuine);
        let ((first, first_fd), (second, second_fd)) = (first?, second?);
        for (bytes, fd) in [(first, second_fd), (second, first_fd)] {
            support::socket::send(ours.as_fd(), &bytes, &[fd.as_fd()])?;
            let error = refused(ipc::recv(&theirs, &gpu));
            assert!(error.to_string().contains("its descriptor is not of the kind"), "{error}");
        }
        Ok(())
    })
}

#[test]
fn registered_pages_outlive_their_context() -> Result {
    under("no-vulkan", || {
        let gpu = Vkgdr::open(0, NONE)?;
        let before = Snapshot::take();
        let _context = PrimaryContext::retain_and_push(0);
        let host = Memory::allocate(&gpu, LEN, HOST)?;
        let device = Memory::allocate(&gpu, LEN, MemoryKind::Device)?;
        reset_primary();
        host.write(0, &pattern(LEN, 4))?;
        let mut seen = vec![0_u8; LEN];
        host.read(0, &mut seen)?;
        assert!(seen == pattern(LEN, 4));
        drop((host, device));
        assert_eq!(gpu.live_allocations(), 0);
        Snapshot::assert_unchanged(&before);
        Ok(())
    })
}

#[test]
fn imported_memory_is_exported_again() -> Result {
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        for kind in MemoryKind::ALL {
            let memory = Memory::allocate(&gpu, LEN, kind)?;
            let before = Snapshot::take();
            let imported = import(&gpu, memory.export_fd()?, &memory)?;
            let again = import(&gpu, imported.export_fd()?, &memory)?;
            check_bytes(&memory, &[&imported, &again])?;
            drop((imported, again));
            Snapshot::assert_unchanged(&before);
        }
        Ok(())
    })
}

#[test]
fn memory_is_known_by_its_address() -> Result {
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        for kind in MemoryKind::ALL {
            let memory = Memory::allocate(&gpu, LEN, kind)?;
            // SAFETY: the default stream is always there.
            let stream = unsafe { memory.stream(std::ptr::null_mut()) }?;
            for offset in [0, LEN as u64 - 1] {
                assert_eq!(vkgdr::pointer_device(memory.device_ptr() + offset)?, Some(0), "{kind}");
                assert_eq!(stream.pointer_device(memory.device_ptr() + offset)?, Some(0), "{kind}");
            }
            check_bytes(&memory, &[])?;
        }
        Ok(())
    })
}

#[test]
fn without_vulkan_mapped_memory_falls_back_on_host_memory() -> Result {
    under("no-vulkan", || {
        let _context = Context::create(0);
        let gpu = Vkgdr::open(0, NONE)?;
        let options = AllocateOptions::new(MAPPED).fallback([HOST, MemoryKind::Device]);
        let memory = Memory::allocate_with(&gpu, LEN, options)?;
        assert_eq!(memory.kind(), HOST);
        check_bytes(&memory, &[])
    })
}
