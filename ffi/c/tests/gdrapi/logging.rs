//! `GDRCOPY_ENABLE_LOGGING`: a child's lines on standard error.
#![expect(unsafe_code, reason = "calls C functions")]

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use support::blocking::let_run;
use support::{Result, child};
use vkgdr_c::gdr_info_v2_t;

use crate::api::{API, call};
use crate::fixture::{Fixture, NO_HANDLE, PAGE};
/// The time for a call that waits for nothing, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes one error of each kind, each of which is announced.
fn errors() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle, address) = (fixture.g, fixture.handle, fixture.memory.device_ptr());
    let (mut new, mut va, mut value) = (NO_HANDLE, null_mut(), 0);
    macro_rules! error {
        ($($call:tt)*) => {
            eprintln!("\nCALL {}", stringify!($($call)*));
            assert_ne!(call!($($call)*), 0);
        };
    }
    error!(close(null_mut()));
    error!(pin(g, 0, 1, 0, 0, &raw mut new));
    error!(pin(g, address, 0, 0, 0, &raw mut new));
    error!(pin(g, address, usize::MAX, 0, 0, &raw mut new));
    error!(pin(g, address, 1, 0, 0, null_mut()));
    error!(unpin(g, NO_HANDLE));
    error!(map(g, handle, &raw mut va, 0));
    error!(unmap(g, handle, null_mut(), PAGE));
    error!(copy_to(handle, null_mut(), [1_u8].as_ptr().cast(), 1));
    let (_, bytes) = fixture.map()?;
    error!(map(g, handle, &raw mut va, PAGE));
    error!(copy_to(handle, bytes, null(), 1));
    error!(copy_to(handle, bytes.wrapping_byte_sub(1), [1_u8].as_ptr().cast(), 1));
    error!(copy_from(handle, null_mut(), bytes, 1));
    error!(info(g, handle, null_mut()));
    error!(attribute(g, 9, &raw mut value));
    error!(type_string(9, null_mut()));
    eprintln!("\nEND");
    fixture.close()
}

#[test]
fn each_error_is_explained() -> Result {
    if child::role().is_some() {
        return errors();
    }
    let output = child::command("errors")?.env("GDRCOPY_ENABLE_LOGGING", "1").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let calls: Vec<_> = text.split("\nCALL ").skip(1).collect();
    assert_eq!(calls.len(), 16, "{text}");
    for (index, call) in calls.iter().enumerate() {
        assert_eq!(call.matches("ERR:  libgdrapi of vkgdr: ").count(), 1, "{call}");
        assert_eq!(call.contains("is empty"), index == 2, "{call}");
        assert!(!call.contains("18446744073709551615"), "{call}");
    }
    Ok(())
}

/// Standard error as a pipe that is full until [`drain`](Self::drain) is called.
struct FullPipe {
    read: File,
    before: OwnedFd,
}

impl FullPipe {
    fn new() -> Result<Self> {
        let (read, write) = io::pipe()?;
        let set = |flags: libc::c_int| {
            // SAFETY: sets the flags of an open descriptor.
            assert_eq!(unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETFL, flags) }, 0);
        };
        set(libc::O_NONBLOCK);
        let filled = std::iter::repeat_with(|| (&write).write(b"-")).find_map(io::Result::err);
        assert_eq!(filled.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
        set(0);
        let before = io::stderr().as_fd().try_clone_to_owned()?;
        // SAFETY: both are open descriptors.
        assert_eq!(unsafe { libc::dup2(write.as_raw_fd(), libc::STDERR_FILENO) }, libc::STDERR_FILENO);
        Ok(Self { read: File::from(OwnedFd::from(read)), before })
    }

    /// Makes standard error what it was, and lets a thread go on that writes to the pipe.
    fn drain(mut self) -> Result {
        // SAFETY: both are open descriptors.
        assert_eq!(unsafe { libc::dup2(self.before.as_raw_fd(), libc::STDERR_FILENO) }, libc::STDERR_FILENO);
        // Until the last writer has gone.
        io::copy(&mut self.read, &mut io::sink())?;
        Ok(())
    }
}

/// One thread prints an error, which waits, and another asks about its handle meanwhile.
fn print_to_a_full_pipe() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle, returned) = (fixture.g.addr(), fixture.handle, AtomicBool::new(false));
    let pipe = FullPipe::new()?;
    let returned_first = thread::scope(|scope| -> Result<_> {
        scope.spawn(|| {
            // SAFETY: takes any handle.
            unsafe { (API.unpin)(without_provenance_mut(g), NO_HANDLE) }
        });
        let_run(|| false);
        scope.spawn(|| {
            let mut info = gdr_info_v2_t::default();
            // SAFETY: the pointer is good.
            let code = unsafe { (API.info)(without_provenance_mut(g), handle, &raw mut info) };
            returned.store(code == 0, Ordering::SeqCst);
        });
        let end = Instant::now() + PATIENCE;
        while !returned.load(Ordering::SeqCst) && Instant::now() < end {
            thread::yield_now();
        }
        let returned_first = returned.load(Ordering::SeqCst);
        pipe.drain()?;
        Ok(returned_first)
    })?;
    assert!(returned_first, "a thread that prints an error keeps the lock of the handles");
    child::say("done");
    fixture.close()
}

#[test]
fn an_error_that_cannot_be_printed_keeps_no_other_thread_waiting() -> Result {
    if child::role().is_some() {
        return print_to_a_full_pipe();
    }
    let mut command = child::command("full pipe")?;
    command.env("GDRCOPY_ENABLE_LOGGING", "1");
    assert_eq!(child::run(command)?, ["done"]);
    Ok(())
}

/// A program may change its environment while other threads use the library.
fn explain_after_the_variable_is_gone() -> Result {
    call!(close(null_mut()));
    // SAFETY: this process has one other thread, the test's main thread, which waits.
    unsafe { std::env::remove_var("GDRCOPY_ENABLE_LOGGING") };
    call!(close(null_mut()));
    Ok(())
}

#[test]
fn the_variable_for_logging_is_read_once() -> Result {
    if child::role().is_some() {
        return explain_after_the_variable_is_gone();
    }
    let output = child::command("remove")?.env("GDRCOPY_ENABLE_LOGGING", "1").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert_eq!(text.matches("ERR:  libgdrapi of vkgdr: ").count(), 2, "{text}");
    Ok(())
}
