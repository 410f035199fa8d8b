//! [`Refusal`]: why memory that another process sent was refused.
#![forbid(unsafe_code)]

use crate::MemoryKind;
use crate::error::{hyphenated, in_bytes};

/// Why memory that another process sent was refused, before a driver saw its descriptor. The descriptor was closed,
/// except for [`OtherUser`](Self::OtherUser), which leaves the message in the socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The process at the other end belongs to another user.
    #[error("the process at the other end belongs to user {theirs}, not to user {ours} as this one")]
    OtherUser {
        /// The other process's effective user id when it connected.
        theirs: u32,
        /// This process's effective user id.
        ours: u32,
    },
    /// The bytes are no message of [`ipc::send`](crate::ipc::send).
    #[error("it does not begin as a message of vkgdr::ipc::send")]
    NoMessage,
    /// The message has another version.
    #[error("the message has version {theirs}, this library has version {ours}: use the same vkgdr in both processes")]
    Version {
        /// The message's version. 1 is that of the Python package before it had the Rust library's protocol.
        theirs: u8,
        /// The version of this library.
        ours: u8,
    },
    /// The message ends too early.
    #[error("the message ends after {received} of {expected} bytes")]
    Truncated {
        /// The bytes that came.
        received: usize,
        /// The length of a message.
        expected: usize,
    },
    /// The message has more bytes than it should.
    #[error("the message is longer than {expected} bytes")]
    TooLong {
        /// The length of a message.
        expected: usize,
    },
    /// A message comes with exactly one descriptor.
    #[error("it came with {} instead of one", descriptors(*count))]
    Descriptors {
        /// The number received; 2 where more were sent than fit.
        count: usize,
    },
    /// A field has a value that this version does not know.
    #[error("the message has the unknown {field} {value}")]
    Unknown {
        /// The name of the field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// The memory is of another GPU.
    #[error("it is memory of the GPU {}, the handle is of {}", hyphenated(*theirs), hyphenated(*ours))]
    OtherGpu {
        /// The UUID of the memory's GPU.
        theirs: [u8; 16],
        /// The UUID of the handle's GPU.
        ours: [u8; 16],
    },
    /// The other process uses another driver: Vulkan shares memory only between equal drivers (specification,
    /// "External memory handle types compatibility").
    #[error("the other process uses another Vulkan driver or version: {}, not {}", hyphenated(*theirs), hyphenated(*ours))]
    OtherDriver {
        /// `VkPhysicalDeviceIDProperties::driverUUID` in the other process.
        theirs: [u8; 16],
        /// The same in this process.
        ours: [u8; 16],
    },
    /// The two handles have different memory types for the kind.
    #[error("it is {kind} memory of {theirs}, the handle has {ours} for that: open both handles with the same flags")]
    OtherMemoryType {
        /// The kind of memory.
        kind: MemoryKind,
        /// The sender's memory type.
        theirs: String,
        /// The receiver's.
        ours: String,
    },
    /// The sizes do not go together, or not with the GPU.
    #[error("{} of {kind} memory in an allocation of {} cannot be on this GPU", in_bytes(*len), in_bytes(*size))]
    Size {
        /// The kind of memory.
        kind: MemoryKind,
        /// The memory's length in bytes.
        len: u64,
        /// The allocation's size in bytes.
        size: u64,
    },
    /// The descriptor is not what the message says: one that Vulkan exported, or a file of registered pages. A pipe, a socket
    /// or a directory is neither.
    #[error("its descriptor is not of the kind that the message names")]
    OtherDescriptor,
    /// The descriptor is a file that is smaller than the memory.
    #[error("its descriptor is a file of {}, the allocation has {}", in_bytes(*file), in_bytes(*size))]
    File {
        /// The file's size in bytes.
        file: u64,
        /// The allocation's size in bytes.
        size: u64,
    },
}

fn descriptors(count: usize) -> &'static str {
    if count == 0 { "no descriptor" } else { "several descriptors" }
}
