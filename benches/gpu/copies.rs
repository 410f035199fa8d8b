//! Copies between private memory and GPU memory, from one byte to 64 MiB, in both directions. Private memory is
//! pageable or pinned: ours is compared with the best peer, and a copy of pageable memory never with one of pinned
//! memory.
//!
//! Only reads and `cuMemcpyAsync` + wait end when the bytes have arrived. A write by the CPU ends when it has left the CPU:
//! `memcpy` into the mapping ends with a store fence, which `Memory::write` includes. A small `cuMemcpy` from pageable memory may
//! return once the driver has staged the bytes (CUDA driver API, "API synchronization behavior").
//!
//! The copy engine is prepared and its thresholds are measured first, as a program does for long copies.
#![expect(unsafe_code, reason = "calls the CUDA driver and libc for comparison")]

use std::hint::black_box;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use vkgdr::cudarc::driver::sys::CUdeviceptr;
use vkgdr::cudarc::driver::{CudaContext, CudaStream, result};
use vkgdr::{Memory, MemoryKind};

use crate::contest::{self, Times};
use crate::memory::{Buffer, Pinned};
use crate::report::{Goal, Report, time};
use crate::{Bench, Result, must, size};

const SIZES: [usize; 14] =
    [1, 4, 16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Write,
    Read,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Ours,
    Peer,
    /// A peer with a synchronous call (`cuMemcpy`), also compared separately for small copies.
    SynchronousPeer,
    /// Measured for information, not comparable: system memory.
    Beside,
}

/// The function that copies.
enum How {
    Ours(Memory),
    /// libc's memcpy from or to this host address; the memory is kept elsewhere.
    Plain(*mut u8),
    Synchronous,
    Asynchronous(Arc<CudaStream>),
}

struct Way {
    name: &'static str,
    role: Role,
    how: How,
    /// The private side, and whether it is pinned.
    private: *mut u8,
    pinned: bool,
    /// The device side.
    device: CUdeviceptr,
}

pub(crate) fn measure(bench: &mut Bench, limit: Duration) -> Result {
    bench.gpu.prepare_copies()?;
    let most = SIZES.into_iter().max().unwrap_or(0);
    let pattern: Vec<u8> = (0..most).map(|at| (at * 31 + at / 256 + 7).to_le_bytes()[0]).collect();
    let mut pageable = pattern.clone();
    let pinned = Pinned::new(most)?;
    // SAFETY: the memory has that many bytes and no other code uses it; the pattern is elsewhere.
    unsafe { pinned.host_ptr().copy_from_nonoverlapping(pattern.as_ptr(), most) };
    let buffer = Buffer::new(most)?;
    let stream = bench.context.new_stream()?;
    let mapped = Memory::allocate(&bench.gpu, most, MemoryKind::Mapped)?;
    let host = Memory::allocate(&bench.gpu, most, MemoryKind::Host)?;
    let mapping = mapped.host_ptr().ok_or("mapped memory has no host view")?.as_ptr();
    let (to_mapped, to_host, to_buffer) = (mapped.device_ptr(), host.device_ptr(), buffer.device_ptr());
    let (private, fixed) = (pageable.as_mut_ptr(), pinned.host_ptr());
    let way = |name, role, how, private, device| Way { name, role, how, private, pinned: private == fixed, device };
    let ways = [
        way("Memory, mapped", Role::Ours, How::Ours(mapped.slice(..)?), private, to_mapped),
        way("Memory, mapped, pinned", Role::Ours, How::Ours(mapped.slice(..)?), fixed, to_mapped),
        way("Memory, host", Role::Beside, How::Ours(host.slice(..)?), private, to_host),
        way("libc memcpy over the mapping", Role::Peer, How::Plain(mapping), private, to_mapped),
        way("cuMemcpy, pageable", Role::SynchronousPeer, How::Synchronous, private, to_buffer),
        way("cuMemcpy, pinned", Role::SynchronousPeer, How::Synchronous, fixed, to_buffer),
        way("cuMemcpyAsync + wait, pageable", Role::Peer, How::Asynchronous(stream.clone()), private, to_buffer),
        way("cuMemcpyAsync + wait, pinned", Role::Peer, How::Asynchronous(stream), fixed, to_buffer),
    ];
    let each = limit / u32::try_from(2 * SIZES.len())?;
    for direction in [Direction::Write, Direction::Read] {
        for len in SIZES {
            for way in &ways {
                way.check(&bench.context, direction, &pattern[..len])?;
            }
            let times = contest::measure(ways.len(), each, |way| ways[way].copy(direction, black_box(len)));
            note(&mut bench.report, &ways, direction, len, &times);
            bench.report.save("gpu", bench.gpu.name());
        }
    }
    Ok(())
}

