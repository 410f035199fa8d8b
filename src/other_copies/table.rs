//! The table by which the copies of this crate in one process find each other's memory, and the search for it.
//!
//! Each program and library that contains this crate has an ELF note named `vkgdr`, which holds the address of its
//! table. Notes are found in every loaded file. A symbol would not be found in a program, or in a library that was
//! loaded with `RTLD_LOCAL`. The layout is fixed: a later version of it gets a note of another type.
#![expect(unsafe_code, reason = "reads the notes of loaded libraries")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::Lock;

/// The functions that one copy offers the others. Statuses are 0, or -1 for a failure.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Table {
    /// [`READY`] once the file's constructors run. Before that the functions must not be called: the dynamic linker may not have
    /// relocated what they need.
    pub(super) ready: AtomicU64,
    /// Finds memory by an address, and fills `Found` in on success. The reference must be released.
    pub(super) find: unsafe extern "C" fn(address: u64, found: *mut Found) -> c_int,
    pub(super) release: unsafe extern "C" fn(reference: *mut c_void),
    pub(super) flush: unsafe extern "C" fn(reference: *mut c_void, offset: usize, len: usize) -> c_int,
    pub(super) invalidate: unsafe extern "C" fn(reference: *mut c_void, offset: usize, len: usize) -> c_int,
    pub(super) write:
        unsafe extern "C" fn(reference: *mut c_void, offset: usize, source: *const u8, len: usize) -> c_int,
    pub(super) read: unsafe extern "C" fn(reference: *mut c_void, offset: usize, target: *mut u8, len: usize) -> c_int,
}

/// Memory of another copy.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Found {
    pub(super) reference: *mut c_void,
    pub(super) device_ptr: u64,
    /// 0 without a host view.
    pub(super) host_ptr: u64,
    pub(super) len: u64,
    /// The offset of the address in the memory.
    pub(super) offset: u64,
    /// The granularity of flushes; 1 where the memory is coherent.
    pub(super) atom: u64,
    pub(super) device: i32,
    /// The number of the `MemoryKind`.
    pub(super) kind: u32,
    /// 1 where the CPU caches the memory.
    pub(super) is_cached: u32,
    pub(super) reserved: u32,
}

impl Found {
    pub(super) const NONE: Self = Self {
        reference: ptr::null_mut(),
        device_ptr: 0,
        host_ptr: 0,
        len: 0,
        offset: 0,
        atom: 1,
        device: 0,
        kind: 0,
        is_cached: 0,
        reserved: 0,
    };
}

/// A note (System V ABI, "Note Section"): a header of three words, the name, and the content. Both are padded to 8 bytes, the
/// alignment of the section.
#[repr(C)]
struct Note {
    name_len: u32,
    content_len: u32,
    kind: u32,
    name: [u8; 8],
    _pad: u32,
    table: &'static Table,
}

const READY: u64 = u64::from_ne_bytes(*b"vkgdr ok");
/// The version of [`Table`] and [`Found`].
const VERSION: u32 = 1;
const NAME: [u8; 8] = *b"vkgdr\0\0\0";
/// The offset of the content in a note.
const CONTENT: usize = std::mem::offset_of!(Note, table);

#[used]
// SAFETY: a note's layout; the linker puts the notes of a file into a segment of their own.
#[unsafe(link_section = ".note.vkgdr")]
static NOTE: Note = Note { name_len: 6, content_len: 8, kind: VERSION, name: NAME, _pad: 0, table: &super::TABLE };

#[used]
// SAFETY: the dynamic linker calls the functions of this section without locks of this crate, once the file is relocated.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn mark_ready() {
        super::TABLE.ready.store(READY, Ordering::Release);
    }
    mark_ready
};

/// The loaded files, by the dynamic linker's counts of files loaded and unloaded, and the tables in them.
#[derive(Debug, Clone)]
struct Loaded {
    counts: Option<(u64, u64)>,
    tables: Vec<&'static Table>,
}

static LOADED: Lock<Loaded> = Lock::new(Loaded { counts: None, tables: Vec::new() });

/// The tables of all other copies of this crate that are loaded now. They stay loaded: the C libraries are linked so that
/// they are never unloaded, and neither are extension modules. Not to be called in a forked child.
pub(super) fn others() -> Vec<&'static Table> {
    let known = LOADED.lock().clone();
    let mut search = Search { counts: None, known: known.counts, tables: Vec::new(), is_complete: true };
    // SAFETY: the function keeps its contract, and the search outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), ptr::from_mut(&mut search).cast()) };
    if search.counts == known.counts {
        return known.tables;
    }
    let mut tables = search.tables;
    tables.retain(|&table| !ptr::eq(table, NOTE.table));
    // If a file was still being loaded, the next search starts again.
    let counts = search.counts.filter(|_| search.is_complete);
    *LOADED.lock() = Loaded { counts, tables: tables.clone() };
    tables
}

