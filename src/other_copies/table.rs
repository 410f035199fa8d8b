//! The table by which the copies of this crate in one process find each other's memory, and the search for it.
//!
//! Each program and library that contains this crate has an ELF note named `vkgdr`, which holds the address of its table.
//! Notes are found in all that is loaded, however it was loaded: a symbol would not be, in a program or a library that was
//! loaded with `RTLD_LOCAL`. The layout is fixed: a later version of it gets a note of another type.
#![expect(unsafe_code, reason = "reads the notes of loaded libraries")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::slice;

use crate::lock::Lock;

/// What one copy offers the others. Statuses are 0, or -1 for a failure.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Table {
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
    /// As `MemoryKind`.
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

/// The version of [`Table`] and [`Found`].
const VERSION: u32 = 1;
const NAME: [u8; 8] = *b"vkgdr\0\0\0";
/// The place of the content in a note.
const CONTENT: usize = std::mem::offset_of!(Note, table);

#[used]
// SAFETY: a note's layout; the linker puts the notes of a file into a segment of their own.
#[unsafe(link_section = ".note.vkgdr")]
static NOTE: Note = Note { name_len: 6, content_len: 8, kind: VERSION, name: NAME, _pad: 0, table: &super::TABLE };

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
    let mut search = Search { counts: None, known: known.counts, tables: Vec::new() };
    // SAFETY: the function keeps its contract, and the search outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(collect), ptr::from_mut(&mut search).cast()) };
    if search.counts == known.counts {
        return known.tables;
    }
    let mut tables = search.tables;
    tables.retain(|&table| !ptr::eq(table, NOTE.table));
    *LOADED.lock() = Loaded { counts: search.counts, tables: tables.clone() };
    tables
}

struct Search {
    /// The counts of the files that are loaded now.
    counts: Option<(u64, u64)>,
    /// The counts of the last search: where they are the same, its tables still are.
    known: Option<(u64, u64)>,
    tables: Vec<&'static Table>,
}

/// Adds the tables of a loaded file. Ends the search where they are known.
///
/// # Safety
///
/// As the callback of `dl_iterate_phdr`, with a [`Search`] as `data`.
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
    for header in headers.iter().filter(|header| header.p_type == libc::PT_NOTE) {
        let start = ptr::with_exposed_provenance::<u8>(usize::try_from(info.dlpi_addr + header.p_vaddr).unwrap_or(0));
        let len = usize::try_from(header.p_memsz).unwrap_or(0);
        // SAFETY: a loaded segment of this size, which is not written once it is relocated.
        let notes = unsafe { slice::from_raw_parts(start, len) };
        let align = if header.p_align == 8 { 8 } else { 4 };
        search.tables.extend(tables_in(notes, align));
    }
    0
}

/// The tables in a segment of notes.
fn tables_in(mut notes: &[u8], align: usize) -> Vec<&'static Table> {
    let mut tables = Vec::new();
    while let Some((header, rest)) = notes.split_first_chunk::<12>() {
        let word = |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (name_len, content_len) = (word(0) as usize, word(4) as usize);
        if (name_len, content_len, word(8)) == (6, 8, VERSION) && rest.starts_with(&NAME[..6]) {
            let pointer = notes.get(CONTENT..).and_then(<[u8]>::first_chunk::<8>);
            let table = ptr::with_exposed_provenance::<Table>(pointer.map_or(0, |bytes| usize::from_ne_bytes(*bytes)));
            // SAFETY: a note of this name and type holds the address of a static.
            tables.extend(unsafe { table.as_ref() });
        }
        let content = (header.len() + name_len).next_multiple_of(align);
        notes = notes.get((content + content_len).next_multiple_of(align)..).unwrap_or_default();
    }
    tables
}
