//! Events of other processes: a handle names the file of the event's payload.

use std::os::fd::AsFd as _;

use super::{FileId, open_descriptor};
use crate::boundary::exports;
use crate::code::{INVALID_CONTEXT, INVALID_HANDLE, OPERATING_SYSTEM, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::stream::event;
use simcommon::payload::{Kind, Payload};

const MAGIC: u64 = u64::from_le_bytes(*b"simcudaE");

/// `CUipcEventHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    magic: u64,
    process: u32,
    descriptor: i32,
    file: FileId,
    _reserved: [u64; 4],
}

const _: () = assert!(size_of::<Handle>() == size_of::<cudarc::driver::sys::CUipcEventHandle>());

/// The event must have been created for other processes.
fn get(out: Out<Handle>, event: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    let descriptor = event::payload(event)?.fd();
    let process = std::process::id();
    let file = FileId::of(&open_descriptor(process, descriptor)?)?;
    out.set(Handle { magic: MAGIC, process, descriptor, file, _reserved: [0; 4] })
}

fn open(out: Out<usize>, handle: Handle) -> Outcome {
    out.required()?;
    let context = context::usable()?;
    if handle.magic != MAGIC {
        return Err(INVALID_HANDLE);
    }
    if handle.process == std::process::id() {
        return Err(INVALID_CONTEXT);
    }
    let file = open_descriptor(handle.process, handle.descriptor)?;
    if FileId::of(&file)? != handle.file {
        return Err(INVALID_HANDLE);
    }
    let payload = Payload::import(file.as_fd()).map_err(|_| OPERATING_SYSTEM)?;
    let payload = payload.filter(|payload| payload.kind() == Some(Kind::Event)).ok_or(INVALID_HANDLE)?;
    out.set(event::open(&context, payload))
}

exports! {
    cuIpcGetEventHandle => get(out: Out<Handle>, event: usize);
    cuIpcOpenEventHandle => open(out: Out<usize>, handle: Handle);
}
