//! Memory sent over a Unix socket (`vkgdr::ipc`) within one process: the sockets, and what they cost. Its bytes are in `conformance`.
#![expect(unsafe_code, reason = "sends signals, and looks at descriptors")]

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use support::cuda::no_context;
use support::ledger::Live;
use support::resources::{Resource, Snapshot, limit};
use support::{HOST_VIEWS, Result, assert_says, host_read, host_write, pattern, refused, socket, supported};
use vkgdr::{Error, Memory, MemoryKind, Pool, PoolOptions, Vkgdr, ipc};

use crate::{MAPPED, NONE, SIZE};

/// The error number of a system call that failed.
#[track_caller]
fn code(error: &Error) -> i32 {
    match error {
        Error::System { code, .. } => *code,
        other => panic!("not the error of a system call: {other}"),
    }
}

#[test]
fn memory_goes_over_every_type_of_socket_beside_other_data_and_leaves_nothing() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let exchange = |len: usize| -> Result {
        for kind in supported(&gpu, &HOST_VIEWS) {
            let memory = Memory::allocate(&gpu, len, kind)?;
            host_write(&memory, 0, &pattern(len, 9))?;
            for socket in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM] {
                let [ours, theirs] = socket::pair(socket)?;
                ipc::send(&ours, &memory)?;
                let received = ipc::recv(&theirs, &gpu)?;
                assert_eq!((received.len(), received.kind()), (len, kind));
                assert_eq!(received.memory_type(), memory.memory_type());
                assert!(host_read(&received, 0, len)? == pattern(len, 9), "{kind}");
            }
        }
        Ok(())
    };
    exchange(1)?;
    let (before, live) = (Snapshot::take(), Live::now());
    for len in [1, 70_000] {
        exchange(len)?;
        let memory = Memory::allocate(&gpu, len, MAPPED)?;
        ours.write_all(b"before")?;
        ipc::send(&ours, &memory)?;
        ipc::send(&ours, &memory)?;
        ours.write_all(b"after!")?;
        let mut word = [0; 6];
        theirs.read_exact(&mut word)?;
        assert_eq!(&word, b"before");
        assert_eq!([ipc::recv(&theirs, &gpu)?.len(), ipc::recv(&theirs, &gpu)?.len()], [len; 2]);
        theirs.read_exact(&mut word)?;
        assert_eq!(&word, b"after!");
    }
    Snapshot::assert_unchanged(&before);
    assert_eq!(Live::now(), live);
    Ok(())
}

/// As docs/sharing.md says, for receivers of other languages.
#[test]
fn the_message_of_host_memory_names_no_vulkan_driver_and_no_heap() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MemoryKind::Host)?;
    let (ours, mut theirs) = UnixStream::pair()?;
    ipc::send(&ours, &memory)?;
    let mut message = [0xff; 88];
    theirs.read_exact(&mut message)?;
    assert_eq!(message[..7], *b"vkgdr\0\0");
    assert_eq!((&message[24..40], &message[56..64]), (&[0; 16][..], &[0; 8][..]));
    assert_eq!(message[64..72], [1, 0, 0, 0, 1, 0, 0, 0], "host memory, a memfd");
    assert_eq!((&message[72..76], &message[80..84]), (&[0xff; 4][..], &[0xff; 4][..]));
    Ok(())
}

/// A socket without a message, or without room for one, and what is not sent or not received yet.
#[test]
fn what_cannot_go_now_returns_as_the_sockets_mode_says_and_goes_later() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let error = refused(ipc::send(&ours, &Pool::new(&gpu, PoolOptions::default())?.allocate(100)?));
    assert!(matches!(error, Error::Pooled), "{error}");
    theirs.set_nonblocking(true)?;
    assert_eq!(code(&refused(ipc::recv(&theirs, &gpu))), libc::EAGAIN);
    theirs.set_nonblocking(false)?;
    theirs.set_read_timeout(Some(Duration::from_millis(1)))?;
    assert_eq!(code(&refused(ipc::recv(&theirs, &gpu))), libc::EAGAIN);

    ours.set_nonblocking(true)?;
    let mut written = 0;
    while let Ok(count) = ours.write(&[7; 4096]) {
        written += count;
    }
    let before = Snapshot::take();
    assert_eq!(code(&refused(ipc::send(&ours, &memory))), libc::EAGAIN);
    Snapshot::assert_unchanged(&before);
    theirs.read_exact(&mut vec![0; written])?;
    ipc::send(&ours, &memory)?;
    let error = no_context(|| refused(ipc::recv(&theirs, &gpu)));
    assert_says(&error, &["CUDA_ERROR_INVALID_CONTEXT"]);
    assert_eq!(ipc::recv(&theirs, &gpu)?.len(), SIZE, "the message stays");
    Ok(())
}

