//! Messages that `vkgdr::ipc` must refuse: before a driver sees the descriptor, with an error that says why, and without
//! leaving a descriptor open.

use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use support::ledger::{Live, all_calls};
use support::resources::Snapshot;
use support::{Random, Result, assert_says, refused, socket};
use vkgdr::{Error, Memory, Vkgdr, ipc};

use crate::{MAPPED, NONE, SIZE};

/// The length of a message, in bytes.
const LEN: usize = socket::MESSAGE_LEN;

/// Receives what was sent, which must be refused without a call of a driver that makes something, and leave nothing open.
struct Victim {
    gpu: Vkgdr,
    _context: support::cuda::PrimaryContext,
    bytes: Vec<u8>,
    fd: OwnedFd,
    memory: Memory,
}

impl Victim {
    fn new() -> Result<Self> {
        let (context, gpu) = support::open(NONE)?;
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        let (bytes, fd) = socket::genuine(&memory)?;
        Ok(Self { gpu, _context: context, bytes, fd, memory })
    }

    /// The message with other bytes at an offset.
    fn with(&self, offset: usize, other: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[offset..offset + other.len()].copy_from_slice(other);
        bytes
    }

    /// The error of a message, sent in one call, after which the connection ends.
    #[track_caller]
    fn refuses(&self, kind: i32, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<Error> {
        let (before, live) = (Snapshot::take(), Live::now());
        let [ours, theirs] = socket::pair(kind)?;
        socket::send(ours.as_fd(), bytes, descriptors)?;
        drop(ours);
        let made = all_calls();
        let error = refused(ipc::recv(&theirs, &self.gpu));
        // The context is looked at, nothing else.
        assert!(all_calls()[0] <= made[0] + 3 && all_calls()[1] == made[1], "{error}: a driver was called");
        drop(theirs);
        Snapshot::assert_unchanged(&before);
        assert_eq!(Live::now(), live);
        Ok(error)
    }

    #[track_caller]
    fn assert_refused(&self, bytes: &[u8], text: &str) -> Result {
        for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
            let error = self.refuses(kind, bytes, &[self.fd.as_fd()])?;
            assert!(matches!(error, Error::Refused { .. }), "{error}");
            assert_says(&error, &["received memory was refused: ", text]);
        }
        Ok(())
    }
}

#[test]
fn each_field_that_does_not_fit_is_refused_by_name() -> Result {
    let victim = Victim::new()?;
    for (offset, other, text) in [
        (0, b"V".as_slice(), "does not begin as a message"),
        (6, b"x", "does not begin as a message"),
        (7, &[3], "version 3, this library has version 2"),
        (8, &[0x5a; 16], "memory of the GPU 5a5a5a5a-"),
        (24, &[0x5a; 16], "another Vulkan driver or version: 5a5a5a5a-"),
        (40, &[0; 8], "0 bytes of mapped memory in an allocation of"),
        (40, &u64::MAX.to_le_bytes(), "18446744073709551615 bytes of mapped memory"),
        (40, &(1_u64 << 63).to_le_bytes(), "9223372036854775808 bytes of mapped memory"),
        (40, &1_u64.to_le_bytes(), "1 byte of mapped memory in an allocation of"),
        (48, &[0; 8], "in an allocation of 0 bytes"),
        (48, &u64::MAX.to_le_bytes(), "in an allocation of 18446744073709551615 bytes"),
        (48, &8192_u64.to_le_bytes(), "in an allocation of 8192 bytes"),
        (56, &1_u64.to_le_bytes(), "of 1 bytes), the handle has memory type"),
        (64, &3_u32.to_le_bytes(), "the unknown kind 3"),
        (64, &u32::MAX.to_le_bytes(), "the unknown kind 4294967295"),
        (68, &77_u32.to_le_bytes(), "the unknown kind of descriptor 77"),
        (68, &1_u32.to_le_bytes(), "the unknown kind of descriptor 1"),
        (72, &31_u32.to_le_bytes(), "memory type 31 ("),
        (76, &0_u32.to_le_bytes(), "open both handles with the same flags"),
        (80, &15_u32.to_le_bytes(), "heap 15 of"),
        (84, &2_u32.to_le_bytes(), "the unknown flags 2"),
    ] {
        victim.assert_refused(&victim.with(offset, other), text)?;
    }
    Ok(())
}

