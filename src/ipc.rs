//! Memory that processes share, sent over a Unix socket.
//!
//! [`send`] sends a descriptor of the memory, with a message that says what it is. [`recv`] refuses what does not fit its
//! handle before a driver sees the descriptor, and imports the memory. Both processes then use the same bytes. The C
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

use std::array::from_fn;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ash::vk;

use crate::allocation;
use crate::device::MemoryType;
use crate::driver::fork;
use crate::driver::os::{self, FileType, Received, RecvFlags, SendFlags, file_type, is_memory_file};
use crate::error::{hyphenated, in_bytes};
use crate::{Error, Memory, MemoryKind, MemoryTypeInfo, Result, Vkgdr};

/// Sends memory to the process at the other end of a Unix socket.
///
/// The memory may be freed here afterwards, and the process may end. The bytes live as long as the memory of any
/// process that shares them. Call it after the writes that the other process is to see, and after
/// [`flush`](crate::Memory::flush): it orders nothing.
///
/// # Errors
///
/// The errors of [`Memory::export_fd`], such as [`Error::Pooled`]. [`Error::System`] with the socket's error number:
/// `EAFNOSUPPORT` for a socket that is not a Unix socket, `EPIPE` where the other end is closed. Also `EAGAIN` from a full
/// socket that is non-blocking or has a timeout. Nothing was sent then.
pub fn send(socket: impl AsFd, memory: &Memory) -> Result<()> {
    send_by(socket.as_fd(), memory, SendFlags::empty())
}

/// [`send`] that never waits: `EAGAIN` from a socket that is full.
#[cfg(feature = "__internal")]
#[doc(hidden)]
pub fn try_send(socket: impl AsFd, memory: &Memory) -> Result<()> {
    send_by(socket.as_fd(), memory, SendFlags::DONTWAIT)
}

fn send_by(socket: BorrowedFd<'_>, memory: &Memory, flags: SendFlags) -> Result<()> {
    check_socket(socket)?;
    let exported = memory.export_fd()?;
    let owner = memory.owner();
    let allocation = memory.allocation();
    let memory_type = *allocation.memory_type();
    let (registered, driver, info) = fields(owner, &memory_type)?;
    let message = Message {
        gpu: owner.uuid(),
        driver,
        len: memory.len() as u64,
        size: allocation::padded_size(memory.len(), memory_type)?,
        kind: memory.kind(),
        registered,
        memory_type: info,
    };
    match os::send(socket, &message.encode(), exported.as_fd(), flags)? {
        LEN => Ok(()),
        // Linux divides no message of less than a page (unix_stream_sendmsg in net/unix/af_unix.c).
        _ => Err(Error::System { operation: "sendmsg", code: libc::EMSGSIZE }),
    }
}

/// Receives memory that a process of the same user sends: both share the bytes.
///
/// `owner` must be a handle of the same GPU, opened with the same flags as the sender's. Host memory that does not come from
/// Vulkan is received by every handle of the GPU. The context and the drop policy
/// are chosen as by [`Memory::allocate`]. What arrives is checked before a driver sees the descriptor. The message must be
/// valid, its GPU, driver and memory type the handle's, and its size and kind possible. The drivers tell nothing about a
/// descriptor, so the sender is trusted to send the one that its message describes. With another one, the drivers' behaviour
/// is undefined. A process of the same effective user is trusted, since Linux lets it change this process anyway (`ptrace`).
/// Where it does not, as between containers or under Yama, check the peer before this call.
///
/// Waits for a message unless the socket is non-blocking, or as long as its timeout says. A message that arrives in pieces,
/// which [`send`] never does, is refused at once.
///
/// # Errors
///
/// [`Error::Disconnected`] at the end of the connection, [`Error::OtherUser`], [`Error::Refused`] for what does not fit,
/// and the errors of [`Memory::import_fd`]. [`Error::System`] with the socket's error number: `EAGAIN` from an empty
/// socket that is non-blocking or has a timeout, `EAFNOSUPPORT` for a socket that is not a Unix socket. Also `ENOTCONN`
/// where no process is known at the other end, and `EMFILE` when the process has no descriptors left.
///
/// Errors of the context, [`Error::Forked`], [`Error::OtherUser`] and `EAGAIN` leave the message in the socket. After
/// other refusals a stream may be in the midst of a message: close it.
pub fn recv(socket: impl AsFd, owner: &Vkgdr) -> Result<Memory> {
    // Once: another call may return another socket.
    let socket = socket.as_fd();
    check_user(socket)?;
    // SAFETY: the sender has the rights of this process, see above.
    unsafe { recv_from_any_user(socket, owner) }
}

