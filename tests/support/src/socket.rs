//! Messages with descriptors over Unix sockets.
#![forbid(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::cmsg_space;
use rustix::io::{IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use vkgdr::{Memory, ipc};

use crate::Result;

/// The largest number of descriptors in a message (`SCM_MAX_FD` in the kernel's include/net/scm.h).
const MOST: usize = 253;
/// The length of a message of [`ipc`], in bytes.
pub const MESSAGE_LEN: usize = 88;

/// Sends bytes in one call, with copies of descriptors.
///
/// # Errors
/// When the system refuses, or sends only a part.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)), "{} descriptors", descriptors.len());
    }
    match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)? {
        sent if sent == bytes.len() => Ok(()),
        sent => Err(format!("sent {sent} of {} bytes", bytes.len()).into()),
    }
}

/// Receives bytes in one call, with at most one descriptor.
///
/// # Errors
/// When the system refuses.
fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

/// The message that [`ipc::send`] sends for memory, and its descriptor.
///
/// # Errors
/// When the system refuses.
///
/// # Panics
/// When the message has another length.
pub fn genuine(memory: &Memory) -> Result<(Vec<u8>, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair()?;
    ipc::send(&ours, memory)?;
    let mut bytes = vec![0; 2 * MESSAGE_LEN];
    let (len, fd) = receive(theirs.as_fd(), &mut bytes)?;
    bytes.truncate(len);
    assert_eq!(len, MESSAGE_LEN);
    Ok((bytes, fd.ok_or("no descriptor was sent")?))
}

/// Two connected sockets of type `SOCK_SEQPACKET` or another one, close-on-exec.
///
/// # Errors
/// When the system refuses.
pub fn pair(kind: libc::c_int) -> Result<[OwnedFd; 2]> {
    let kind = SocketType::from_raw(kind.cast_unsigned());
    Ok(socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?.into())
}
