//! `GDRCOPY_ENABLE_LOGGING`: a child's lines on standard error.
#![expect(unsafe_code, reason = "calls C functions")]

use std::io::{self, Write};
use std::iter;
use std::process::exit;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::thread;
use std::time::Duration;

use support::blocking::let_run;
use support::{Result, child};

use crate::api::{call, close, unmap, unpin};
use crate::fixture::{Fixture, NO_HANDLE, PAGE};

/// The time for a call that waits for nothing, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Makes one error of each kind, each of which is announced.
fn errors() -> Result {
    let fixture = Fixture::new()?;
    let (g, handle, address) = (fixture.g, fixture.handle, fixture.memory.device_ptr());
    let (mut new, mut va, mut value) = (NO_HANDLE, null_mut(), 0);
    macro_rules! error {
        ($call:expr) => {
            eprintln!("\nCALL {}", stringify!($call));
            assert_ne!($call, 0);
        };
    }
    error!(close(null_mut()));
    error!(call!(pin(g, 0, 1, 0, 0, &raw mut new)));
    error!(call!(pin(g, address, 0, 0, 0, &raw mut new)));
    error!(call!(pin(g, address, usize::MAX, 0, 0, &raw mut new)));
    error!(call!(pin(g, address, 1, 0, 0, null_mut())));
    error!(unpin(g, NO_HANDLE));
    error!(call!(map(g, handle, &raw mut va, 0)));
    error!(unmap(g, handle, null_mut(), PAGE));
    error!(call!(copy_to(handle, null_mut(), [1_u8].as_ptr().cast(), 1)));
    let (_, bytes) = fixture.map()?;
    error!(call!(map(g, handle, &raw mut va, PAGE)));
    error!(call!(copy_to(handle, bytes, null(), 1)));
    error!(call!(copy_to(handle, bytes.wrapping_byte_sub(1), [1_u8].as_ptr().cast(), 1)));
    error!(call!(copy_from(handle, null_mut(), bytes, 1)));
    error!(call!(info(g, handle, null_mut())));
    error!(call!(attribute(g, 9, &raw mut value)));
    // A program may change its environment while other threads use the library, which has read the variable once.
    // SAFETY: this process has one other thread, the test's main thread, which waits.
    unsafe { std::env::remove_var("GDRCOPY_ENABLE_LOGGING") };
    error!(call!(type_string(9, null_mut())));
    eprintln!("\nEND");
    fixture.close()
}

#[test]
fn each_error_is_explained_also_once_the_variable_is_gone() -> Result {
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

/// One thread blocks while it prints an error, and this one uses its handle meanwhile. Nothing reads the pipe, so the process must
/// end by `exit`.
fn print_to_a_full_pipe() -> Result {
    let fixture = Fixture::new()?;
    // SAFETY: sets the flags of an open descriptor.
    let set = |flags: libc::c_int| assert_eq!(unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_SETFL, flags) }, 0);
    set(libc::O_NONBLOCK);
    let filled = iter::repeat_with(|| io::stderr().write(b"-")).find_map(io::Result::err);
    set(0);
    assert_eq!(filled.map(|error| error.kind()), Some(io::ErrorKind::WouldBlock));
    thread::spawn(|| {
        thread::sleep(TIMEOUT);
        exit(1);
    });
    let g = fixture.g.addr();
    thread::spawn(move || unpin(without_provenance_mut(g), NO_HANDLE));
    let_run(|| false);
    fixture.info()?;
    println!("done");
    exit(0);
}

#[test]
fn an_error_that_cannot_be_printed_keeps_no_other_thread_waiting() -> Result {
    if child::role().is_some() {
        return print_to_a_full_pipe();
    }
    let (_read, write) = io::pipe()?;
    let output = child::command("full pipe")?.env("GDRCOPY_ENABLE_LOGGING", "1").stderr(write).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.lines().any(|line| line.ends_with("done")), "{text}");
    Ok(())
}
