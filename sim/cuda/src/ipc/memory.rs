//! Memory of other processes: a handle names the file of the allocation's pages.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use cudarc::driver::sys::CUipcMem_flags;

use super::{FileId, open_descriptor};
use crate::boundary::exports;
use crate::code::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, MAP_FAILED, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::memory::table::{self, Kind};
use crate::memory::window::{Backing, Window};
use crate::pages::{Mapping, Pages};
use crate::sync::lock;

const MAGIC: u64 = u64::from_le_bytes(*b"simcuda1");
const LAZY_PEER_ACCESS: u32 = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;

/// `CUipcMemHandle`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Handle {
    magic: u64,
    process: u32,
    descriptor: i32,
    file: FileId,
    /// Of the pages, in bytes.
    len: u64,
    /// Of the allocation in them.
    offset: u64,
    size: u64,
    _reserved: u64,
}

const _: () = assert!(size_of::<Handle>() == size_of::<cudarc::driver::sys::CUipcMemHandle>());

/// The address may be anywhere in an allocation of `cuMemAlloc`, all of which is shared.
fn get(out: Out<Handle>, pointer: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    let found = table::find(pointer).filter(|found| found.kind == Kind::Device).ok_or(INVALID_VALUE)?;
    let window = found.window;
    let pages = Pages::containing(window.address, window.size).ok_or(INVALID_VALUE)?;
    let (descriptor, len) = pages.share()?;
    let process = std::process::id();
    let file = FileId::of(&open_descriptor(process, descriptor)?)?;
    let (offset, size) = ((window.address - pages.start) as u64, window.size as u64);
    out.set(Handle { magic: MAGIC, process, descriptor, file, len: len as u64, offset, size, _reserved: 0 })
}

/// An allocation that was opened, and how often.
struct Opened {
    window: Window,
    uses: usize,
}

impl Opened {
    /// Whether it is still open: the destruction of its context closes it, and other memory may have its address then.
    fn is_live(&self) -> bool {
        table::find(self.window.address).is_some_and(|found| found.window.id == self.window.id)
    }
}

/// By file and offset. The table of memory is locked after it.
static OPENED: LazyLock<Mutex<HashMap<(FileId, u64), Opened>>> = LazyLock::new(Mutex::default);

fn is_shared(kind: Kind) -> bool {
    kind == Kind::Shared
}

/// An allocation that is open already is not mapped again.
fn open(out: Out<usize>, handle: Handle, flags: u32) -> Outcome {
    out.required()?;
    let context = context::usable()?;
    if flags != LAZY_PEER_ACCESS {
        return Err(INVALID_VALUE);
    }
    if handle.magic != MAGIC {
        return Err(INVALID_HANDLE);
    }
    if handle.process == std::process::id() {
        return Err(INVALID_CONTEXT);
    }
    let mut opened = lock(&OPENED);
    let key = (handle.file, handle.offset);
    opened.retain(|_, opened| opened.is_live());
    if let Some(known) = opened.get_mut(&key) {
        known.uses += 1;
        return out.set(known.window.address);
    }
    let file = open_descriptor(handle.process, handle.descriptor)?;
    let length = file.metadata().map_err(|_| INVALID_HANDLE)?.len();
    let inside = handle.size > 0 && handle.offset.checked_add(handle.size).is_some_and(|end| end <= handle.len);
    if FileId::of(&file)? != handle.file || length < handle.len || !inside {
        return Err(INVALID_HANDLE);
    }
    let number = |value: u64| usize::try_from(value).map_err(|_| INVALID_HANDLE);
    let (len, offset, size) = (number(handle.len)?, number(handle.offset)?, number(handle.size)?);
    let mapping = Mapping::of(&file, len).ok_or(MAP_FAILED)?;
    let address = mapping.start + offset;
    let window = table::insert_window(address, size, Kind::Shared, context.owner(), Backing::block(mapping));
    opened.insert(key, Opened { window, uses: 1 });
    out.set(address)
}

/// As often as it was opened. The error of a context that has failed comes after the release, as from `cuMemFree`.
fn close(pointer: usize) -> Outcome {
    context::current()?;
    let mut opened = lock(&OPENED);
    opened.retain(|_, opened| opened.is_live());
    let (key, known) = opened.iter_mut().find(|(_, opened)| opened.window.address == pointer).ok_or(INVALID_VALUE)?;
    let owner = known.window.owner;
    known.uses -= 1;
    if known.uses == 0 {
        let key = *key;
        opened.remove(&key);
        table::remove(pointer, is_shared).ok_or(INVALID_VALUE)?;
    }
    context::check_owner(owner)
}

exports! {
    cuIpcGetMemHandle => get(out: Out<Handle>, pointer: usize);
    cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle => open(out: Out<usize>, handle: Handle, flags: u32);
    cuIpcCloseMemHandle => close(pointer: usize), Release;
}
