//! Descriptors over Unix sockets.
#![expect(unsafe_code, reason = "sends and receives control messages")]

use std::io::Error;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::Result;

/// The bytes of a descriptor.
const DESCRIPTOR: u32 = 4;
const _: () = assert!(size_of::<RawFd>() == DESCRIPTOR as usize);

/// The buffer for the control message of one descriptor, aligned for its header.
type Control = [u64; 8];

/// One byte, which carries the control message.
fn message(byte: &mut [u8; 1], control: &mut Control, vector: &mut libc::iovec) -> libc::msghdr {
    *vector = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a plain structure of integers and pointers.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vector;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: computes a size.
    let space = unsafe { libc::CMSG_SPACE(DESCRIPTOR) };
    message.msg_controllen = space as usize;
    message
}

/// Sends a copy of a descriptor.
///
/// # Errors
/// When the system refuses.
pub fn send_descriptor(socket: BorrowedFd<'_>, descriptor: BorrowedFd<'_>) -> Result {
    let (mut byte, mut control, mut vector) =
        ([b'$'], Control::default(), libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });
    let message = message(&mut byte, &mut control, &mut vector);
    // SAFETY: the message has room for a header.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    // SAFETY: computes a size.
    let len = unsafe { libc::CMSG_LEN(DESCRIPTOR) };
    let filled = libc::cmsghdr { cmsg_len: len as usize, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
    // SAFETY: `header` is within `control`, which is aligned for it.
    unsafe { header.write(filled) };
    // SAFETY: the header lies within `control`.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: `control` has room for a descriptor behind the header.
    unsafe { data.cast::<RawFd>().write_unaligned(descriptor.as_raw_fd()) };
    // SAFETY: everything that the message points to is alive.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, 0) };
    if sent == 1 { Ok(()) } else { Err(Error::last_os_error().into()) }
}

/// Receives a descriptor.
///
/// # Errors
/// When the system refuses, or the message brought no descriptor.
pub fn receive_descriptor(socket: BorrowedFd<'_>) -> Result<OwnedFd> {
    let (mut byte, mut control, mut vector) =
        ([0], Control::default(), libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 });
    let mut message = message(&mut byte, &mut control, &mut vector);
    // SAFETY: everything that the message points to is alive.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received != 1 {
        return Err(Error::last_os_error().into());
    }
    // SAFETY: the kernel has filled the message in.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Err("the message brought no descriptor".into());
    }
    // SAFETY: not null, so it lies within `control`.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: the sender puts one descriptor there.
    let descriptor = unsafe { data.cast::<RawFd>().read_unaligned() };
    // SAFETY: the kernel has just created it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
