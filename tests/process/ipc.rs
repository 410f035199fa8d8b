//! Memory sent to another process and received from one (`vkgdr::ipc`). The child's end of the socket is its standard
//! input.
#![expect(unsafe_code, reason = "sets a timer")]

use std::io::{Read, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::ptr;
use std::time::Duration;

use support::cuda::{self, PrimaryContext};
use support::{HOST_VIEWS, Result, child, device_read, host_read, host_write, pattern, refused, supported};
use vkgdr::{Error, Memory, Vkgdr, ipc};

use crate::{MAPPED, NONE, SIZE};

/// Starts `test` of this binary in a role, with the other end of the returned socket.
fn start(role: &str) -> Result<(UnixStream, Child)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = child::command(role)?.stdin(Stdio::from(OwnedFd::from(theirs))).spawn()?;
    Ok((ours, child))
}

/// The socket of a child.
fn socket() -> Result<UnixStream> {
    Ok(stdin().as_fd().try_clone_to_owned()?.into())
}

#[track_caller]
fn join(mut child: Child) -> Result {
    assert!(child.wait()?.success(), "the other process failed, see above");
    Ok(())
}

/// Waits until the other process has sent a byte.
fn wait_for(byte: u8, mut socket: &UnixStream) -> Result {
    let mut found = [0];
    socket.read_exact(&mut found)?;
    if found == [byte] { Ok(()) } else { Err(format!("expected {byte}, received {found:?}").into()) }
}

#[test]
fn signals_do_not_prolong_the_timeout_of_a_socket() -> Result {
    child::afresh(|| {
        extern "C" fn nothing(_: libc::c_int) {}
        let (_context, gpu) = support::open(NONE)?;
        let (_ours, theirs) = UnixStream::pair()?;
        theirs.set_read_timeout(Some(Duration::from_millis(50)))?;
        let every = libc::timeval { tv_sec: 0, tv_usec: 5_000 };
        let timer = libc::itimerval { it_interval: every, it_value: every };
        // SAFETY: a handler that does nothing.
        unsafe { libc::signal(libc::SIGALRM, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t) };
        // SAFETY: a live structure.
        assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) }, 0);
        let error = refused(ipc::recv(&theirs, &gpu));
        assert!(matches!(error, Error::System { code: libc::EAGAIN, .. }), "{error}");
        Ok(())
    })
}

/// Both processes write in turn, by both sides, and each sees what the other wrote.
#[test]
fn both_sides_of_two_processes_share_the_bytes() -> Result {
    if child::role().is_some() {
        let (mut socket, gpu) = (socket()?, Vkgdr::open_primary_context(0, NONE)?);
        for kind in supported(&gpu, &HOST_VIEWS) {
            let memory = ipc::recv(&socket, &gpu)?;
            assert_eq!((memory.len(), memory.kind()), (SIZE, kind));
            assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 1), "{kind}: written by the other CPU");
            host_write(&memory, 0, &pattern(SIZE, 2))?;
            socket.write_all(b"a")?;
            wait_for(b'b', &socket)?;
            assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 3), "{kind}: written by the other device");
            let _context = PrimaryContext::retain_and_push(0);
            assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 3), "{kind}: written by the other device");
            cuda::memcpy_htod(memory.device_ptr(), &pattern(SIZE, 4));
            cuda::synchronize();
            socket.write_all(b"c")?;
        }
        return Ok(());
    }
    let (mut socket, child) = start("receiver")?;
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        host_write(&memory, 0, &pattern(SIZE, 1))?;
        ipc::send(&socket, &memory)?;
        wait_for(b'a', &socket)?;
        assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 2), "{kind}: written by the other CPU");
        cuda::memcpy_htod(memory.device_ptr(), &pattern(SIZE, 3));
        cuda::synchronize();
        socket.write_all(b"b")?;
        wait_for(b'c', &socket)?;
        assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 4), "{kind}: written by the other device");
    }
    join(child)
}

#[test]
fn the_bytes_outlive_the_process_that_sent_them() -> Result {
    if child::role().is_some() {
        let (socket, gpu) = (socket()?, Vkgdr::open_primary_context(0, NONE)?);
        for kind in supported(&gpu, &HOST_VIEWS) {
            let memory = Memory::allocate(&gpu, SIZE, kind)?;
            host_write(&memory, 0, &pattern(SIZE, 5))?;
            ipc::send(&socket, &memory)?;
        }
        return Ok(());
    }
    let (socket, child) = start("sender")?;
    join(child)?;
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = ipc::recv(&socket, &gpu)?;
        assert_eq!(memory.kind(), kind);
        assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 5));
        assert!(device_read(memory.device_ptr(), SIZE) == pattern(SIZE, 5));
    }
    assert!(matches!(ipc::recv(&socket, &gpu), Err(Error::Disconnected)));
    Ok(())
}

#[test]
fn a_forked_child_gets_an_error_and_the_message_stays() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (ours, theirs) = UnixStream::pair()?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    ipc::send(&ours, &memory)?;
    support::fork::in_quiet_child(|| {
        support::fork::assert_forked(ipc::send(&ours, &memory), "send");
        support::fork::assert_forked(ipc::recv(&theirs, &gpu), "recv");
        Ok(())
    })?;
    assert_eq!(ipc::recv(&theirs, &gpu)?.len(), SIZE);
    Ok(())
}
