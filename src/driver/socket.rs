//! Unix sockets: messages with descriptors beside their bytes, and the user at the other end (unix(7)).
#![expect(unsafe_code, reason = "passes buffers to the system, and owns the descriptors that it delivers")]

use std::io;
use std::mem::{MaybeUninit, size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::control_data::{Delivered, descriptors};
use super::descriptor::system;
use crate::{Error, Result};

/// The control data that can be received with a message, in 8-byte words: credentials, a security label and many
/// descriptors. The system closes descriptors that do not fit.
const CONTROL_WORDS: usize = 128;
/// The bytes of a descriptor.
const DESCRIPTOR: libc::c_uint = 4;
const _: () = assert!(size_of::<RawFd>() == DESCRIPTOR as usize);

/// The result of one receive call.
#[derive(Debug)]
pub(crate) struct Received {
    /// 0 at the end of the connection.
    pub(crate) len: usize,
    /// Whether the message was longer than the buffer.
    pub(crate) cut: bool,
    /// Close-on-exec.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Whether the system closed descriptors, for want of room in the control data or in the process's table.
    pub(crate) lost: bool,
}

/// Fails unless it is a Unix socket.
///
/// # Errors
///
/// `EAFNOSUPPORT` for a socket of another family, which would drop descriptors silently; `ENOTSOCK`.
pub(crate) fn check_family(socket: BorrowedFd<'_>) -> Result<()> {
    if option::<libc::c_int>(socket, libc::SO_DOMAIN)? == libc::AF_UNIX {
        Ok(())
    } else {
        Err(Error::System { operation: GETSOCKOPT, code: libc::EAFNOSUPPORT })
    }
}

/// The user of the process that connected the other end, or listened there.
///
/// # Errors
///
/// `ENOTCONN` where there is none.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> Result<libc::uid_t> {
    let peer: Credentials = option(socket, libc::SO_PEERCRED)?;
    // The kernel's value for no peer (init_peercred in net/unix/af_unix.c was not called).
    if peer.user == libc::uid_t::MAX {
        return Err(Error::System { operation: GETSOCKOPT, code: libc::ENOTCONN });
    }
    Ok(peer.user)
}

/// This process's effective user.
pub(crate) fn own_user() -> libc::uid_t {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() }
}

/// Sends bytes and a descriptor. Returns the number of bytes that were sent.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: BorrowedFd<'_>) -> Result<usize> {
    let mut control = [0_u64; 4];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: computes a size.
    let space = unsafe { libc::CMSG_SPACE(DESCRIPTOR) };
    let message = header(&mut vector, &mut control, space as usize);
    // SAFETY: the control data has room for a header.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: computes a size.
    let len = unsafe { libc::CMSG_LEN(DESCRIPTOR) };
    // SAFETY: plain integers; some C libraries have padding, which is zero.
    let mut filled: libc::cmsghdr = unsafe { zeroed() };
    filled.cmsg_len = len as _;
    filled.cmsg_level = libc::SOL_SOCKET;
    filled.cmsg_type = libc::SCM_RIGHTS;
    // SAFETY: `first` is the start of `control`, which is aligned for it.
    unsafe { first.write(filled) };
    // SAFETY: `first` is the header just written.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: `control` has room for a descriptor behind the header.
    unsafe { data.cast::<RawFd>().write_unaligned(descriptor.as_raw_fd()) };
    // SAFETY: all that the message points to is alive, and only read.
    let call = || unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    uninterrupted("sendmsg", call)
}

/// Receives bytes and descriptors. Returns `EAGAIN` as the socket does: at once if it is non-blocking, and after its
/// timeout.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Received> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let capacity = size_of_val(&control);
    let mut message = header(&mut vector, &mut control, capacity);
    // SAFETY: all that the message points to is alive and may be written.
    let call = || unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let len = uninterrupted("recvmsg", call)?;
    let (filled, flags) = (message.msg_controllen as usize, message.msg_flags);
    let mut owned = Vec::new();
    for delivered in descriptors(&bytemuck::cast_slice::<u64, u8>(&control)[..filled.min(capacity)]) {
        let (Delivered::Sent(number) | Delivered::Process(number)) = delivered;
        // SAFETY: the system has just opened it for this process, and it is not negative.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        if matches!(delivered, Delivered::Sent(_)) {
            owned.push(descriptor);
        }
    }
    Ok(Received { len, cut: flags & libc::MSG_TRUNC != 0, descriptors: owned, lost: flags & libc::MSG_CTRUNC != 0 })
}

const GETSOCKOPT: &str = "getsockopt";

/// `struct ucred`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Credentials {
    _process: libc::pid_t,
    user: libc::uid_t,
    _group: libc::gid_t,
}

/// A type of which every bit pattern is a value.
trait Plain: Copy {}
impl Plain for libc::c_int {}
impl Plain for Credentials {}

fn option<T: Plain>(socket: BorrowedFd<'_>, name: libc::c_int) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<T>()).unwrap_or_default();
    let target = value.as_mut_ptr().cast();
    // SAFETY: `value` has `len` bytes, which the system writes.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, target, &raw mut len) } {
        // SAFETY: initialised with zeros, and any bytes are a value.
        0 => Ok(unsafe { value.assume_init() }),
        _ => Err(system(GETSOCKOPT, &io::Error::last_os_error())),
    }
}

/// A message of one buffer, with control data.
fn header(vector: &mut libc::iovec, control: &mut [u64], control_len: usize) -> libc::msghdr {
    debug_assert!(control_len <= size_of_val(control));
    // SAFETY: integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control_len as _;
    message
}

/// Repeats a call that a signal interrupted.
fn uninterrupted(operation: &'static str, mut call: impl FnMut() -> libc::ssize_t) -> Result<usize> {
    loop {
        let count = call();
        if let Ok(count) = usize::try_from(count) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(system(operation, &error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

    #[test]
    fn a_descriptor_is_closed_in_other_programs_from_its_arrival_on() -> Result {
        let (ours, theirs) = UnixStream::pair()?;
        let file = File::open("/dev/null")?;
        assert_eq!(send(ours.as_fd(), b"bytes", file.as_fd())?, 5);
        let mut bytes = [0; 8];
        let received = receive(theirs.as_fd(), &mut bytes)?;
        assert_eq!((received.len, received.cut, received.lost, &bytes[..5]), (5, false, false, b"bytes".as_slice()));
        let [fd] = received.descriptors.as_slice() else { return Err("not one descriptor".into()) };
        // SAFETY: reads the flags of an open descriptor.
        assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) }, libc::FD_CLOEXEC);
        Ok(())
    }

    #[test]
    fn the_other_end_of_a_pair_is_this_user() -> Result {
        let (ours, _theirs) = UnixStream::pair()?;
        assert_eq!(peer_user(ours.as_fd())?, own_user());
        check_family(ours.as_fd())?;
        Ok(())
    }
}