/// Whether the process at the other end is of the same user: what [`recv`] checks.
#[doc(hidden)]
pub fn check_user(socket: impl AsFd) -> Result<()> {
    let socket = socket.as_fd();
    check_socket(socket)?;
    let (theirs, ours) = (os::peer_user(socket)?, os::own_user());
    if theirs == ours && !os::may_be_unmapped(theirs) { Ok(()) } else { Err(Error::OtherUser { theirs, ours }) }
}

/// As [`recv`], from a process of any user.
///
/// # Errors
///
/// As [`recv`], apart from [`Error::OtherUser`].
///
/// # Safety
///
/// The process at the other end must be trusted to send only by [`send`], or as `docs/sharing.md` says. With a
/// descriptor of anything else than the message describes, the drivers' behaviour is undefined.
pub unsafe fn recv_from_any_user(socket: impl AsFd, owner: &Vkgdr) -> Result<Memory> {
    // SAFETY: by this function's contract.
    unsafe { recv_by(socket.as_fd(), owner, RecvFlags::empty()) }
}

/// [`recv_from_any_user`] that never waits: `EAGAIN` from a socket that is empty.
#[cfg(feature = "__internal")]
#[doc(hidden)]
pub unsafe fn try_recv_from_any_user(socket: impl AsFd, owner: &Vkgdr) -> Result<Memory> {
    // SAFETY: by this function's contract, that of `recv_from_any_user`.
    unsafe { recv_by(socket.as_fd(), owner, RecvFlags::DONTWAIT) }
}

/// # Safety
///
/// The contract of [`recv_from_any_user`].
unsafe fn recv_by(socket: BorrowedFd<'_>, owner: &Vkgdr, flags: RecvFlags) -> Result<Memory> {
    check_socket(socket)?;
    // First: without a context the memory that arrives would be lost.
    owner.allocation_context()?;
    let (bytes, fd) = receive_message(socket, flags)?;
    let message = Message::decode(&bytes)?;
    let memory_type = match message.registered {
        true => owner.memory_type(MemoryKind::Host)?,
        false => owner.vulkan_memory_type(message.kind)?,
    };
    let len = usize::try_from(message.len).expect("usize has 64 bits");
    let size = allocation::padded_size(len, memory_type).ok();
    let (_, driver, info) = fields(owner, &memory_type)?;
    message.check(owner.uuid(), driver, info, size)?;
    let is_named = is_memory_file(fd.as_fd()) == message.registered;
    match file_type(&fd)? {
        // A driver that keeps memory in files cannot have more memory than file.
        FileType::Regular(file) if file < message.size => {
            let (file, size) = (in_bytes(file), in_bytes(message.size));
            return Err(refused(format!("its descriptor is a file of {file}, the allocation has {size}")));
        }
        FileType::Regular(_) | FileType::Memory if is_named => {}
        _ => return Err(refused("its descriptor is not of the kind that the message names")),
    }
    // SAFETY: the message says that the sender exported it from memory of this length, size and kind, and it fits the handle.
    // The sender is trusted by this function's contract.
    unsafe { Memory::import_fd(owner, fd, len, message.kind) }
}

