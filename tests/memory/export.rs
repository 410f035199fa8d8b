//! Exported memory: descriptors, messages of `ipc`, and imports that share their bytes, which `conformance` compares.
#![expect(unsafe_code, reason = "imports descriptors, and queries the system about them")]

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use support::cuda::{current, no_context};
use support::ledger::Live;
use support::resources::Snapshot;
use support::{Result, device_read, host_read, host_write, import, pattern, refused, skip};
use vkgdr::{Error, Memory, Vkgdr, ipc};

use crate::{FORCED, MAPPED, NONE, SIZE};

/// The ways in which memory goes to a handle: by a descriptor, and by a message.
const WAYS: [fn(&Memory, &Vkgdr) -> vkgdr::Result<Memory>; 2] = [
    |memory, to| import(to, memory.export_fd()?, memory),
    |memory, to| {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        ipc::send(&ours, memory)?;
        ipc::recv(&theirs, to)
    },
];

#[test]
fn the_bytes_live_as_long_as_the_last_that_shares_them() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = (Live::now(), gpu.live_allocations());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    host_write(&memory, 0, &pattern(SIZE, 5))?;
    let fd = memory.export_fd()?;
    // SAFETY: reads the flags of an open descriptor.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC, "open in other programs");
    let first = import(&gpu, fd.try_clone()?, &memory)?;
    assert_eq!(gpu.live_allocations(), before.1 + 2);
    memory.free()?;
    assert_eq!(Live::now(), before.0.plus_one(MAPPED));
    assert!(host_read(&first, 0, SIZE)? == pattern(SIZE, 5), "the import keeps the bytes");
    first.free()?;
    // SAFETY: exported above from memory of this kind and length.
    let second = unsafe { Memory::import_fd(&gpu, fd, SIZE, MAPPED) }?;
    assert!(device_read(second.device_ptr(), SIZE) == pattern(SIZE, 5), "the descriptor keeps the bytes");
    second.free()?;
    assert_eq!((Live::now(), gpu.live_allocations()), before);
    Ok(())
}

#[test]
fn handles_that_differ_in_coherence_share_memory() -> Result {
    let Some((_context, plain)) = support::open_coherent()? else { return Ok(()) };
    let forced = Vkgdr::open(0, FORCED)?;
    for (from, to) in [(&plain, &forced), (&forced, &plain)] {
        for way in WAYS {
            let memory = Memory::allocate(from, SIZE, MAPPED)?;
            let imported = way(&memory, to)?;
            assert_ne!(memory.is_coherent(), imported.is_coherent());
            host_write(&memory, 0, &pattern(SIZE, 6))?;
            assert!(host_read(&imported, 0, SIZE)? == pattern(SIZE, 6));
            // Whole atoms, beyond the requested length.
            imported.flush(SIZE - 1..)?;
            memory.invalidate(SIZE - 1..)?;
        }
    }
    Ok(())
}

#[test]
fn memory_is_imported_where_it_would_be_allocated() -> Result {
    let (context, gpu) = support::open(NONE)?;
    let primary = Vkgdr::open_primary_context(0, NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    for way in WAYS {
        let (imported, error) = no_context(|| (way(&memory, &primary), refused(way(&memory, &gpu))));
        assert_eq!(imported?.context(), context.raw());
        assert!(error.to_string().contains("CUDA_ERROR_INVALID_CONTEXT"), "{error}");
        assert_eq!(current(), context.raw());
    }
    Ok(())
}

#[test]
fn a_refused_import_uses_its_descriptor_up_and_closes_no_other() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    import(&gpu, memory.export_fd()?, &memory)?.free()?;
    let (before, live) = (Snapshot::take(), Live::now());
    // SAFETY: refused before the descriptor is used.
    let error = refused(unsafe { Memory::import_fd(&gpu, memory.export_fd()?, 0, MAPPED) });
    assert!(matches!(error, Error::ZeroSize { kind: MAPPED }), "{error}");
    // SAFETY: as above.
    let error = refused(unsafe { Memory::import_fd(&gpu, memory.export_fd()?, usize::MAX, MAPPED) });
    assert!(error.to_string().contains("VK_ERROR_OUT_OF_DEVICE_MEMORY"), "{error}");
    Snapshot::assert_unchanged(&before);
    if support::simcuda().is_none() {
        return skip("only lavapipe's response to a descriptor that is not memory is known");
    }
    // A driver may close a descriptor and then fail.
    let mut files = Vec::new();
    for _ in 0..4 {
        let fd = OwnedFd::from(File::open("/dev/null")?);
        // SAFETY: lavapipe detects that this is not memory.
        let error = refused(unsafe { Memory::import_fd(&gpu, fd, SIZE, MAPPED) });
        assert!(error.vulkan_code().is_some(), "{error}");
        files.push(File::open("/dev/zero")?);
    }
    files.iter().try_for_each(|file| file.metadata().map(drop))?;
    drop(files);
    Snapshot::assert_unchanged(&before);
    assert_eq!(Live::now(), live);
    Ok(())
}