struct Search {
    /// The counts of the files that are loaded now.
    counts: Option<(u64, u64)>,
    /// The counts of the last search. While they are the same, so are the tables.
    known: Option<(u64, u64)>,
    tables: Vec<&'static Table>,
    /// False if a table was skipped because its file is still being loaded.
    is_complete: bool,
}

/// Adds the tables of a loaded file. Ends the search if no file was loaded or unloaded since the last one.
///
/// # Safety
///
/// Must be called as the callback of `dl_iterate_phdr`, with a [`Search`] as `data`.
unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: by this function's contract.
    let search = unsafe { &mut *data.cast::<Search>() };
    // SAFETY: valid during the callback.
    let info = unsafe { &*info };
    search.counts = Some((info.dlpi_adds, info.dlpi_subs));
    if search.counts == search.known {
        return 1;
    }
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loaded file's program headers.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // The linker lists a file before it has relocated it: until then, addresses in it are zeros or offsets.
    let is_loaded = |address: usize, len: usize| {
        let loads = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
        loads.map(|load| (info.dlpi_addr.wrapping_add(load.p_vaddr), load.p_memsz)).any(|(start, size)| {
            (address as u64).checked_sub(start).is_some_and(|offset| offset <= size && len as u64 <= size - offset)
        })
    };
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = ptr::with_exposed_provenance::<u8>(usize::try_from(info.dlpi_addr + header.p_vaddr).unwrap_or(0));
        let len = usize::try_from(header.p_memsz).unwrap_or(0);
        // SAFETY: a loaded segment of this size, in which the linker writes only the addresses, which are read below.
        let notes = unsafe { slice::from_raw_parts(start, len) };
        let align = if header.p_align == 8 { 8 } else { 4 };
        if let Some(offset) = address_in(notes, align) {
            let address = start.wrapping_add(offset).cast::<usize>();
            // SAFETY: within the segment; volatile, since the linker may be relocating it.
            let address = unsafe { address.read_volatile() };
            match table_at(address, is_loaded) {
                Some(table) => search.tables.push(table),
                None => search.is_complete = false,
            }
        }
    }
    0
}

/// The offset of the address of a table in a segment of notes. A file has one table at most.
fn address_in(notes: &[u8], align: usize) -> Option<usize> {
    let mut start = 0;
    loop {
        let (header, rest) = notes.get(start..)?.split_first_chunk::<12>()?;
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (name_len, content_len) = (word(0) as usize, word(4) as usize);
        if (name_len, content_len, word(8)) == (6, 8, VERSION) && rest.starts_with(&NAME[..6]) {
            let address = start + CONTENT;
            return (address + size_of::<usize>() <= notes.len()).then_some(address);
        }
        let content = (header.len() + name_len).next_multiple_of(align);
        start += (content + content_len).next_multiple_of(align);
    }
}

/// The table at the address in a note; `None` unless it is ready and lies in its file's bytes (`is_loaded`). The address in a
/// note that is not relocated yet does not.
fn table_at(address: usize, is_loaded: impl Fn(usize, usize) -> bool) -> Option<&'static Table> {
    let table = ptr::with_exposed_provenance::<Table>(address);
    if !table.is_aligned() || !is_loaded(address, size_of::<Table>()) {
        return None;
    }
    // SAFETY: bytes of a loaded file at the offset of `ready`, which only an atomic store changes.
    let ready = unsafe { &(*table).ready };
    if ready.load(Ordering::Acquire) != READY {
        return None;
    }
    // SAFETY: a note of this name and type holds the address of a static, and all of it is relocated.
    Some(unsafe { &*table })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As if everything were part of the file except zero and small offsets.
    fn is_relocated(address: usize, _: usize) -> bool {
        address > 0x1_0000
    }

    #[test]
    fn a_table_is_found_once_its_file_is_loaded() {
        let address = ptr::from_ref(NOTE.table).expose_provenance();
        assert!(table_at(address, is_relocated).is_some_and(|table| ptr::eq(table, NOTE.table)));
        for unrelocated in [0, 0x2468, address + 1] {
            assert!(table_at(unrelocated, is_relocated).is_none(), "{unrelocated:#x}");
        }
        // A note that is relocated, of a file whose constructors have not run.
        let Table { find, release, flush, invalidate, write, read, .. } = *NOTE.table;
        let table = Table { ready: AtomicU64::new(0), find, release, flush, invalidate, write, read };
        assert!(table_at(ptr::from_ref(&table).expose_provenance(), is_relocated).is_none());
    }

    #[test]
    fn this_copy_is_not_among_the_others() {
        assert!(others().iter().all(|&table| !ptr::eq(table, NOTE.table)));
        assert!(LOADED.lock().counts.is_some(), "nothing is being loaded");
    }
}