fn check_socket(socket: BorrowedFd<'_>) -> Result<()> {
    fork::check()?;
    os::check_family(socket)
}

/// The fields of a message that depend on the memory's type: whether it is registered pages, the Vulkan driver's UUID, and the
/// type. Registered pages belong to no Vulkan driver and no Vulkan heap: their UUID and heap size are 0.
fn fields(owner: &Vkgdr, memory_type: &MemoryType) -> Result<(bool, [u8; 16], MemoryTypeInfo)> {
    Ok(match memory_type.is_vulkan() {
        true => (false, owner.vulkan()?.device().physical.driver_uuid, memory_type.info),
        false => (true, [0; 16], MemoryTypeInfo { heap_size: 0, ..memory_type.info }),
    })
}

/// The bytes of one message, and its only descriptor. [`send`] makes one call for a message, which Linux delivers whole. An
/// incomplete one is refused: the other process could delay the rest for ever.
fn receive_message(socket: BorrowedFd<'_>, flags: RecvFlags) -> Result<([u8; LEN], OwnedFd)> {
    let mut bytes = [0; LEN];
    let Received { len, cut, mut descriptors, lost } = os::receive(socket, &mut bytes, flags)?;
    check_start(&bytes[..len])?;
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

/// The error of a message that does not fit.
fn refused(reason: impl Into<String>) -> Error {
    Error::Refused { reason: reason.into() }
}

/// The length of a message in bytes.
const LEN: usize = 88;
const MAGIC: [u8; 7] = *b"vkgdr\0\0";
const VERSION: u8 = 2;

/// The contents of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message {
    gpu: [u8; 16],
    driver: [u8; 16],
    /// Bytes of the memory.
    len: u64,
    /// Bytes of the allocation.
    size: u64,
    kind: MemoryKind,
    /// Whether the descriptor is a sealed anonymous file, whose pages each process registers with CUDA. Otherwise Vulkan has
    /// exported it as an opaque one.
    registered: bool,
    memory_type: MemoryTypeInfo,
}

impl Message {
    /// The bytes of the message.
    fn encode(&self) -> [u8; LEN] {
        let MemoryTypeInfo { index, heap, heap_size, flags } = self.memory_type;
        let numbers = [self.len, self.size, heap_size].map(u64::to_le_bytes);
        let words = [self.kind as u32, self.registered.into(), index, flags.as_raw(), heap, 0];
        let words = words.map(u32::to_le_bytes);
        let fields: [&[u8]; 6] =
            [&MAGIC, &[VERSION], &self.gpu, &self.driver, numbers.as_flattened(), words.as_flattened()];
        fields.concat().try_into().expect("the fields fill a message")
    }

    /// Parses a message.
    fn decode(bytes: &[u8; LEN]) -> Result<Self> {
        check_start(bytes)?;
        let [len, size, heap_size] = from_fn(|index| u64::from_le_bytes(field(bytes, 40 + 8 * index)));
        let [kind, registered, index, flags, heap, reserved] =
            from_fn(|index| u32::from_le_bytes(field(bytes, 64 + 4 * index)));
        let known = MemoryKind::ALL.into_iter().find(|known| *known as u32 == kind);
        let kind = known.ok_or_else(|| unknown("kind", kind))?;
        let registered = match (registered, reserved) {
            (0, 0) => false,
            // Never memory of another kind.
            (1, 0) if kind == MemoryKind::Host => true,
            (0 | 1, 1..) => return Err(unknown("flags", reserved)),
            _ => return Err(unknown("kind of descriptor", registered)),
        };
        let flags = vk::MemoryPropertyFlags::from_raw(flags);
        let memory_type = MemoryTypeInfo { index, heap, heap_size, flags };
        Ok(Self { gpu: field(bytes, 8), driver: field(bytes, 24), len, size, kind, registered, memory_type })
    }

