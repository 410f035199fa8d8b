//! Memory sent to other processes and received from them.
#![expect(unsafe_code, reason = "exports C symbols")]

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use vkgdr_rs::{Error, ipc};

use crate::boundary::{self, handle};
use crate::errors::Outcome;
use crate::handle::vkgdr_t;
use crate::memory_handle::{owned, vkgdr_memory_t, whole};

/// Flags for vkgdr_memory_receive(), combined by bitwise or.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub enum vkgdr_receive_flags {
    /// Receive from a process of any user. It must be trusted: the drivers' behaviour is undefined with a descriptor
    /// that its message describes wrongly.
    VKGDR_RECEIVE_ANY_USER_BIT = 1,
}

/// Sends memory to the process at the other end of a Unix socket: both processes then use the same bytes. The other
/// process receives it with vkgdr_memory_receive(), or in Rust or Python with the functions of `vkgdr::ipc` or
/// `vkgdr.ipc`.
///
/// The memory may be freed afterwards; the bytes live until every process has freed its memory. The call orders nothing:
/// flush, and wait for the device's work, before it.
///
/// @param socket  A connected socket of family AF_UNIX, of type SOCK_STREAM or SOCK_SEQPACKET.
/// @param mem     The memory, not a region and not of a pool.
/// @return A `vkgdr_status`; VKGDR_ERROR_SYSTEM if the socket refused, with
///         `errno`: EAGAIN from one that is full and does not block, EPIPE from one whose other end is closed. Nothing was
///         sent then.
///
/// # Safety
///
/// `socket` must stay open during the call, `mem` must be NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_send(socket: c_int, mem: vkgdr_memory_t) -> i32 {
    boundary::opening(|| {
        // SAFETY: by this function's contract.
        let memory = unsafe { whole(mem) }?;
        // SAFETY: by this function's contract.
        let socket = unsafe { borrow(socket) }?;
        Ok(ipc::send(socket, memory)?)
    })
}

/// Receives memory that another process sent with vkgdr_memory_send(), or in Rust or Python with the functions of
/// `vkgdr::ipc` or `vkgdr.ipc`.
///
/// What does not fit is refused before a driver sees it. That is messages of another version or of no version, memory of
/// another GPU, driver or memory type, and impossible sizes. Unless a flag allows it, everything from a process of
/// another user is refused, too (SO_PEERCRED). A CUDA context must be current as for vkgdr_memory_alloc(). Waits for a
/// message unless the socket is non-blocking, or as long as its timeout (SO_RCVTIMEO) says.
///
/// @param socket  A connected socket of family AF_UNIX, of type SOCK_STREAM or SOCK_SEQPACKET.
/// @param g       The same GPU as the sender's, opened with the same flags.
/// @param flags   Of `enum vkgdr_receive_flags`; 0 for none. Unknown bits are an error.
/// @param out     Where the memory is written; for vkgdr_memory_free().
/// @return A `vkgdr_status`; VKGDR_ERROR_REFUSED for what does not fit,
///         VKGDR_ERROR_DISCONNECTED at the end of the connection, VKGDR_ERROR_SYSTEM if the socket failed, with `errno`:
///         EAGAIN from one that is empty and does not block.
///
/// # Safety
///
/// `socket` must stay open during the call, `g` must be NULL or a live handle, `out` NULL or good for writing. With
/// VKGDR_RECEIVE_ANY_USER_BIT the process at the other end must be trusted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vkgdr_memory_receive(socket: c_int, g: vkgdr_t, flags: u32, out: *mut vkgdr_memory_t) -> i32 {
    let receive = || {
        // SAFETY: by this function's contract.
        let gpu = &unsafe { handle(g) }?.inner;
        // SAFETY: by this function's contract.
        let socket = unsafe { borrow(socket) }?;
        let memory = match flags {
            0 => ipc::recv(socket, gpu),
            // SAFETY: the sender is trusted by this function's contract.
            ANY_USER => unsafe { ipc::recv_from_any_user(socket, gpu) },
            _ => Err(Error::UnknownFlags { bits: flags & !ANY_USER }),
        }?;
        Ok(owned(memory))
    };
    // SAFETY: by this function's contract.
    unsafe { boundary::making(out, receive) }
}

const ANY_USER: u32 = vkgdr_receive_flags::VKGDR_RECEIVE_ANY_USER_BIT as u32;

/// The socket, unless the number cannot be one.
///
/// # Safety
///
/// `socket` must be negative or stay open for as long as the result is used.
unsafe fn borrow<'a>(socket: c_int) -> Outcome<BorrowedFd<'a>> {
    if socket < 0 {
        return Err(Error::System { operation: "getsockopt", code: libc::EBADF }.into());
    }
    // SAFETY: by this function's contract; -1 is excluded.
    Ok(unsafe { BorrowedFd::borrow_raw(socket) })
}
