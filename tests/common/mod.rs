//! What the tests of vkgdr share: opening, expected errors, ranges at the edges, ledgers, captured log lines, forks, sockets.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod blocking;
pub(crate) mod fork;
pub(crate) mod ledger;
pub(crate) mod logs;
pub(crate) mod ranges;
pub(crate) mod socket;

use std::fmt::Debug;

use support::cuda::{self, PrimaryContext};
use vkgdr::cudarc::driver::sys::CUdeviceptr;
use vkgdr::{Error, MemoryKind, OpenFlags, Region, Vkgdr};

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The kinds of memory that the CPU sees.
pub(crate) const HOST_VIEWS: [MemoryKind; 2] = [MemoryKind::Mapped, MemoryKind::Host];

/// Device 0, with its primary context current on this thread. Take it apart as `(_context, gpu)`: the context
/// must go last.
#[track_caller]
pub(crate) fn open(flags: OpenFlags) -> Result<(PrimaryContext, Vkgdr)> {
    let context = PrimaryContext::retain_and_push(0);
    Ok((context, Vkgdr::open(0, flags)?))
}

/// As [`open`], with coherent mapped memory; none, which it says, where the GPU has no such memory.
#[track_caller]
pub(crate) fn open_coherent() -> Result<Option<(PrimaryContext, Vkgdr)>> {
    let context = PrimaryContext::retain_and_push(0);
    match Vkgdr::open(0, OpenFlags::REQUIRE_COHERENT) {
        Ok(gpu) => Ok(Some((context, gpu))),
        Err(error @ Error::NoSuitableMemoryType { .. }) => {
            eprintln!("left out: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Those of `kinds` that the GPU has. The others are named as left out.
pub(crate) fn supported(gpu: &Vkgdr, kinds: &[MemoryKind]) -> Vec<MemoryKind> {
    let (has, lacks): (Vec<_>, Vec<_>) = kinds.iter().partition(|kind| gpu.supports(**kind));
    for kind in lacks {
        eprintln!("left out: {} has no {kind} memory", gpu.name());
    }
    has
}

/// Ends a test that cannot run here.
pub(crate) fn skip(reason: &str) -> Result {
    eprintln!("skipped: {reason}");
    Ok(())
}

/// The error of what must fail.
#[track_caller]
pub(crate) fn refused<T: Debug>(result: vkgdr::Result<T>) -> vkgdr::Error {
    match result {
        Ok(value) => panic!("this should have been refused, but gave {value:?}"),
        Err(error) => error,
    }
}

/// Fails unless the error's text is one line and contains all of `parts`.
#[track_caller]
pub(crate) fn assert_says(error: &vkgdr::Error, parts: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n'), "more than one line: {text:?}");
    assert!(!text.ends_with('.'), "ends with a full stop: {text:?}");
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

/// Bytes that differ from their neighbours, and from those of another seed.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    Random::new(seed).bytes(len)
}

/// What the device sees.
#[track_caller]
pub(crate) fn device_read(pointer: CUdeviceptr, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    cuda::memcpy_dtoh(&mut bytes, pointer);
    bytes
}

/// What the CPU sees of a range, after an invalidate.
pub(crate) fn host_read(region: &Region, offset: usize, len: usize) -> Result<Vec<u8>> {
    region.invalidate(offset..offset + len)?;
    let mut bytes = vec![0; len];
    region.read(offset, &mut bytes)?;
    Ok(bytes)
}

/// Writes as the CPU, and flushes.
pub(crate) fn host_write(region: &Region, offset: usize, bytes: &[u8]) -> Result {
    region.write(offset, bytes)?;
    Ok(region.flush(offset..offset + bytes.len())?)
}

/// Numbers that look random and are the same in every run (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number less than `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or(0)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(len);
        bytes
    }

    /// An offset and a length, not zero, within `size` bytes.
    pub(crate) fn range_within(&mut self, size: usize) -> (usize, usize) {
        let offset = self.below(size);
        (offset, 1 + self.below(size - offset))
    }
}