/// The length and the size go together, so that only the file tells.
#[test]
fn a_descriptor_of_less_memory_than_the_message_says_is_refused() -> Result {
    let victim = Victim::new()?;
    let before = Snapshot::take();
    let larger = Memory::allocate(&victim.gpu, 1 << 20, MAPPED)?;
    let (bytes, _) = socket::genuine(&larger)?;
    drop(larger);
    Snapshot::assert_unchanged(&before);
    if !File::from(victim.fd.try_clone()?).metadata()?.is_file() {
        return support::skip("this driver's descriptors are no files");
    }
    victim.assert_refused(&bytes, "a file of")?;
    let small = File::open("/proc/self/status")?;
    let error = victim.refuses(libc::SOCK_STREAM, &victim.bytes, &[small.as_fd()])?;
    assert_says(&error, &["refused: ", "is a file of 0 bytes"]);
    Ok(())
}

#[test]
#[expect(unsafe_code, reason = "makes a descriptor that the standard library does not know")]
fn a_descriptor_that_is_no_memory_is_refused_before_a_driver_reads_it() -> Result {
    let victim = Victim::new()?;
    let (pipe, _writer) = std::io::pipe()?;
    let (socket, _peer) = UnixStream::pair()?;
    let folder = File::open("/")?;
    let device = File::open("/dev/null")?;
    // SAFETY: it takes no pointers.
    let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    assert!(event >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: just made, without another owner.
    let event = unsafe { OwnedFd::from_raw_fd(event) };
    for fd in [pipe.as_fd(), socket.as_fd(), folder.as_fd(), device.as_fd(), event.as_fd()] {
        let error = victim.refuses(libc::SOCK_STREAM, &victim.bytes, &[fd])?;
        assert_says(&error, &["refused: ", "not of the kind that the message names"]);
    }
    // From Linux 6.9 on, it may be an empty regular file.
    let process = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty())?;
    let error = victim.refuses(libc::SOCK_STREAM, &victim.bytes, &[process.as_fd()])?;
    assert_says(&error, &["refused: its descriptor is "]);
    Ok(())
}

#[test]
fn a_message_has_exactly_one_descriptor() -> Result {
    let victim = Victim::new()?;
    let null = File::open("/dev/null")?;
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        for count in [0, 2, 3, 10, 253] {
            let mut descriptors = vec![null.as_fd(); count];
            if let Some(first) = descriptors.first_mut() {
                *first = victim.fd.as_fd();
            }
            let error = victim.refuses(kind, &victim.bytes, &descriptors)?;
            assert_says(&error, &["refused: ", "instead of one"]);
            assert_says(&error, &[if count == 0 { "no descriptor" } else { "several descriptors" }]);
        }
    }
    Ok(())
}

/// Also where the connection stays open, and the rest may never come.
#[test]
fn a_message_that_ends_early_is_refused_wherever_it_ends_without_waiting_for_the_rest() -> Result {
    let victim = Victim::new()?;
    for len in [1, 7, 8, 24, LEN - 1] {
        victim.assert_refused(&victim.bytes[..len], &format!("ends after {len} of 88 bytes"))?;
    }
    // Those of version 1 were shorter.
    let of_version_1 = "version 1, this library has version 2: use the same vkgdr in both processes";
    victim.assert_refused(&victim.with(7, &[1])[..24], of_version_1)?;
    for (nonblocking, timeout) in [(false, None), (true, None), (false, Some(Duration::from_secs(600)))] {
        let before = Snapshot::take();
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(nonblocking)?;
        theirs.set_read_timeout(timeout)?;
        socket::send(ours.as_fd(), &victim.bytes[..60], &[victim.fd.as_fd()])?;
        let error = refused(ipc::recv(&theirs, &victim.gpu));
        assert_says(&error, &["refused: ", "ends after 60 of 88 bytes"]);
        drop((ours, theirs));
        Snapshot::assert_unchanged(&before);
    }
    Ok(())
}

