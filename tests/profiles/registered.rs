//! Host memory: pages that CUDA registers, since it does not import Vulkan's system memory; and the imports of all kinds.
#![expect(unsafe_code, reason = "imports descriptors")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use support::cuda::{PrimaryContext, reset_primary};
use support::ledger::Calls;
use support::resources::Snapshot;
use support::{Result, device_read, host_read, host_write, import, pattern, refused};
use vkgdr::ash::vk;
use vkgdr::{Error, Memory, MemoryInfoSource, MemoryKind, OpenFlags, Vkgdr, ipc};

use crate::raw::Raw;
use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const HOST: MemoryKind = MemoryKind::Host;
/// Not a multiple of a page.
const LEN: usize = 5000;

/// All sides of all these memories see each other's writes.
fn check_bytes(memories: &[&Memory]) -> Result {
    for (seed, writer) in (1..).zip(memories) {
        let len = writer.len();
        support::cuda::memcpy_htod(writer.device_ptr(), &pattern(len, seed));
        let all_see = |bytes: &[u8]| -> Result {
            for reader in memories {
                assert!(device_read(reader.device_ptr(), len) == bytes, "{reader:?}");
                let has_view = reader.kind().has_host_view();
                assert!(!has_view || host_read(reader, 0, len)? == bytes, "{reader:?}");
            }
            Ok(())
        };
        all_see(&pattern(len, seed))?;
        if writer.kind().has_host_view() {
            host_write(writer, 0, &pattern(len, seed + 100))?;
            all_see(&pattern(len, seed + 100))?;
        }
    }
    Ok(())
}

#[test]
fn imports_share_the_bytes_and_are_exported_again_when_the_first_memory_is_gone() -> Result {
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        let (imports, registrations) = (Calls::of("cuImportExternalMemory"), Calls::of("cuMemHostRegister"));
        for kind in MemoryKind::ALL {
            let memory = Memory::allocate(&gpu, LEN, kind)?;
            let before = Snapshot::take();
            let imported = import(&gpu, memory.export_fd()?, &memory)?;
            let again = import(&gpu, imported.export_fd()?, &imported)?;
            check_bytes(&[&memory, &imported, &again])?;
            drop((imported, again));
            Snapshot::assert_unchanged(&before);
            let imported = import(&gpu, memory.export_fd()?, &memory)?;
            memory.free()?;
            check_bytes(&[&imported, &import(&gpu, imported.export_fd()?, &imported)?])?;
        }
        imports.assert(10, "mapped and device memory");
        registrations.assert(5, "host memory");
        Ok(())
    })
}

#[test]
fn host_memory_is_registered_pages_with_and_without_vulkan() -> Result {
    let check = || {
        let (_context, gpu) = support::open(NONE)?;
        let info = gpu.memory_info(HOST)?;
        assert_eq!(info.source, MemoryInfoSource::System);
        assert!(info.total >= info.available && info.total > 64 << 20, "{info:?}");
        let memory = Memory::allocate(&gpu, LEN, HOST)?;
        assert!(memory.is_coherent() && memory.non_coherent_atom_size() == 1);
        let host = memory.host_ptr().ok_or("no host view")?.addr().get() as u64;
        for address in [memory.device_ptr(), memory.device_ptr() + LEN as u64 - 1, host] {
            assert_eq!(vkgdr::pointer_device(address)?, Some(gpu.device()));
        }
        for flags in [OpenFlags::FORCE_NON_COHERENT, OpenFlags::FORCE_NON_COHERENT | OpenFlags::REQUIRE_COHERENT] {
            let Ok(forced) = Vkgdr::open(0, flags) else { continue };
            let memory = Memory::allocate(&forced, LEN, HOST)?;
            assert!(!memory.is_coherent() && memory.non_coherent_atom_size() == 64);
            check_bytes(&[&memory])?;
        }
        let before = Snapshot::take();
        // SAFETY: the size of the file is checked.
        let error = refused(unsafe { Memory::import_fd(&gpu, memory.export_fd()?, 3 * LEN, HOST) });
        assert!(matches!(error, Error::OutOfRange { size: 8192, .. }), "{error}");
        Snapshot::assert_unchanged(&before);
        Ok(())
    };
    under("rebar", check)?;
    under("no-vulkan", check)
}

/// What another program exports. CUDA refuses to import it.
#[test]
fn system_memory_of_vulkans_is_registered_where_it_is_mapped() -> Result {
    const SYSTEM: u32 = 3;
    const SIZE: usize = 64 << 10;
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        let raw = Raw::open(0)?;
        let theirs = raw.allocate_to_export(SYSTEM, SIZE as u64, vk::Buffer::null())?;
        let fd = raw.export(theirs)?;
        let imports = Calls::of("cuImportExternalMemory");
        // SAFETY: exported on the same GPU from memory of this kind, type and length.
        let memory = unsafe { Memory::import_fd(&gpu, fd, SIZE, HOST) }?;
        imports.assert(0, "system memory");
        assert_eq!(memory.memory_type().index, SYSTEM);
        check_bytes(&[&memory, &import(&gpu, memory.export_fd()?, &memory)?])?;
        host_write(&memory, 0, &pattern(SIZE, 7))?;
        let first = raw.map(theirs, 0, vk::WHOLE_SIZE)?;
        // SAFETY: mapped, and nothing writes to it.
        assert!(unsafe { std::slice::from_raw_parts(first, SIZE) } == pattern(SIZE, 7));
        Ok(memory.free()?)
    })
}

#[test]
fn a_message_with_the_descriptor_of_another_kind_is_refused() -> Result {
    under("rebar", || {
        let (_context, gpu) = support::open(NONE)?;
        let (ours, theirs) = UnixStream::pair()?;
        let memories = [Memory::allocate(&gpu, LEN, HOST)?, Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?];
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
fn memory_that_is_not_vulkans_outlives_its_context() -> Result {
    under("no-vulkan", || {
        let gpu = Vkgdr::open(0, NONE)?;
        let before = Snapshot::take();
        let _context = PrimaryContext::retain_and_push(0);
        let host = Memory::allocate(&gpu, LEN, HOST)?;
        let device = Memory::allocate(&gpu, LEN, MemoryKind::Device)?;
        reset_primary();
        host.write(0, &pattern(LEN, 4))?;
        assert!(host_read(&host, 0, LEN)? == pattern(LEN, 4));
        drop((host, device));
        Snapshot::assert_unchanged(&before);
        Ok(())
    })
}
