//! A C program that shares memory with this process.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;

use support::{host_read, host_write};
use vkgdr_rs::{Error, Memory, MemoryKind, OpenFlags, Vkgdr, ipc};

use super::Result;
use super::workshop::{Build, GCC, Linkage, Workshop, done, installed};

const PROGRAM: Build<'_> = Build {
    name: "sharing",
    standard: "c99",
    sources: &["common/check.c", "sharing.c"],
    flags: &[],
    linkage: Linkage::Shared,
};
const SIZE: usize = 70_001;

/// The bytes of the program's `pattern`.
fn pattern(seed: u8) -> Vec<u8> {
    (0..251).cycle().skip(usize::from(seed)).take(SIZE).collect()
}

#[test]
fn a_c_program_and_a_rust_program_share_memory_that_either_sends() -> Result {
    let Some(shop) = Workshop::open("sharing")? else { return Ok(()) };
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    for compiler in installed(&[GCC]) {
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = shop.command(shop.program(compiler, &PROGRAM)?);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Mapped)?;
        host_write(&memory, 0, &pattern(1))?;
        ipc::send(&socket, &memory)?;
        let program = thread::spawn(move || {
            let result = done(&mut command).map_err(|error| error.to_string());
            // The last copy of the program's end of the socket.
            drop(command);
            result
        });
        let received = ipc::recv(&socket, &gpu);
        program.join().map_err(|_| "the thread panicked")??;
        let received = received?;
        assert_eq!((received.len(), received.kind()), (SIZE, MemoryKind::Host));
        assert!(host_read(&received, 0, SIZE)? == pattern(3));
        assert!(host_read(&memory, 0, SIZE)? == pattern(2));
        assert!(matches!(ipc::recv(&socket, &gpu), Err(Error::Disconnected)));
    }
    Ok(())
}
