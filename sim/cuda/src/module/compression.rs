#![forbid(unsafe_code)]
//! The compressed PTX of fat binaries: blocks of LZ4, and frames of Zstandard, which nvcc 13 makes by default.

use std::io::Read as _;

/// The flags of an entry.
const LZ4: u64 = 0x2000;
const ZSTANDARD: u64 = 0x8000;

/// The most bytes of PTX, so that a damaged length takes no memory. The largest known modules have some 10 MiB.
const MOST: usize = 512 << 20;

/// Whether an entry with these flags is compressed.
pub(super) fn is_compressed(flags: u64) -> bool {
    flags & (LZ4 | ZSTANDARD) != 0
}

/// The `len` bytes that were compressed; `None` if the data is damaged.
pub(super) fn decompressed(flags: u64, data: &[u8], len: usize) -> Option<Vec<u8>> {
    if len > MOST {
        return None;
    }
    let bytes = if flags & LZ4 != 0 { lz4_flex::block::decompress(data, len).ok()? } else { zstandard(data, len)? };
    (bytes.len() == len).then_some(bytes)
}

fn zstandard(data: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let decoder = ruzstd::decoding::StreamingDecoder::new(data).ok()?;
    // One more than expected, to notice a frame that is longer.
    decoder.take(len as u64 + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