fn note(report: &mut Report, ways: &[Way], direction: Direction, len: usize, times: &Times) {
    let (verb, what) = match direction {
        Direction::Write => ("write", "write to GPU memory"),
        Direction::Read => ("read", "read from GPU memory"),
    };
    for (index, way) in ways.iter().enumerate() {
        report.sample(verb, way.name, len, times.of(index));
    }
    let with = |role| (0..ways.len()).filter(move |way| ways[*way].role == role);
    for ours in with(Role::Ours) {
        // Ours with pageable memory is not compared with peers that use pinned memory.
        let fair = |way: &usize| ways[ours].pinned || !ways[*way].pinned;
        let peers = with(Role::Peer).chain(with(Role::SynchronousPeer)).filter(fair);
        let Some(best) = times.best(peers) else { continue };
        let kind = if ways[ours].pinned { "pinned" } else { "pageable" };
        let peer = format!("the best of all: {}", ways[best].name);
        let (pairs, len) = (times.pairs(ours, best), size(len));
        println!("    {verb}, {kind} {len:>8}: {:>10}, {peer} ratio {:.3}", time(median(&pairs.ours)), pairs.ratio());
        report.add(format!("{what}, {kind}, {len}"), peer, pairs, Goal::Ratio(1.05));
    }
    let Some(ours) = with(Role::Ours).next() else { return };
    let goal = match direction {
        Direction::Write if len <= 4096 => Goal::Ratio(0.1),
        Direction::Read if len <= 64 => Goal::Ratio(0.2),
        Direction::Write | Direction::Read => return,
    };
    if let Some(peer) = times.best(with(Role::SynchronousPeer)) {
        report.add(format!("small {what}, {}", size(len)), ways[peer].name, times.pairs(ours, peer), goal);
    }
}

fn median(values: &[f64]) -> f64 {
    crate::pairs::median(values.iter().copied())
}

impl Way {
    #[inline]
    fn copy(&self, direction: Direction, len: usize) {
        match direction {
            Direction::Write => self.write(len),
            Direction::Read => self.read(len),
        }
    }

    /// The first `len` private bytes, which must not be written meanwhile.
    fn private(&self, len: usize) -> &[u8] {
        // SAFETY: the private memory is longer than that, initialised, and outlives the ways.
        unsafe { slice::from_raw_parts(self.private, len) }
    }

    /// The same, mutable.
    #[expect(clippy::mut_from_ref, reason = "the memory is owned elsewhere; ways are used one at a time")]
    fn private_mut(&self, len: usize) -> &mut [u8] {
        // SAFETY: as above, and ways are used one at a time.
        unsafe { slice::from_raw_parts_mut(self.private, len) }
    }

    fn write(&self, len: usize) {
        match &self.how {
            How::Ours(memory) => must(memory.write(0, black_box(self.private(len)))),
            How::Plain(mapping) => {
                // SAFETY: both sides have `len` bytes, and no other code uses them.
                unsafe { libc::memcpy(mapping.cast(), black_box(self.private).cast(), len) };
                store_fence();
            }
            // SAFETY: the device's memory has `len` bytes, and its context is current.
            How::Synchronous => must(unsafe { result::memcpy_htod_sync(self.device, self.private(len)) }),
            How::Asynchronous(stream) => {
                // SAFETY: as above; the bytes are not written before the copy has been waited for.
                must(unsafe { result::memcpy_htod_async(self.device, self.private(len), stream.cu_stream()) });
                must(stream.synchronize());
            }
        }
    }

    fn read(&self, len: usize) {
        match &self.how {
            How::Ours(memory) => must(memory.read(0, black_box(self.private_mut(len)))),
            How::Plain(mapping) => {
                // SAFETY: both sides have `len` bytes, and no other code uses them.
                black_box(unsafe { libc::memcpy(self.private.cast(), black_box(mapping.cast()), len) });
            }
            // SAFETY: the device's memory has `len` bytes, and its context is current.
            How::Synchronous => must(unsafe { result::memcpy_dtoh_sync(self.private_mut(len), self.device) }),
            How::Asynchronous(stream) => {
                let to = self.private_mut(len);
                // SAFETY: as above; nothing accesses the bytes before the copy has been waited for.
                must(unsafe { result::memcpy_dtoh_async(to, self.device, stream.cu_stream()) });
                must(stream.synchronize());
            }
        }
    }

    /// Checks that the way copies correctly. Afterwards both sides contain the pattern.
    fn check(&self, context: &CudaContext, direction: Direction, pattern: &[u8]) -> Result {
        let len = pattern.len();
        let mut found = vec![0; len];
        match direction {
            Direction::Write => {
                // SAFETY: the device's memory has `len` bytes, and its context is current.
                unsafe { result::memcpy_htod_sync(self.device, &found) }?;
                // A small copy from pageable memory may return before it has finished.
                context.synchronize()?;
                self.write(len);
                context.synchronize()?;
                // SAFETY: as above.
                unsafe { result::memcpy_dtoh_sync(&mut found, self.device) }?;
            }
            Direction::Read => {
                // SAFETY: as above.
                unsafe { result::memcpy_htod_sync(self.device, pattern) }?;
                context.synchronize()?;
                self.private_mut(len).fill(0);
                self.read(len);
                found.copy_from_slice(self.private(len));
                self.private_mut(len).copy_from_slice(pattern);
            }
        }
        if found == pattern { Ok(()) } else { Err(format!("{}, {}: wrong bytes", self.name, size(len)).into()) }
    }
}

/// Orders the CPU's stores, including those in write-combining buffers.
fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}
