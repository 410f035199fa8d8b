//! Memory that processes share, sent over a Unix socket.
//!
//! [`send`] sends a descriptor of the memory, with a message that says what it is; [`recv`] refuses what does not fit its
//! handle before a driver sees the descriptor, and imports the memory: both processes then use the same bytes. The C
//! functions `vkgdr_memory_send` and `vkgdr_memory_receive` and Python's `vkgdr.ipc` are these functions, so that programs
//! in all three languages share memory with each other. The page `docs/sharing.md` has the protocol.
//!
//! # Sockets
//!
//! A connected Unix socket of type `SOCK_STREAM`, such as [`UnixStream`](std::os::unix::net::UnixStream), or
//! `SOCK_SEQPACKET`. A message travels whole, and other data may go over the socket before and after it.
//!
//! # Examples
//!
//! ```no_run
//! use std::os::unix::net::UnixStream;
//! use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr, ipc};
//!
//! # fn here() -> Result<(), Box<dyn std::error::Error>> {
//! // In one process:
//! let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
//! let memory = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
//! let socket = UnixStream::connect("/run/user/1000/frames.sock")?;
//! ipc::send(&socket, &memory)?;
//! # Ok(()) }
//!
//! # fn there(socket: UnixStream) -> Result<(), Box<dyn std::error::Error>> {
//! // In the other, with `socket` from `UnixListener::accept`:
//! let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
//! let memory = ipc::recv(&socket, &gpu)?;
//! println!("{} bytes of {} memory", memory.len(), memory.kind());
//! # Ok(()) }
//! ```
#![expect(unsafe_code, reason = "imports a descriptor")]

mod message;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::allocation::{self, Exported, Layout};
use crate::device::{MemoryType, Source};
use crate::driver::fork;
use crate::driver::os::{FileType, file_type, is_memory_file};
use crate::driver::socket::{self, Received};
use crate::error::in_bytes;
use crate::{Error, Memory, MemoryTypeInfo, Result, Vkgdr};
use message::{Backing, LEN, Message};

/// Sends memory to the process at the other end of a Unix socket.
///
/// The memory may be freed here afterwards, and the process may end: the bytes live as long as the memory of any
/// process that shares them. Call it after the writes that the other process is to see, and after
/// [`flush`](crate::Memory::flush): it orders nothing.
///
/// # Errors
///
/// The errors of [`Memory::export_fd`], such as [`Error::Pooled`]; [`Error::System`] with the socket's error number:
/// `EAFNOSUPPORT` for a socket that is not a Unix socket, `EPIPE` where the other end is closed, `EAGAIN` from a socket that
/// is full and is non-blocking or has a timeout. Nothing was sent then.
pub fn send(socket: impl AsFd, memory: &Memory) -> Result<()> {
    let socket = socket.as_fd();
    check_socket(socket)?;
    let exported = memory.export_fd()?;
    let owner = memory.owner();
    let allocation = memory.block().allocation();
    let (memory_type, layout) = (*allocation.memory_type(), allocation.layout()?);
    let (backing, driver, info) = fields(owner, &memory_type)?;
    let message = Message {
        gpu: owner.uuid(),
        driver,
        len: memory.len() as u64,
        size: layout.size,
        dedicated: layout.dedicated,
        kind: memory.kind(),
        backing,
        memory_type: info,
    };
    match socket::send(socket, &message.encode(), exported.as_fd())? {
        LEN => Ok(()),
        // Linux divides no message of less than a page (unix_stream_sendmsg in net/unix/af_unix.c).
        _ => Err(Error::System { operation: "sendmsg", code: libc::EMSGSIZE }),
    }
}

/// Receives memory that a process of the same user sends: both share the bytes.
///
/// `owner` must be a handle of the same GPU, opened with the same flags as the sender's. Host memory that does not come from
/// Vulkan is received by every handle of the GPU. The context and the drop policy
/// are chosen as by [`Memory::allocate`]. What arrives is checked before a driver sees the descriptor: that the
/// message is valid, that its GPU, driver and memory type are the handle's, and that its size and kind are possible. The
/// drivers tell nothing about a descriptor, so the sender is trusted to send the one that its message describes: with another
/// one, the drivers' behaviour is undefined. A process of the same effective user is trusted, since Linux lets it change this
/// process anyway (`ptrace`). Where it does not, as between containers or under Yama, check the peer before this call.
///
/// Waits for a message unless the socket is non-blocking, or as long as its timeout says. A message that arrives in pieces,
/// which [`send`] never does, is refused at once.
///
/// # Errors
///
/// [`Error::Disconnected`] at the end of the connection, [`Error::OtherUser`], [`Error::Refused`] for what does not fit,
/// [`Error::System`] with the socket's error number: `EAGAIN` from a socket that is empty and is non-blocking or has a
/// timeout, `EAFNOSUPPORT` for a socket that is not a Unix socket, `ENOTCONN` where no process is known at the other end,
/// `EMFILE` when the process has no descriptors left; and the errors of [`Memory::import_fd`].
///
/// Errors of the context, [`Error::Forked`], [`Error::OtherUser`] and `EAGAIN` leave the message in the socket. After
/// other refusals a stream may be in the midst of a message: close it.
pub fn recv(socket: impl AsFd, owner: &Vkgdr) -> Result<Memory> {
    let socket = socket.as_fd();
    check_socket(socket)?;
    let (theirs, ours) = (socket::peer_user(socket)?, socket::own_user());
    if theirs != ours {
        return Err(Error::OtherUser { theirs, ours });
    }
    // SAFETY: the sender has the rights of this process, see above.
    unsafe { receive(socket, owner) }
}

