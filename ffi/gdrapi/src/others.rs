//! Whether the process has another copy of vkgdr, whose memory can be pinned: a program, `libvkgdr.so.1`, the Python module.
//!
//! Each program and library that contains a copy has an ELF note named `vkgdr` (`src/other_copies/table.rs`), this library too.
#![expect(unsafe_code, reason = "reads the notes of loaded libraries")]

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

/// Whether at least two of the loaded files contain a copy.
pub(crate) fn are_loaded() -> bool {
    let mut copies = 0_usize;
    // SAFETY: the function keeps its contract, and the number outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(count), ptr::from_mut(&mut copies).cast()) };
    copies > 1
}

/// Adds a loaded file that has the note.
///
/// # Safety
///
/// Must be called as the callback of `dl_iterate_phdr`, with a `usize` as `data`.
unsafe extern "C" fn count(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: by this function's contract.
    let copies = unsafe { &mut *data.cast::<usize>() };
    // SAFETY: valid during the callback.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loaded file's program headers.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let has_note = headers.iter().filter(|header| header.p_type == libc::PT_NOTE).any(|header| {
        let start = usize::try_from(info.dlpi_addr.wrapping_add(header.p_vaddr)).unwrap_or(0);
        let len = usize::try_from(header.p_memsz).unwrap_or(0);
        let start = ptr::with_exposed_provenance::<u8>(start);
        // SAFETY: a loaded segment of this size, which nobody writes but the linker the addresses in notes.
        is_named(unsafe { slice::from_raw_parts(start, len) })
    });
    *copies += usize::from(has_note);
    0
}

/// Whether one of the notes of a segment has the name, and an address as its content. Its type is the version of what lies there.
fn is_named(notes: &[u8]) -> bool {
    /// The lengths of the name, with its end, and of the content; the type; the name.
    const SIZES: [u32; 2] = [6, 8];
    const NAME: &[u8] = b"vkgdr\0";
    let [name_len, content_len] = SIZES.map(u32::to_ne_bytes);
    notes
        .windows(12 + NAME.len())
        .any(|note| note.starts_with(&name_len) && note[4..].starts_with(&content_len) && note.ends_with(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_by_its_name_and_sizes() {
        let note = |name_len: u32, content_len: u32, name: &[u8]| {
            let words = [name_len, content_len, 1].map(u32::to_ne_bytes);
            [&[0; 8][..], words.as_flattened(), name, &[0; 16]].concat()
        };
        assert!(is_named(&note(6, 8, b"vkgdr\0")));
        for other in
            [note(4, 20, b"GNU\0"), note(6, 4, b"vkgdr\0"), note(6, 8, b"vkgdx\0"), b"vkgdr\0".to_vec(), Vec::new()]
        {
            assert!(!is_named(&other), "{other:?}");
        }
    }

    #[test]
    fn a_program_with_this_copy_alone_has_no_other() {
        assert!(!are_loaded());
    }
}