#[test]
fn the_end_of_the_connection_has_an_error_of_its_own() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        let [ours, theirs] = socket::pair(kind)?;
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        ipc::send(&ours, &memory)?;
        drop(ours);
        assert_eq!(ipc::recv(&theirs, &gpu)?.len(), SIZE);
        let error = refused(ipc::recv(&theirs, &gpu));
        assert!(matches!(error, Error::Disconnected), "{error}");
        assert_says(&error, &["closed the connection"]);
        // Also an error, not a signal that ends the process.
        assert_eq!(code(&refused(ipc::send(&theirs, &memory))), libc::EPIPE);
    }
    Ok(())
}

#[test]
fn what_is_no_connected_unix_socket_is_refused() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let tcp = TcpStream::connect(listener.local_addr()?)?;
    let file = File::open("/dev/null")?;
    let before = Snapshot::take();
    for error in [refused(ipc::send(&tcp, &memory)), refused(ipc::recv(&tcp, &gpu))] {
        assert_eq!(code(&error), libc::EAFNOSUPPORT);
        assert_says(&error, &["Unix sockets"]);
    }
    assert_eq!(code(&refused(ipc::send(&file, &memory))), libc::ENOTSOCK);
    assert_eq!(code(&refused(ipc::recv(&file, &gpu))), libc::ENOTSOCK);
    let alone = UnixDatagram::unbound()?;
    assert_eq!(code(&refused(ipc::send(&alone, &memory))), libc::ENOTCONN);
    assert_eq!(code(&refused(ipc::recv(&alone, &gpu))), libc::ENOTCONN);
    drop(alone);
    Snapshot::assert_unchanged(&before);
    Ok(())
}

static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn signals_do_not_end_the_wait_for_a_message() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let primary = Vkgdr::open_primary_context(0, NONE)?;
    let (ours, theirs) = UnixStream::pair()?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    // SAFETY: zero is a value of this structure: no flags, so that system calls are interrupted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count_signal as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler only counts.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
    let waiting = AtomicU64::new(0);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            // SAFETY: always succeeds.
            waiting.store(unsafe { libc::pthread_self() }, Ordering::SeqCst);
            ipc::recv(&theirs, &primary).map(|memory| memory.len()).map_err(|error| error.to_string())
        });
        while waiting.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        for _ in 0..20 {
            // SAFETY: the thread has not been joined.
            unsafe { libc::pthread_kill(waiting.load(Ordering::SeqCst), libc::SIGUSR1) };
            support::blocking::let_run(|| false);
        }
        ipc::send(&ours, &memory)?;
        assert_eq!(receiver.join().map_err(|_| "the receiver panicked")?, Ok(SIZE));
        assert!(SIGNALS.load(Ordering::SeqCst) > 0);
        Ok(())
    })
}

#[test]
fn a_process_of_another_user_is_refused_unless_it_is_allowed() -> Result {
    const NOBODY: u32 = 65534;
    // SAFETY: always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        return support::skip("only root can have a process of another user");
    }
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let (bytes, fd) = socket::genuine(&memory)?;
    let name = format!("vkgdr-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(name)?;
    let listener = UnixListener::bind_addr(&address)?;
    support::fork::in_child(|| {
        // SAFETY: this process has one thread that matters.
        assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
        let stranger = UnixStream::connect_addr(&address)?;
        socket::send(stranger.as_fd(), &bytes, &[fd.as_fd()])
    })?;
    let (stranger, _) = listener.accept()?;
    let before = Snapshot::take();
    let error = refused(ipc::recv(&stranger, &gpu));
    assert!(matches!(error, Error::OtherUser { theirs: NOBODY, ours: 0 }), "{error}");
    assert_says(&error, &["user 65534, not to user 0"]);
    Snapshot::assert_unchanged(&before);
    // SAFETY: the stranger has sent a genuine message. It is still in the socket.
    let received = unsafe { ipc::recv_from_any_user(&stranger, &gpu) }?;
    host_write(&received, 0, &pattern(SIZE, 4))?;
    assert!(host_read(&memory, 0, SIZE)? == pattern(SIZE, 4));
    Ok(())
}

#[test]
fn a_process_without_descriptors_left_gets_an_error_that_says_so() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (ours, theirs) = UnixStream::pair()?;
    ipc::send(&ours, &Memory::allocate(&gpu, SIZE, MAPPED)?)?;
    let mut taken = Vec::new();
    let highest = File::open("/dev/null")?.as_raw_fd();
    let before = limit(Resource::Nofile, u64::try_from(highest)? + 4);
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
    }
    let error = refused(ipc::recv(&theirs, &gpu));
    drop(taken);
    limit(Resource::Nofile, before);
    assert_eq!(code(&error), libc::EMFILE);
    assert_says(&error, &["recvmsg", "ulimit -n"]);
    Ok(())
}