/// As [`recv`], from a process of any user.
///
/// # Errors
///
/// As [`recv`], apart from [`Error::OtherUser`].
///
/// # Safety
///
/// The process at the other end must be trusted to send only by [`send`], or as `docs/sharing.md` says: with a
/// descriptor of anything else than the message describes, the drivers' behaviour is undefined.
pub unsafe fn recv_from_any_user(socket: impl AsFd, owner: &Vkgdr) -> Result<Memory> {
    let socket = socket.as_fd();
    check_socket(socket)?;
    // SAFETY: by this function's contract.
    unsafe { receive(socket, owner) }
}

fn check_socket(socket: BorrowedFd<'_>) -> Result<()> {
    fork::check()?;
    socket::check_family(socket)
}

/// # Safety
///
/// As for [`recv_from_any_user`].
unsafe fn receive(socket: BorrowedFd<'_>, owner: &Vkgdr) -> Result<Memory> {
    // First: without a context the memory that arrives would be lost.
    owner.allocation_context()?;
    let (bytes, fd) = receive_message(socket)?;
    let message = Message::decode(&bytes)?;
    let memory_type = match message.backing {
        Backing::Vulkan => owner.vulkan_memory_type(message.kind)?,
        Backing::RegisteredPages => owner.registered_memory_type(),
    };
    let len = usize::try_from(message.len).expect("usize has 64 bits");
    let size = allocation::padded_size(len, message.kind, memory_type).ok();
    let (_, driver, info) = fields(owner, &memory_type)?;
    message.check(owner.uuid(), driver, info, size)?;
    if is_memory_file(fd.as_fd()) != (message.backing == Backing::RegisteredPages) {
        return Err(other_descriptor());
    }
    // A driver that keeps memory in files cannot have more memory than file.
    match file_type(&fd)? {
        FileType::Regular(file) if file < message.size => {
            let (file, size) = (in_bytes(file), in_bytes(message.size));
            return Err(refused(format!("its descriptor is a file of {file}, the allocation has {size}")));
        }
        FileType::NoMemory => return Err(other_descriptor()),
        FileType::Regular(_) | FileType::Memory => {}
    }
    // SAFETY: the message says that the sender exported it from memory of this length, size and kind, and it fits the handle;
    // the sender is trusted by this function's contract.
    let exported =
        unsafe { Exported::new(fd) }.with_layout(Layout { size: message.size, dedicated: message.dedicated });
    Memory::import(owner, &exported, len, message.kind)
}

/// The fields of a message that depend on the memory's type: what the descriptor is, the Vulkan driver's UUID, and the type.
/// For registered pages, the UUID and the heap's size are 0: they belong to no Vulkan driver and no Vulkan heap.
fn fields(owner: &Vkgdr, memory_type: &MemoryType) -> Result<(Backing, [u8; 16], MemoryTypeInfo)> {
    Ok(match memory_type.source {
        Source::Vulkan => (Backing::Vulkan, owner.vulkan()?.driver_uuid(), memory_type.info),
        Source::RegisteredPages | Source::Cuda | Source::DmaBuf => {
            (Backing::RegisteredPages, [0; 16], MemoryTypeInfo { heap_size: 0, ..memory_type.info })
        }
    })
}

/// The bytes of one message, and its only descriptor. [`send`] makes one call for a message, which Linux delivers whole. An
/// incomplete one is refused: the other process could delay the rest for ever.
fn receive_message(socket: BorrowedFd<'_>) -> Result<([u8; LEN], OwnedFd)> {
    let mut bytes = [0; LEN];
    let Received { len, cut, mut descriptors, lost } = socket::receive(socket, &mut bytes)?;
    message::check_start(&bytes[..len])?;
    if cut {
        return Err(refused(format!("the message is longer than {LEN} bytes")));
    }
    if len == 0 && descriptors.is_empty() {
        return Err(Error::Disconnected);
    }
    if len < LEN {
        return Err(refused(format!("the message ends after {len} of {LEN} bytes")));
    }
    match (descriptors.pop(), descriptors.is_empty(), lost) {
        (Some(fd), true, false) => Ok((bytes, fd)),
        // The system closes descriptors that do not fit in the process's table.
        (None, _, true) => Err(Error::System { operation: "recvmsg", code: libc::EMFILE }),
        (None, _, false) => Err(refused("it came with no descriptor instead of one")),
        (Some(_), ..) => Err(refused("it came with several descriptors instead of one")),
    }
}

/// A descriptor that is neither one that Vulkan exported nor a file of registered pages, or not the one of the two that the
/// message names.
fn other_descriptor() -> Error {
    refused("its descriptor is not of the kind that the message names")
}

/// The error of a message that does not fit.
fn refused(reason: impl Into<String>) -> Error {
    Error::Refused { reason: reason.into() }
}

/// The pure parts of the receiver, for the fuzz target: cargo-fuzz sets this configuration.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use super::message::{LEN, Message};

    /// Decodes a message and encodes it again; `None` if the bytes are no message.
    #[must_use]
    pub fn parse(bytes: &[u8; LEN]) -> Option<[u8; LEN]> {
        Message::decode(bytes).ok().map(|message| message.encode())
    }
}