#[test]
fn a_packet_that_is_too_long_is_refused_and_the_next_one_is_whole() -> Result {
    let victim = Victim::new()?;
    let [ours, theirs] = socket::pair(libc::SOCK_SEQPACKET)?;
    let long = [victim.bytes.as_slice(), b"!"].concat();
    socket::send(ours.as_fd(), &long, &[victim.fd.as_fd()])?;
    ipc::send(&ours, &victim.memory)?;
    let before = Snapshot::take();
    let error = refused(ipc::recv(&theirs, &victim.gpu));
    assert_says(&error, &["refused: ", "longer than 88 bytes"]);
    // The descriptor was closed.
    Snapshot::assert_unchanged(&before);
    assert_eq!(ipc::recv(&theirs, &victim.gpu)?.len(), SIZE);
    Ok(())
}

/// Credentials that the receiving socket asks for come beside the memory. A pidfd would, too, and would leak.
#[test]
fn credentials_are_passed_over_and_a_socket_that_delivers_processes_is_refused() -> Result {
    let victim = Victim::new()?;
    let before = Snapshot::take();
    let (ours, theirs) = UnixStream::pair()?;
    set(&theirs, libc::SO_PASSCRED);
    ipc::send(&ours, &victim.memory)?;
    ipc::recv(&theirs, &victim.gpu)?.free()?;
    let error = {
        (&ours).write_all(&victim.bytes)?;
        refused(ipc::recv(&theirs, &victim.gpu))
    };
    assert_says(&error, &["refused: ", "no descriptor instead of one"]);
    if set(&theirs, PASS_PIDFD) {
        let error = refused(ipc::recv(&theirs, &victim.gpu));
        assert!(matches!(error, Error::System { code: libc::EOPNOTSUPP, .. }), "{error}");
    }
    drop((ours, theirs));
    Snapshot::assert_unchanged(&before);
    Ok(())
}

/// `SO_PASSPIDFD` (asm-generic/socket.h), from Linux 6.5 on.
const PASS_PIDFD: i32 = 76;

/// Turns a socket's option on; false where the system does not have it.
#[expect(unsafe_code, reason = "sets an option that the standard library does not know")]
fn set(socket: &UnixStream, option: i32) -> bool {
    use std::os::fd::AsRawFd;
    let (on, len) = (1_i32, 4);
    // SAFETY: `on` has `len` bytes.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, (&raw const on).cast(), len) == 0 }
}

#[test]
fn the_socket_that_is_received_from_is_the_one_that_was_checked() -> Result {
    /// Names the first socket once, then the second.
    struct Alternating([UnixStream; 2], Cell<usize>);

    impl AsFd for Alternating {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0[self.1.replace(1)].as_fd()
        }
    }

    let victim = Victim::new()?;
    let ((_silent, checked), (sender, other)) = (UnixStream::pair()?, UnixStream::pair()?);
    socket::send(sender.as_fd(), &victim.bytes, &[victim.fd.as_fd()])?;
    checked.set_nonblocking(true)?;
    let error = refused(ipc::recv(Alternating([checked, other], Cell::new(0)), &victim.gpu));
    assert!(matches!(error, Error::System { .. }), "{error}");
    Ok(())
}

#[test]
fn random_changes_of_a_message_are_refused_and_leave_nothing_open() -> Result {
    let victim = Victim::new()?;
    let null = File::open("/dev/null")?;
    let mut random = Random::new(15);
    let (before, live) = (Snapshot::take(), Live::now());
    for _ in 0..2000 {
        let mut bytes = victim.bytes.clone();
        for _ in 0..1 + random.below(3) {
            // All but the length: other lengths of the same allocation fit.
            let place = (48 + random.below(LEN - 8)) % LEN;
            bytes[place] = bytes[place].wrapping_add(1 + u8::try_from(random.below(255))?);
        }
        let [ours, theirs] = socket::pair(if random.below(2) == 0 { libc::SOCK_STREAM } else { libc::SOCK_SEQPACKET })?;
        let descriptors = vec![null.as_fd(); random.below(4)];
        socket::send(ours.as_fd(), &bytes[..1 + random.below(LEN)], &descriptors)?;
        drop(ours);
        let error = refused(ipc::recv(&theirs, &victim.gpu));
        // A message may name a kind that this GPU lacks.
        assert!(matches!(error, Error::Refused { .. } | Error::NoSuitableMemoryType { .. }), "{error}");
    }
    Snapshot::assert_unchanged(&before);
    assert_eq!(Live::now(), live);
    Ok(())
}
