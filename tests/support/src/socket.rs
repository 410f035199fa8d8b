//! Messages with descriptors over Unix sockets.
#![expect(unsafe_code, reason = "sends and receives control messages")]

use std::io::Error;
use std::mem::{size_of_val, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::Result;

/// The bytes of a descriptor.
const DESCRIPTOR: usize = size_of::<RawFd>();
/// The largest number of descriptors in a message (`SCM_MAX_FD` in the kernel's include/net/scm.h).
const MOST: usize = 253;

/// The buffer for control data, aligned for its header.
type Control = [u64; 8 + MOST.div_ceil(2)];

/// A message of one buffer, with room for the control data of `descriptors`.
fn message(vector: &mut libc::iovec, control: &mut Control, descriptors: usize) -> libc::msghdr {
    // SAFETY: a plain structure of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vector;
    message.msg_iovlen = 1;
    if descriptors > 0 {
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: computes a size.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(in_bytes(descriptors)) } as usize;
        assert!(message.msg_controllen <= size_of_val(control), "{descriptors} descriptors");
    }
    message
}

fn in_bytes(descriptors: usize) -> u32 {
    u32::try_from(descriptors * DESCRIPTOR).unwrap_or(u32::MAX)
}

/// Sends bytes in one call, with copies of descriptors.
///
/// # Errors
/// When the system refuses, or sends only a part.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result {
    let mut control = [0; 8 + MOST.div_ceil(2)];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let message = message(&mut vector, &mut control, descriptors.len());
    if !descriptors.is_empty() {
        // SAFETY: the message has room for a header.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: computes a size.
        let len = unsafe { libc::CMSG_LEN(in_bytes(descriptors.len())) };
        let filled =
            libc::cmsghdr { cmsg_len: len as usize, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
        // SAFETY: `header` is within `control`, which is aligned for it.
        unsafe { header.write(filled) };
        // SAFETY: the header lies within `control`.
        let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
        for (index, descriptor) in descriptors.iter().enumerate() {
            // SAFETY: `control` has room for the descriptors behind the header.
            let place = unsafe { data.add(index) };
            // SAFETY: as above.
            unsafe { place.write_unaligned(descriptor.as_raw_fd()) };
        }
    }
    // SAFETY: everything that the message points to is alive.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    match usize::try_from(sent) {
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(sent) => Err(format!("sent {sent} of {} bytes", bytes.len()).into()),
        Err(_) => Err(Error::last_os_error().into()),
    }
}

/// Receives bytes in one call, with at most one descriptor.
///
/// # Errors
/// When the system refuses.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    let mut control = [0; 8 + MOST.div_ceil(2)];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut message = message(&mut vector, &mut control, 1);
    // SAFETY: everything that the message points to is alive.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let received = usize::try_from(received).map_err(|_| Error::last_os_error())?;
    // SAFETY: the kernel has filled the message in.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok((received, None));
    }
    // SAFETY: not null, so it lies within `control`.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the sender puts one descriptor there.
    let descriptor = unsafe { data.cast::<RawFd>().read_unaligned() };
    // SAFETY: the kernel has just created it for this process.
    Ok((received, Some(unsafe { OwnedFd::from_raw_fd(descriptor) })))
}

/// Sends a copy of a descriptor, with one byte.
///
/// # Errors
/// When the system refuses.
pub fn send_descriptor(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> Result {
    send(socket, b"$", &[descriptor])
}

/// Receives a descriptor, with one byte.
///
/// # Errors
/// When the system refuses, or the message brought no descriptor.
pub fn receive_descriptor(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    let (received, descriptor) = receive(socket, &mut [0])?;
    match descriptor {
        Some(descriptor) if received == 1 => Ok(descriptor),
        _ => Err("the message brought no descriptor".into()),
    }
}

/// Two connected sockets of type `SOCK_SEQPACKET` or another one, close-on-exec.
///
/// # Errors
/// When the system refuses.
pub fn pair(kind: libc::c_int) -> Result<[OwnedFd; 2]> {
    let mut pair = [-1; 2];
    // SAFETY: `pair` takes two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()) } != 0 {
        return Err(Error::last_os_error().into());
    }
    // SAFETY: the kernel has just created them for this process.
    Ok(pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}