    /// Refuses memory that a handle could not import. The handle is of the GPU `gpu`, whose Vulkan driver is `driver`, and has
    /// the memory type `ours` for the message's kind. `size` is that of an allocation of the message's length; `None` if such
    /// an allocation is impossible.
    fn check(&self, gpu: [u8; 16], driver: [u8; 16], ours: MemoryTypeInfo, size: Option<u64>) -> Result<()> {
        let (kind, theirs) = (self.kind, self.memory_type);
        if self.gpu != gpu {
            let (theirs, ours) = (hyphenated(self.gpu), hyphenated(gpu));
            return Err(refused(format!("it is memory of the GPU {theirs}, the handle is of {ours}")));
        }
        // Vulkan shares memory only between equal drivers ("External memory handle types compatibility").
        if self.driver != driver {
            let (theirs, ours) = (hyphenated(self.driver), hyphenated(driver));
            return Err(refused(format!(
                "the other process uses another Vulkan driver or version: {theirs}, not {ours}"
            )));
        }
        if theirs != ours {
            let [theirs, ours] = [theirs, ours].map(|MemoryTypeInfo { index, heap, heap_size, flags }| {
                format!("memory type {index} ({flags:?}, heap {heap} of {heap_size} bytes)")
            });
            return Err(refused(format!(
                "it is {kind} memory of {theirs}, the handle has {ours} for that: open both handles with the same flags"
            )));
        }
        if size != Some(self.size) {
            let (len, size) = (in_bytes(self.len), in_bytes(self.size));
            return Err(refused(format!("{len} of {kind} memory in an allocation of {size} cannot be on this GPU")));
        }
        Ok(())
    }
}

/// Checks the part of the magic and the version that has arrived: a message of another version is refused for that, not for
/// its length.
fn check_start(bytes: &[u8]) -> Result<()> {
    if !bytes.iter().zip(&MAGIC).all(|(byte, expected)| byte == expected) {
        return Err(refused("it does not begin as a message of vkgdr::ipc::send"));
    }
    match bytes.get(MAGIC.len()) {
        None | Some(&VERSION) => Ok(()),
        Some(theirs) => Err(refused(format!(
            "the message has version {theirs}, this library has version {VERSION}: use the same vkgdr in both processes"
        ))),
    }
}

fn unknown(field: &str, value: u32) -> Error {
    refused(format!("the message has the unknown {field} {value}"))
}

fn field<const N: usize>(bytes: &[u8; LEN], offset: usize) -> [u8; N] {
    bytes[offset..].first_chunk().copied().expect("a field of the message")
}

/// Decodes a message and encodes it again, for the fuzz target; `None` if the bytes are no message.
#[cfg(fuzzing)]
#[doc(hidden)]
#[must_use]
pub fn recode(bytes: &[u8; LEN]) -> Option<[u8; LEN]> {
    Message::decode(bytes).ok().map(|message| message.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(0x0107);
    const SENT: Message = Message {
        gpu: *b"a GPU's own UUID",
        driver: *b"and its driver's",
        len: 5000,
        size: 5056,
        kind: MemoryKind::Host,
        registered: false,
        memory_type: MemoryTypeInfo { index: 5, heap: 2, heap_size: 256 << 20, flags: FLAGS },
    };

    #[test]
    fn the_layout_is_the_documented_one() {
        let mut expected = b"vkgdr\0\0\x02a GPU's own UUIDand its driver's".to_vec();
        expected.extend([0x88, 0x13, 0, 0, 0, 0, 0, 0]);
        expected.extend([0xc0, 0x13, 0, 0, 0, 0, 0, 0]);
        expected.extend([0, 0, 0, 0x10, 0, 0, 0, 0]);
        expected.extend([1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([5, 0, 0, 0, 7, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(SENT.encode().as_slice(), expected);
        assert!(Message::decode(&SENT.encode()).is_ok_and(|read| read == SENT));
    }
}
