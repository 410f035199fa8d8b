#![forbid(unsafe_code)]
//! Code images: extracts PTX text, the only code that the simulator runs, and recognises compiled code.

use super::compression;
use super::join::{DEVICE_RUNTIME, join};
use crate::code::{Code, INVALID_IMAGE, NO_BINARY_FOR_GPU};
use crate::device::COMPUTE_CAPABILITY;
use crate::ffi::In;

// What begins an image that is compiled already; LTO-IR is NVRTC's under `-dlto`.
const COMPILED: [(&[u8], &str); 2] = [(b"\x7fELF", "a cubin"), (b"\xedCN\x7f", "LTO-IR")];
// Little-endian 0x466243b1: the wrapper that nvcc puts around a fat binary in an object file.
const WRAPPER: &[u8] = &[0xb1, 0x43, 0x62, 0x46];
// FATBINC_LINK_VERSION in CUDA's fatbinary_section.h: the wrapper has a list of fat binaries to link, too.
const LINKED_VERSION: u32 = 2;
// Little-endian 0xba55ed50.
const FAT_BINARY: &[u8] = &[0x50, 0xed, 0x55, 0xba];
const ARCHIVE: &[u8] = b"!<arch>\n";

// Offsets in a fat binary. Its own header is followed by entries, each with a header and a payload.
const HEADER_LEN: usize = 6;
const ENTRIES_LEN: usize = 8;
const ENTRY_KIND: usize = 0;
const ENTRY_HEADER_LEN: usize = 4;
const ENTRY_PAYLOAD_LEN: usize = 8;
const ENTRY_COMPRESSED_LEN: usize = 16;
const ENTRY_TARGET: usize = 28;
const ENTRY_FLAGS: usize = 40;
const ENTRY_LEN: usize = 56;
const KIND_PTX: u64 = 1;

// In the names of libcudadevrt.a's only member and of its static functions.
const DEVICE_RUNTIME_NAME: &str = "cuda_device_runtime";

/// Why an image cannot be used: the code, and a line for the log.
pub(super) type Refusal = (Code, String);

fn refuse(code: Code, reason: &str) -> Refusal {
    (code, reason.to_owned())
}

/// The PTX text of an image; of a fat binary, that of its PTX entry.
pub(super) fn ptx(image: In<u8>) -> Result<String, Refusal> {
    let missing = |code| refuse(code, "there is no image");
    if image.starts_with(WRAPPER) {
        // Magic and version, then the pointer.
        if image.cast::<u32>().element(1).map_err(missing)? == LINKED_VERSION {
            return linked(image.cast::<In<In<u8>>>().element(2).map_err(missing)?);
        }
        return from_fat_binary(image.cast::<In<u8>>().element(1).map_err(missing)?);
    }
    if image.starts_with(FAT_BINARY) {
        return from_fat_binary(image);
    }
    if let Some((_, what)) = COMPILED.iter().find(|(start, _)| image.starts_with(start)) {
        return Err(compiled(what));
    }
    from_text(&image.until_nul().map_err(missing)?)
}

// The PTX of a program that was compiled with `-rdc=true`: its objects' fat binaries, up to a null pointer, are linked when they
// are loaded. What nvcc linked before is machine code, or nothing. One of them is libcudadevrt.a's.
fn linked(binaries: In<In<u8>>) -> Result<String, Refusal> {
    let mut texts = Vec::new();
    for index in 0.. {
        let binary =
            binaries.element(index).map_err(|code| refuse(code, "there is no list of fat binaries to link"))?;
        if binary.is_null() {
            break;
        }
        texts.push(from_fat_binary(binary)?);
    }
    Ok(join(&texts))
}

/// The PTX text in bytes whose length is known, with or without a NUL behind it.
pub(super) fn ptx_from_bytes(bytes: &[u8]) -> Result<String, Refusal> {
    if let Some((_, what)) = COMPILED.iter().find(|(start, _)| bytes.starts_with(start)) {
        return Err(compiled(what));
    }
    if bytes.starts_with(ARCHIVE) {
        return Err(compiled("a library"));
    }
    if bytes.starts_with(FAT_BINARY) {
        return entry_of(bytes);
    }
    from_bytes_of_text(bytes)
}

