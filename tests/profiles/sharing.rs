//! Memory sent to another process (`vkgdr::ipc`) that has another GPU, or the same one, which is not coherent.

use std::io::{Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use support::ledger::Live;
use support::resources::Snapshot;
use support::{HOST_VIEWS, Result, assert_says, child, host_read, host_write, pattern, refused, supported};
use vkgdr::{Error, Memory, MemoryKind, OpenFlags, Vkgdr, ipc};

use crate::under;

const NONE: OpenFlags = OpenFlags::empty();
const SENDER: &str = "sender";

/// Sends memory of each kind on a GPU with the flags, from a process of its own, and ends.
fn send_from_here(device: i32, flags: OpenFlags) -> Result {
    let mut socket = UnixStream::from(stdin().as_fd().try_clone_to_owned()?);
    let gpu = Vkgdr::open_primary_context(device, flags)?;
    for kind in MemoryKind::ALL.into_iter().filter(|&kind| gpu.supports(kind)) {
        let memory = Memory::allocate(&gpu, 5000, kind)?;
        if kind.has_host_view() {
            host_write(&memory, 0, &pattern(5000, 1))?;
        }
        ipc::send(&socket, &memory)?;
    }
    socket.write_all(b"!")?;
    child::say("sent");
    Ok(())
}

/// The socket over which another process, which is this test in the sender's role, has sent memory.
fn sent_by_another() -> Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = child::command(SENDER)?;
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    assert_eq!(child::run(command)?, ["sent"]);
    Ok(ours)
}

#[test]
fn memory_of_another_gpu_is_an_error_not_wrong_bytes() -> Result {
    if child::role().as_deref() == Some(SENDER) {
        return send_from_here(1, NONE);
    }
    under("two-gpus", || {
        let gpus = [Vkgdr::open_primary_context(0, NONE)?, Vkgdr::open_primary_context(1, NONE)?];
        // Opens what the drivers keep open.
        Memory::allocate(&gpus[0], 1, MemoryKind::Mapped)?.free()?;
        let (before, live) = (Snapshot::take(), Live::now());
        let socket = sent_by_another()?;
        for _ in MemoryKind::ALL {
            let error = refused(ipc::recv(&socket, &gpus[0]));
            assert!(matches!(error, Error::Refused { .. }), "{error}");
            assert_says(&error, &["it is memory of the GPU ", "the handle is of "]);
        }
        drop(socket);
        Snapshot::assert_unchanged(&before);
        assert_eq!(Live::now(), live);
        // The same messages fit the other GPU's handle.
        let socket = sent_by_another()?;
        for kind in MemoryKind::ALL {
            let memory = ipc::recv(&socket, &gpus[1])?;
            assert_eq!(memory.kind(), kind);
            assert!(!kind.has_host_view() || host_read(&memory, 0, 5000)? == pattern(5000, 1), "{kind}");
        }
        Ok(())
    })
}

#[test]
fn memory_that_is_not_coherent_is_shared_by_flushes_and_invalidations() -> Result {
    if child::role().as_deref() == Some(SENDER) {
        return send_from_here(0, NONE);
    }
    under("non-coherent", || {
        let gpu = Vkgdr::open_primary_context(0, NONE)?;
        let socket = sent_by_another()?;
        for kind in supported(&gpu, &HOST_VIEWS) {
            let memory = ipc::recv(&socket, &gpu)?;
            assert_eq!(memory.is_coherent(), kind == MemoryKind::Host);
            assert!(host_read(&memory, 0, 5000)? == pattern(5000, 1), "{kind}");
        }
        Ok(())
    })
}
