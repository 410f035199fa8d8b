//! Unix sockets: messages with descriptors beside their bytes, and the user at the other end (unix(7)).
#![expect(unsafe_code, reason = "asks for an option that rustix reads as a type with fewer values")]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::{IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::sockopt::socket_domain;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::os::system;
use crate::{Error, Result};

/// The descriptors that can be received with a message; the system closes those that do not fit.
const DESCRIPTORS: usize = 200;
const GETSOCKOPT: &str = "getsockopt";
/// `SO_PASSPIDFD` (asm-generic/socket.h), from Linux 6.5 on.
const PASS_PIDFD: libc::c_int = 76;

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

/// Fails unless it is a Unix socket. `SO_PASSPIDFD` is refused: its messages carry one more descriptor, which would leak.
///
/// # Errors
///
/// `EAFNOSUPPORT` for a socket of another family, which would drop descriptors silently; `EOPNOTSUPP`; `ENOTSOCK`.
pub(crate) fn check_family(socket: BorrowedFd<'_>) -> Result<()> {
    let refused = |code| Err(Error::System { operation: GETSOCKOPT, code });
    if socket_domain(socket).map_err(system(GETSOCKOPT))? != AddressFamily::UNIX {
        return refused(libc::EAFNOSUPPORT);
    }
    // SAFETY: every bit pattern is an integer. Older kernels do not know the option.
    if unsafe { option(socket, PASS_PIDFD, 0) }.is_ok_and(|is_set: libc::c_int| is_set != 0) {
        return refused(libc::EOPNOTSUPP);
    }
    Ok(())
}

/// The user of the process that connected the other end, or listened there.
///
/// # Errors
///
/// `ENOTCONN` where there is none.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> Result<u32> {
    // Not rustix's function, whose type for a process cannot be 0, as it is where there is no peer, or one in another
    // namespace.
    let none = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    // SAFETY: a structure of integers.
    let peer = unsafe { option(socket, libc::SO_PEERCRED, none) }?;
    // The kernel's value for no peer (init_peercred in net/unix/af_unix.c was not called).
    if peer.uid == libc::uid_t::MAX {
        return Err(Error::System { operation: GETSOCKOPT, code: libc::ENOTCONN });
    }
    Ok(peer.uid)
}

/// This process's effective user.
pub(crate) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Sends bytes and a descriptor. Returns the number of bytes that were sent.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: BorrowedFd<'_>) -> Result<usize> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let descriptors = [descriptor];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)), "there is room for one descriptor");
    let mut call = || sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
    retry_on_intr(&mut call).map_err(system("sendmsg"))
}

/// Receives bytes and descriptors. Returns `EAGAIN` as the socket does: at once if it is non-blocking, and after its
/// timeout.
pub(crate) fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<Received> {
    // Credentials come beside them where the socket asks for those (SO_PASSCRED).
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut call = || recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let message = retry_on_intr(&mut call).map_err(system("recvmsg"))?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.extend(received);
        }
    }
    let has = |flag| message.flags.contains(flag);
    Ok(Received { len: message.bytes, cut: has(ReturnFlags::TRUNC), descriptors, lost: has(ReturnFlags::CTRUNC) })
}

/// An option of the socket; the bytes that the system does not write are those of `value`.
///
/// # Safety
///
/// Every bit pattern must be a value of the type.
unsafe fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int, mut value: T) -> Result<T> {
    let mut len = libc::socklen_t::try_from(size_of::<T>()).expect("options are small");
    let target = (&raw mut value).cast();
    // SAFETY: `value` has `len` bytes, which the system may write, and any bytes are a value.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, target, &raw mut len) } {
        0 => Ok(value),
        _ => Err(Error::last_system(GETSOCKOPT)),
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
        assert_eq!(rustix::io::fcntl_getfd(fd)?, rustix::io::FdFlags::CLOEXEC);
        Ok(())
    }
}