fn from_bytes_of_text(bytes: &[u8]) -> Result<String, Refusal> {
    from_text(bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

/// The PTX that stands for a library: libcudadevrt.a, recognised by the name of its member, is the only one.
pub(super) fn library(bytes: &[u8]) -> Result<String, Refusal> {
    let name = DEVICE_RUNTIME_NAME.as_bytes();
    if bytes.starts_with(ARCHIVE) && bytes.windows(name.len()).any(|window| window == name) {
        return Ok(DEVICE_RUNTIME.to_owned());
    }
    ptx_from_bytes(bytes)
}

fn compiled(what: &str) -> Refusal {
    let reason = format!("the image is {what}, but the simulator runs PTX only: compile with --ptx, not --cubin");
    (NO_BINARY_FOR_GPU, reason)
}

fn from_text(bytes: &[u8]) -> Result<String, Refusal> {
    // Comments may be in any encoding; the rest of PTX is ASCII.
    let text = String::from_utf8_lossy(bytes).into_owned();
    if text.contains(".version") {
        Ok(text)
    } else {
        Err(refuse(INVALID_IMAGE, "the image is neither PTX text nor a fat binary with PTX"))
    }
}

fn from_fat_binary(image: In<u8>) -> Result<String, Refusal> {
    match whole_fat_binary(image) {
        Some(bytes) => entry_of(&bytes),
        None => Err(refuse(INVALID_IMAGE, "the fat binary is damaged")),
    }
}

// The length that its header gives.
fn whole_fat_binary(image: In<u8>) -> Option<Vec<u8>> {
    if !image.starts_with(FAT_BINARY) {
        return None;
    }
    let header = image.bytes(16).ok()?;
    let len = size(&header, HEADER_LEN, 2)?.checked_add(size(&header, ENTRIES_LEN, 8)?)?;
    image.bytes(len).ok()
}

// A little-endian number of `width` bytes.
fn number(bytes: &[u8], offset: usize, width: usize) -> Option<u64> {
    let field = bytes.get(offset..offset.checked_add(width)?)?;
    Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn size(bytes: &[u8], offset: usize, width: usize) -> Option<usize> {
    usize::try_from(number(bytes, offset, width)?).ok()
}

// The PTX for the newest GPU that is not newer than this one, as a GPU's driver chooses it. libcudadevrt.a, which may have PTX for
// newer GPUs only, is replaced by the simulator's part of it.
fn entry_of(fat_binary: &[u8]) -> Result<String, Refusal> {
    let start = size(fat_binary, HEADER_LEN, 2).and_then(|start| fat_binary.get(start..)).unwrap_or_default();
    let entries = std::iter::successors(Entry::first(start), |entry| Entry::first(entry.next));
    let entries: Vec<_> = entries.filter(|entry| entry.kind == KIND_PTX).collect();
    let fitting = entries.iter().filter(|entry| entry.target <= device()).max_by_key(|entry| entry.target);
    let oldest = entries.iter().min_by_key(|entry| entry.target);
    let best = fitting.or(oldest).ok_or_else(|| compiled("a fat binary without PTX"))?;
    let text = best.text()?;
    if text.contains(DEVICE_RUNTIME_NAME) {
        return Ok(DEVICE_RUNTIME.to_owned());
    }
    if best.target > device() {
        let reason = format!(
            "the fat binary has PTX for sm_{} and newer GPUs, and this one is an sm_{}: compile for that, too",
            best.target,
            device()
        );
        return Err((NO_BINARY_FOR_GPU, reason));
    }
    Ok(text)
}

// The number in the `sm_NN` of the simulated GPU.
fn device() -> u64 {
    u64::try_from(COMPUTE_CAPABILITY.0 * 10 + COMPUTE_CAPABILITY.1).unwrap_or_default()
}

struct Entry<'a> {
    kind: u64,
    /// The `sm_NN` that it is for, as a number.
    target: u64,
    flags: u64,
    header: &'a [u8],
    payload: &'a [u8],
    /// What follows.
    next: &'a [u8],
}

impl Entry<'_> {
    /// An entry of PTX is text: one that is a fat binary itself, perhaps of others without end, is refused.
    fn text(&self) -> Result<String, Refusal> {
        let Entry { flags, payload, header, .. } = *self;
        if !compression::is_compressed(flags) {
            return from_bytes_of_text(payload);
        }
        let packed = size(header, ENTRY_COMPRESSED_LEN, 4).and_then(|len| payload.get(..len));
        let text = packed.zip(size(header, ENTRY_LEN, 8));
        let text = text.and_then(|(packed, len)| compression::decompressed(flags, packed, len));
        let damaged = || refuse(INVALID_IMAGE, "the fat binary's compressed PTX is damaged");
        from_bytes_of_text(&text.ok_or_else(damaged)?)
    }

    fn first(bytes: &[u8]) -> Option<Entry<'_>> {
        let start = size(bytes, ENTRY_HEADER_LEN, 4).filter(|start| *start > 0)?;
        let end = start.checked_add(size(bytes, ENTRY_PAYLOAD_LEN, 8)?)?;
        let (kind, target) = (number(bytes, ENTRY_KIND, 2)?, number(bytes, ENTRY_TARGET, 4)?);
        let flags = number(bytes, ENTRY_FLAGS, 8)?;
        let (header, payload, next) = (bytes.get(..start)?, bytes.get(start..end)?, bytes.get(end..)?);
        Some(Entry { kind, target, flags, header, payload, next })
    }
}
