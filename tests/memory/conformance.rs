//! One suite over all ways to have memory: whichever it is, both sides see the same bytes, ranges are checked, and nothing stays.
#![expect(unsafe_code, reason = "uses pointers of raw memory, and imports descriptors")]

use std::fmt::Debug;
use std::os::unix::net::UnixStream;

use bytemuck::Pod;
use support::cuda::{self, no_context};
use support::ledger::{Calls, Live, all_calls};
use support::{
    HOST_VIEWS, Random, Result, assert_says, codes, device_read, driver, free, host_read, host_write, pattern, ranges,
    refused, supported,
};
use vkgdr::{
    CopyPolicy, Error, MapMode, Memory, MemoryKind, MemoryTypeInfo, OpenFlags, Pool, PoolOptions, RawMemory, Vkgdr, ipc,
};

use crate::{FORCED, NONE, SIZE};

const MODES: [MapMode; 4] = [MapMode::Read, MapMode::Write, MapMode::ReadWrite, MapMode::Discard];

/// Counts the flushes and invalidates that call the driver.
struct Syncs([Calls; 2]);

impl Syncs {
    fn count() -> Self {
        Self(["vkFlushMappedMemoryRanges", "vkInvalidateMappedMemoryRanges"].map(Calls::of))
    }

    #[track_caller]
    fn assert(&self, flushes: u64, invalidates: u64, what: &str) {
        self.0[0].assert(flushes, what);
        self.0[1].assert(invalidates, what);
    }
}

/// Memory, and other memory of the same bytes.
enum Subject {
    Memory { memory: Memory, twins: Vec<Memory> },
    Raw(Freed),
}

/// Raw memory that is freed by its drop, and whether it is Vulkan's.
struct Freed(RawMemory, bool);

impl Drop for Freed {
    fn drop(&mut self) {
        free(&mut self.0).unwrap_or_else(|error| panic!("{error}"));
    }
}

use Subject::Raw;

/// A way to have memory of a length and kind. The second says whether it needs memory that is exported.
type Way = (&'static str, bool, fn(&Vkgdr, usize, MemoryKind) -> Result<Subject>);

/// All ways. An offset that is odd is no multiple of an atom either.
const WAYS: [Way; 8] = [
    ("Memory::allocate", false, |gpu, len, kind| alone(Memory::allocate(gpu, len, kind)?)),
    ("a clone", false, |gpu, len, kind| {
        let memory = Memory::allocate(gpu, len, kind)?;
        Ok(Subject::Memory { memory: memory.clone(), twins: vec![memory] })
    }),
    ("a slice", false, |gpu, len, kind| {
        let whole = Memory::allocate(gpu, len + 2000, kind)?;
        alone(whole.slice(999..)?.slice(34..34 + len)?)
    }),
    ("Memory::import_fd", true, |gpu, len, kind| {
        let twins = vec![Memory::allocate(gpu, len, kind)?];
        // SAFETY: exported on the same GPU from memory of this kind and length.
        let memory = unsafe { Memory::import_fd(gpu, twins[0].export_fd()?, len, kind) }?;
        Ok(Subject::Memory { memory, twins })
    }),
    ("ipc::recv", true, |gpu, len, kind| {
        let (ours, theirs) = UnixStream::pair()?;
        let twins = vec![Memory::allocate(gpu, len, kind)?];
        ipc::send(&ours, &twins[0])?;
        Ok(Subject::Memory { memory: ipc::recv(&theirs, gpu)?, twins })
    }),
    ("memory_of", false, |gpu, len, kind| {
        let memory = Memory::allocate(gpu, len, kind)?;
        let (found, _) = support::memory_of(memory.device_ptr() + len as u64 - 1).ok_or("not found")?;
        Ok(Subject::Memory { memory: found, twins: vec![memory] })
    }),
    ("a pool's chunk", false, |gpu, len, kind| alone(Pool::new(gpu, PoolOptions::new(kind))?.allocate(len)?)),
    ("RawMemory", false, |gpu, len, kind| {
        let raw = RawMemory::allocate(gpu, len, kind)?;
        Ok(Raw(Freed(raw, support::is_imported(gpu, kind))))
    }),
];

fn alone(memory: Memory) -> Result<Subject> {
    Ok(Subject::Memory { memory, twins: Vec::new() })
}

impl Subject {
    fn memory(&self) -> Option<&Memory> {
        if let Self::Memory { memory, .. } = self { Some(memory) } else { None }
    }

    fn twins(&self) -> &[Memory] {
        if let Self::Memory { twins, .. } = self { twins } else { &[] }
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result {
        match self {
            Self::Memory { memory, .. } => memory.write(offset, bytes)?,
            Raw(Freed(raw, _)) => {
                assert!(offset + bytes.len() <= raw.len());
                let base = raw.host_ptr().ok_or("no host view")?.as_ptr().wrapping_add(offset);
                for (index, byte) in bytes.iter().enumerate() {
                    // SAFETY: within the memory, as checked above, and mapped until it is freed.
                    unsafe { base.wrapping_add(index).write_volatile(*byte) };
                }
            }
        }
        Ok(())
    }

    fn read(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        match self {
            Self::Memory { memory, .. } => {
                let mut bytes = vec![0; len];
                memory.read(offset, &mut bytes)?;
                Ok(bytes)
            }
            Raw(Freed(raw, _)) => {
                assert!(offset + len <= raw.len());
                let base = raw.host_ptr().ok_or("no host view")?.as_ptr().wrapping_add(offset);
                // SAFETY: within the memory, as checked above, and mapped until it is freed.
                Ok((0..len).map(|index| unsafe { base.wrapping_add(index).read_volatile() }).collect())
            }
        }
    }

    fn flush(&self, offset: usize, len: usize) -> vkgdr::Result<()> {
        match self {
            Self::Memory { memory, .. } => memory.flush(offset..offset.saturating_add(len)),
            Raw(Freed(raw, _)) => raw.flush(offset, len),
        }
    }

    fn invalidate(&self, offset: usize, len: usize) -> vkgdr::Result<()> {
        match self {
            Self::Memory { memory, .. } => memory.invalidate(offset..offset.saturating_add(len)),
            Raw(Freed(raw, _)) => raw.invalidate(offset, len),
        }
    }

    fn device_ptr(&self) -> u64 {
        match self {
            Self::Memory { memory, .. } => memory.device_ptr(),
            Raw(Freed(raw, _)) => raw.device_ptr(),
        }
    }

    /// Whether Vulkan flushes it.
    fn is_vulkans(&self) -> bool {
        match self {
            Self::Memory { memory, .. } => memory.memory_type().index != MemoryTypeInfo::OUTSIDE_VULKAN,
            Raw(Freed(_, is_vulkans)) => *is_vulkans,
        }
    }

    /// 0 without a host view.
    fn host_address(&self) -> u64 {
        let pointer = match self {
            Self::Memory { memory, .. } => memory.host_ptr(),
            Raw(Freed(raw, _)) => raw.host_ptr(),
        };
        pointer.map_or(0, |pointer| pointer.addr().get() as u64)
    }

    fn shape(&self) -> (usize, MemoryKind, bool, bool) {
        match self {
            Self::Memory { memory: m, .. } => (m.len(), m.kind(), m.is_empty(), m.is_coherent()),
            Raw(Freed(raw, _)) => (raw.len(), raw.kind(), raw.is_empty(), raw.is_coherent()),
        }
    }

    fn atom(&self) -> usize {
        match self {
            Self::Memory { memory, .. } => memory.non_coherent_atom_size(),
            Raw(Freed(raw, _)) => raw.non_coherent_atom_size(),
        }
    }

    /// Fails unless the device, the host and all twins see these bytes.
    #[track_caller]
    fn assert_holds(&self, expected: &[u8], what: &str) -> Result {
        let len = expected.len();
        assert!(device_read(self.device_ptr(), len) == expected, "{what}: the device's view");
        self.invalidate(0, len)?;
        assert!(self.read(0, len)? == expected, "{what}: the host's view");
        for twin in self.twins() {
            assert!(host_read(twin, 0, len)? == expected, "{what}: the host's view of the twin");
            assert!(device_read(twin.device_ptr(), len) == expected, "{what}: the device's view of the twin");
        }
        Ok(())
    }
}

/// The ways to have memory of a kind.
fn ways(gpu: &Vkgdr, kind: MemoryKind) -> impl Iterator<Item = Way> {
    let is_exported = kind == MemoryKind::Host || support::is_imported(gpu, kind);
    WAYS.into_iter().filter(move |&(_, exports, _)| is_exported || !exports)
}

/// Runs a check on memory of a length, of each way and kind, with text that names them. Nothing may stay.
fn each(flags: OpenFlags, kinds: &[MemoryKind], len: usize, check: impl Fn(&Subject, &str) -> Result) -> Result {
    let (_context, gpu) = support::open(flags)?;
    for kind in supported(&gpu, kinds) {
        for (name, _, make) in ways(&gpu, kind) {
            let before = (Live::now(), gpu.live_allocations());
            let what = format!("{name}, {kind}, {len} bytes");
            check(&make(&gpu, len, kind).map_err(|error| format!("{what}: {error}"))?, &what)?;
            assert_eq!((Live::now(), gpu.live_allocations()), before, "{what}");
        }
    }
    Ok(())
}

#[test]
fn every_length_has_addresses_and_its_last_byte() -> Result {
    for len in [1, 4095, 4096, 4097, (64 << 20) + 1] {
        each(NONE, &MemoryKind::ALL, len, |subject, what| {
            let (length, kind, is_empty, _) = subject.shape();
            assert_eq!((length, is_empty), (len, false), "{what}");
            assert_ne!(subject.device_ptr(), 0, "{what}");
            assert_eq!(subject.host_address() != 0, kind.has_host_view(), "{what}");
            let last = subject.device_ptr() + len as u64 - 1;
            cuda::memset_d8(last, 0x5a, 1);
            cuda::synchronize();
            assert_eq!(device_read(last, 1), [0x5a], "{what}");
            if kind.has_host_view() {
                subject.invalidate(len - 1, 1)?;
                assert_eq!(subject.read(len - 1, 1)?, [0x5a], "{what}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn an_allocation_is_one_of_each_drivers_until_it_is_freed() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in support::imported(&gpu, &MemoryKind::ALL) {
        let before = Live::now();
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        assert_eq!(Live::now(), before.plus_one(kind));
        let raw = Freed(RawMemory::allocate(&gpu, SIZE, kind)?, true);
        assert_eq!(Live::now(), before.plus_one(kind).plus_one(kind));
        let address = memory.host_ptr().map(|pointer| pointer.addr().get());
        memory.free()?;
        drop(raw);
        assert_eq!(Live::now(), before);
        // An access faults now instead of reading other memory's bytes. A real driver may unmap later.
        assert!(driver::is_real() || !address.is_some_and(is_mapped), "{address:x?} is still mapped");
    }
    Ok(())
}

/// Whether the process has a mapping with an address.
fn is_mapped(address: usize) -> bool {
    let contains = |line: &str| -> Option<bool> {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).ok());
        Some((start?..end?).contains(&address))
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| contains(line) == Some(true))
}

#[test]
fn both_sides_see_the_same_bytes_at_different_addresses() -> Result {
    for flags in [NONE, FORCED] {
        each(flags, &HOST_VIEWS, (1 << 16) + 13, |subject, what| {
            let len = (1 << 16) + 13;
            assert!(
                !subject.is_vulkans() || subject.host_address() != subject.device_ptr(),
                "{what}: nothing is shown"
            );
            let mut model = pattern(len, 1);
            subject.write(0, &model)?;
            subject.flush(0, len)?;
            subject.assert_holds(&model, what)?;
            let mut random = Random::new(2);
            let edges = [(0, 1), (len - 1, 1), (0, len)];
            let places = edges.into_iter().chain((0..30).map(|_| random.range_within(len))).collect::<Vec<_>>();
            for (turn, (offset, n)) in (1_u64..).zip(places) {
                let bytes = if turn % 4 == 1 { vec![turn.to_le_bytes()[0]; n] } else { pattern(n, turn) };
                let device = subject.device_ptr() + offset as u64;
                match turn % 4 {
                    0 => cuda::memcpy_htod(device, &bytes),
                    1 => cuda::memset_d8(device, bytes[0], n),
                    2 if !subject.twins().is_empty() => host_write(&subject.twins()[0], offset, &bytes)?,
                    _ => {
                        subject.write(offset, &bytes)?;
                        subject.flush(offset, n)?;
                    }
                }
                cuda::synchronize();
                model[offset..offset + n].copy_from_slice(&bytes);
                subject.assert_holds(&model, &format!("{what}, {n} at {offset}"))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn no_two_share_bytes() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let all = ways(&gpu, kind)
            .flat_map(|way| [way, way])
            .map(|way| way.2(&gpu, 5000, kind))
            .collect::<Result<Vec<_>>>()?;
        for (seed, subject) in (0..).zip(&all) {
            subject.write(0, &pattern(5000, seed))?;
            subject.flush(0, 5000)?;
        }
        for (seed, subject) in (0..).zip(&all) {
            subject.assert_holds(&pattern(5000, seed), &format!("{kind}, {seed}"))?;
        }
    }
    Ok(())
}

#[test]
fn device_memory_has_no_host_view_and_the_error_names_it() -> Result {
    each(FORCED, &[MemoryKind::Device], SIZE, |subject, what| {
        assert_eq!(subject.host_address(), 0, "{what}");
        let syncs = Syncs::count();
        subject.flush(0, SIZE)?;
        subject.invalidate(1, SIZE - 1)?;
        syncs.assert(0, 0, what);
        cuda::memcpy_htod(subject.device_ptr(), &pattern(SIZE, 2));
        cuda::synchronize();
        for pointer in [subject.device_ptr()].into_iter().chain(subject.twins().iter().map(Memory::device_ptr)) {
            assert!(device_read(pointer, SIZE) == pattern(SIZE, 2), "{what}");
        }
        let Some(memory) = subject.memory() else { return Ok(()) };
        let mut same = memory.clone();
        let mut errors = vec![
            refused(memory.write(0, &[1_u8])),
            refused(memory.read(0, &mut [0_u8])),
            refused(memory.fill(0..4, 1_u8)),
            // SAFETY: the call fails, so that no slice is created.
            refused(unsafe { memory.as_slice::<u8>() }),
            // SAFETY: as above.
            refused(unsafe { same.as_mut_slice::<u8>() }),
        ];
        errors.extend(MODES.map(|mode| refused(memory.map(mode, ..))));
        for error in errors {
            assert!(matches!(error, Error::NoHostView { kind: MemoryKind::Device }), "{error}");
            assert_says(&error, &["device memory has no host view", "device pointer"]);
        }
        // The range is checked before the host view.
        assert!(matches!(refused(memory.write(SIZE, &[1_u8])), Error::OutOfRange { .. }));
        assert!(matches!(refused(memory.map(MapMode::Read, ..=SIZE)), Error::OutOfRange { .. }));
        Ok(())
    })
}

/// Writes, reads and fills elements of one type at every misalignment.
fn check_typed<T: Pod + PartialEq + Debug>(memory: &Memory, elements: &[T], fill: T) -> Result {
    for offset in 0..=size_of::<T>() {
        memory.write(offset, elements)?;
        memory.flush(..)?;
        let bytes = bytemuck::cast_slice::<T, u8>(elements);
        assert_eq!(device_read(memory.device_ptr() + offset as u64, bytes.len()), bytes, "at {offset}");
        let mut seen = vec![T::zeroed(); elements.len()];
        memory.read(offset, &mut seen)?;
        assert_eq!(seen, elements, "at {offset}");
        memory.fill(offset..offset + size_of_val(elements), fill)?;
        memory.flush(..)?;
        memory.read(offset, &mut seen)?;
        assert_eq!(seen, vec![fill; elements.len()], "at {offset}");
    }
    Ok(())
}

#[test]
fn elements_of_any_type_are_written_read_and_filled_at_unaligned_offsets() -> Result {
    each(NONE, &HOST_VIEWS, SIZE, |subject, _| {
        let Some(memory) = subject.memory() else { return Ok(()) };
        check_typed(memory, &[1.5_f32, -0.0, f32::MAX, f32::MIN_POSITIVE, 7.25], 2.5)?;
        check_typed(memory, &[1_u64, u64::MAX, 0x0123_4567_89ab_cdef], 0xfedc_ba98_7654_3210)?;
        check_typed(memory, &[1_u8, 2, 3, 255, 0, 9, 17], 0xa5)?;
        check_typed(memory, &[[1_u16, 2, 3], [4, 5, 6]], [7, 8, 9])
    })
}

#[test]
fn the_copy_engine_copies_elements_and_refuses_what_is_outside() -> Result {
    each(NONE, &MemoryKind::ALL, SIZE, |subject, what| {
        let Some(memory) = subject.memory() else { return Ok(()) };
        let mut model = pattern(SIZE, 5);
        memory.write_with(CopyPolicy::Dma, 0, &model)?;
        memory.write_with(CopyPolicy::Dma, 13, &[1.5_f32, 2.5])?;
        model[13..21].copy_from_slice(bytemuck::cast_slice(&[1.5_f32, 2.5]));
        for memory in [memory].into_iter().chain(subject.twins()) {
            let (mut seen, mut elements) = (vec![0; SIZE], [0_f32; 2]);
            // The engine flushes before it reads: another view of the bytes must not be older.
            memory.invalidate(..)?;
            memory.read_with(CopyPolicy::Dma, 0, &mut seen)?;
            memory.read_with(CopyPolicy::Dma, 13, &mut elements)?;
            assert!(seen == model && elements == [1.5, 2.5], "{what}");
            assert!(device_read(memory.device_ptr(), SIZE) == model, "{what}");
        }
        let calls = all_calls();
        for policy in [CopyPolicy::Auto, CopyPolicy::Cpu, CopyPolicy::Dma] {
            for (offset, len) in [(SIZE + 1, 0), (SIZE, 1), (0, SIZE + 1), (usize::MAX, 1), (usize::MAX, 0)] {
                let mut bytes = vec![0_u8; len];
                let write = refused(memory.write_with(policy, offset, &bytes));
                for error in [write, refused(memory.read_with(policy, offset, &mut bytes))] {
                    assert!(matches!(error, Error::OutOfRange { size: SIZE, .. }), "{what}, {policy:?}: {error}");
                }
            }
        }
        memory.write_with(CopyPolicy::Dma, SIZE, &[0_u8; 0])?;
        memory.read_with(CopyPolicy::Dma, 0, &mut [0_u8; 0])?;
        assert_eq!(all_calls(), calls, "{what}");
        Ok(())
    })
}

#[test]
fn every_range_around_the_atoms_is_flushed_and_invalidated_by_one_call() -> Result {
    each(FORCED, &HOST_VIEWS, SIZE, |subject, what| {
        let mut model = pattern(SIZE, 0);
        subject.write(0, &model)?;
        subject.flush(0, SIZE)?;
        for (turn, (offset, len)) in (1..).zip(ranges::around_atoms(SIZE, subject.atom())) {
            let what = format!("{what}: {len} bytes at {offset}");
            let bytes = pattern(len, turn);
            let calls = u64::from(len > 0 && subject.is_vulkans());
            subject.write(offset, &bytes)?;
            model[offset..offset + len].copy_from_slice(&bytes);
            let syncs = Syncs::count();
            subject.flush(offset, len)?;
            syncs.assert(calls, 0, &what);
            assert!(device_read(subject.device_ptr(), SIZE) == model, "{what}");

            model = pattern(SIZE, turn + 1000);
            cuda::memcpy_htod(subject.device_ptr(), &model);
            cuda::synchronize();
            subject.invalidate(offset, len)?;
            syncs.assert(calls, calls, &what);
            assert!(subject.read(offset, len)? == model[offset..offset + len], "{what}");
            subject.invalidate(0, SIZE)?;
        }
        Ok(())
    })
}

#[test]
fn what_is_outside_is_refused_by_name_and_nothing_is_touched() -> Result {
    const MAX: usize = usize::MAX;
    for flags in [NONE, FORCED] {
        each(flags, &HOST_VIEWS, SIZE, |subject, what| {
            let model = pattern(SIZE, 2);
            subject.write(0, &model)?;
            subject.flush(0, SIZE)?;
            let syncs = Syncs::count();
            if let Raw(Freed(raw, _)) = subject {
                for (offset, len) in ranges::offsets_outside(SIZE) {
                    for error in [refused(raw.flush(offset, len)), refused(raw.invalidate(offset, len))] {
                        assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
                        let place = format!(" at offset {offset} ");
                        assert_says(&error, &[&format!("{len} byte"), &place, "has 4097 bytes"]);
                    }
                }
            }
            let Some(memory) = subject.memory() else { return Ok(()) };
            for range in ranges::outside(SIZE) {
                let mut errors = vec![
                    refused(memory.flush(range)),
                    refused(memory.invalidate(range)),
                    refused(memory.fill(range, 0_u8)),
                    refused(memory.slice(range)),
                ];
                errors.extend(MODES.map(|mode| refused(memory.map(mode, range))));
                for error in errors {
                    ranges::assert_refused(&error, range, SIZE);
                }
            }
            for (offset, len) in
                [(0, 4098), (1, 4097), (4097, 1), (4096, 2), (4098, 0), (MAX, 0), (MAX, 1), (MAX - 7, 8)]
            {
                let mut buffer = vec![0xdd_u8; len];
                for error in [refused(memory.write(offset, &buffer)), refused(memory.read(offset, &mut buffer))] {
                    let (unit, is) = if len == 1 { ("byte", "is") } else { ("bytes", "are") };
                    assert_says(&error, &[&format!("{len} {unit} at offset {offset} {is} out of range")]);
                }
                assert_eq!(buffer, vec![0xdd; len]);
            }
            // Elements are counted in bytes.
            let error = refused(memory.write(4090, &[0_u64]));
            assert!(matches!(error, Error::OutOfRange { offset: 4090, len: 8, size: SIZE }), "{error}");
            assert!(matches!(refused(memory.read(1, &mut [0_u32; 1025])), Error::OutOfRange { len: 4100, .. }));
            syncs.assert(0, 0, what);
            subject.assert_holds(&model, what)
        })?;
    }
    Ok(())
}

#[test]
fn empty_ranges_do_nothing() -> Result {
    each(FORCED, &HOST_VIEWS, SIZE, |subject, what| {
        let model = pattern(SIZE, 1);
        subject.write(0, &model)?;
        subject.flush(0, SIZE)?;
        let syncs = Syncs::count();
        for offset in [0, 1, SIZE] {
            subject.flush(offset, 0)?;
            subject.invalidate(offset, 0)?;
        }
        if let Some(memory) = subject.memory() {
            for range in ranges::empty(SIZE) {
                memory.flush(range)?;
                memory.invalidate(range)?;
                memory.fill(range, 0xff_u8)?;
                let part = memory.slice(range)?;
                assert_eq!((part.len(), part.is_empty(), part.slice(..)?.len()), (0, true, 0));
                part.write(0, &[0_u8; 0])?;
                assert!(matches!(refused(part.write(0, &[1_u8])), Error::OutOfRange { .. }));
                for mode in MODES {
                    assert!(memory.map(mode, range)?.is_empty());
                }
            }
            for offset in [0, 1, SIZE] {
                memory.write(offset, &[0_u64; 0])?;
                memory.read(offset, &mut [0_u64; 0])?;
            }
        }
        syncs.assert(0, 0, what);
        subject.assert_holds(&model, what)
    })
}

#[test]
fn each_map_mode_shows_and_publishes_what_it_says() -> Result {
    each(FORCED, &HOST_VIEWS, SIZE, |subject, what| {
        let Some(memory) = subject.memory() else { return Ok(()) };
        let calls = |count| if subject.is_vulkans() { count } else { 0 };
        let ranges = [(1001, 2001), (0, 4096), (3, 4096), (0, 4001), (5, 6), (4096, SIZE), (0, SIZE)];
        let mut model = pattern(SIZE, 3);
        for (seed, (from, to)) in (4..).zip(ranges) {
            for (mode, finish) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
                let what = format!("{what}, {mode:?} {from}..{to}");
                let flushes = u64::from(mode != MapMode::Read);
                cuda::memcpy_htod(memory.device_ptr(), &model);
                cuda::synchronize();
                let syncs = Syncs::count();
                let (mut guard, len) = (memory.map(mode, from..to)?, to - from);
                syncs.assert(0, calls(1), &what);
                assert_eq!((guard.len(), guard.is_empty()), (len, false), "{what}");
                let address = guard.host_ptr().map(|pointer| pointer.addr().get() as u64);
                assert_eq!(address, Some(subject.host_address() + from as u64), "{what}");
                let mut seen = vec![0; len];
                if mode != MapMode::Discard {
                    guard.read(0, &mut seen)?;
                    assert!(seen == model[from..to], "{what}");
                }
                for (offset, n) in [(len, 1), (len - 1, 2), (0, len + 1), (usize::MAX, 1), (usize::MAX, 0)] {
                    let mut bytes = vec![0_u8; n];
                    let error = refused(guard.read(offset, &mut bytes));
                    assert!(matches!(error, Error::OutOfRange { size, .. } if size == len), "{what}: {error}");
                    let error = refused(guard.write(offset, &bytes));
                    let is_reading = mode == MapMode::Read && matches!(error, Error::ReadOnly);
                    assert!(is_reading || matches!(error, Error::OutOfRange { size, .. } if size == len), "{error}");
                }
                if mode != MapMode::Read {
                    let bytes = pattern(len, seed + 100 * u64::from(finish));
                    // A write guard keeps the bytes that it does not write.
                    let start = if mode == MapMode::Discard { 0 } else { len / 20 };
                    guard.write(start, &bytes[start..])?;
                    model[from + start..to].copy_from_slice(&bytes[start..]);
                }
                if finish {
                    guard.finish()?;
                } else {
                    drop(guard);
                }
                syncs.assert(calls(flushes), calls(1), &what);
                assert!(device_read(memory.device_ptr(), SIZE) == model, "{what}");
            }
        }
        Ok(())
    })
}

#[test]
fn slices_are_the_bytes_and_what_does_not_fit_an_element_is_refused() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, SIZE, kind)?;
        let (mut odd, mut even, part) = (memory.clone(), memory.slice(..4096)?, memory.slice(1..5)?);
        host_write(&memory, 0, &[3; SIZE])?;
        // SAFETY: nothing else uses the memory, here and below.
        assert_eq!(unsafe { even.as_slice::<u32>() }?, [0x0303_0303; 1024]);
        // SAFETY: as above, and the earlier slice is gone.
        let floats = unsafe { even.as_mut_slice::<f32>() }?;
        assert_eq!(floats.len(), 1024);
        floats[1023] = 1.5;
        memory.flush(..)?;
        assert_eq!(device_read(memory.device_ptr() + 4092, 4), 1.5_f32.to_ne_bytes());
        // SAFETY: as above.
        assert_eq!(unsafe { part.as_slice::<u8>() }?, [3; 4]);
        // SAFETY: the calls fail, so that no slice is created.
        let length = refused(unsafe { memory.as_slice::<u32>() });
        // SAFETY: as above.
        let mutable = refused(unsafe { odd.as_mut_slice::<u64>() });
        // SAFETY: as above.
        let address = refused(unsafe { part.as_slice::<u32>() });
        for (error, value, unit) in [
            (length, "the length 4097", 4),
            (mutable, "the length 4097", 8),
            (address, "the host address", 4),
            (refused(memory.fill(.., 2_u32)), "the length to fill 4097", 4),
            (refused(memory.fill(0..7, 2_u64)), "the length to fill 7", 8),
            (refused(memory.fill(1..=1, 2_u16)), "the length to fill 1", 2),
            (refused(memory.fill(3..7, [2_u8; 3])), "the length to fill 4", 3),
        ] {
            assert!(matches!(error, Error::Misaligned { .. }), "{error}");
            assert_says(&error, &[value, &format!("is not a multiple of {unit} bytes")]);
        }
        assert_eq!(host_read(&memory, 0, 4092)?, [3; 4092], "a refused fill wrote");
    }
    Ok(())
}

#[test]
fn parts_count_from_their_start_and_end_where_they_say() -> Result {
    each(NONE, &MemoryKind::ALL, SIZE, |subject, what| {
        let Some(memory) = subject.memory() else { return Ok(()) };
        let mut random = Random::new(4);
        let host = |memory: &Memory| memory.host_ptr().map(|pointer| pointer.addr().get());
        for turn in 0..50 {
            let (offset, len) = random.range_within(SIZE);
            let (inner, inner_len) = random.range_within(len);
            let outer = memory.slice(offset..offset + len)?;
            let part = outer.slice(inner..inner + inner_len)?;
            assert_eq!((part.len(), part.kind(), part.is_coherent()), (inner_len, memory.kind(), memory.is_coherent()));
            assert_eq!(part.device_ptr() - memory.device_ptr(), (offset + inner) as u64, "{what}");
            assert_eq!(host(&part), host(memory).map(|at| at + offset + inner), "{what}");
            for range in ranges::outside(inner_len).into_iter().filter(|_| inner_len > 1).skip(turn % 8).step_by(8) {
                ranges::assert_refused(&refused(part.slice(range)), range, inner_len);
            }
            if memory.kind().has_host_view() {
                host_write(&part, 0, &pattern(inner_len, turn as u64))?;
                assert!(
                    device_read(memory.device_ptr() + (offset + inner) as u64, inner_len)
                        == pattern(inner_len, turn as u64)
                );
            }
        }
        Ok(())
    })
}

#[test]
fn memory_outlives_its_handle_and_whatever_it_came_from() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in supported(&gpu, &HOST_VIEWS) {
        for (name, _, make) in ways(&gpu, kind) {
            let before = Live::now();
            let handle = Vkgdr::open(0, NONE)?;
            let subject = match make(&handle, SIZE, kind)? {
                Subject::Memory { memory, .. } => alone(memory.slice(1..)?)?,
                raw @ Raw(_) => raw,
            };
            drop(handle);
            subject.write(5, b"still here")?;
            subject.flush(5, 10)?;
            assert_eq!(device_read(subject.device_ptr() + 5, 10), b"still here", "{name}");
            // Later allocations would reuse the memory.
            let others = [(); 8].map(|()| Memory::allocate(&gpu, SIZE, kind));
            for other in others {
                host_write(&other?, 0, &[0xee; SIZE])?;
            }
            assert_eq!(device_read(subject.device_ptr() + 5, 10), b"still here", "{name}");
            drop(subject);
            assert_eq!(Live::now(), before, "{name}");
        }
    }
    Ok(())
}

/// The errors of all that allocate, where they must refuse.
fn refusals(gpu: &Vkgdr, len: usize, kind: MemoryKind) -> [Error; 3] {
    let of_a_pool = Pool::new(gpu, PoolOptions::new(kind)).and_then(|pool| pool.allocate(len));
    [refused(Memory::allocate(gpu, len, kind)), refused(RawMemory::allocate(gpu, len, kind)), refused(of_a_pool)]
}

#[test]
fn what_cannot_be_allocated_is_refused_with_the_numbers() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let before = Live::now();
    for kind in supported(&gpu, &MemoryKind::ALL) {
        for error in refusals(&gpu, 0, kind) {
            assert!(matches!(error, Error::ZeroSize { kind: k } if k == kind), "{error}");
            assert_says(&error, &[&format!("cannot allocate 0 bytes of {kind} memory")]);
        }
        if kind == MemoryKind::Mapped && gpu.supports_existing()? {
            eprintln!("skipped: CUDA allocates mapped memory beyond Vulkan's heap");
            continue;
        }
        let heap = usize::try_from(gpu.memory_info(kind)?.total)?;
        for len in [heap + 1, 1_000_000_000_000_000, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX] {
            for error in refusals(&gpu, len, kind) {
                assert_says(&error, &["requested ", &format!(" of {kind} memory; the heap has ")]);
                assert_says(&error, &["(VK_ERROR_OUT_OF_DEVICE_MEMORY)"]);
                assert!(!error.to_string().contains("vkAllocateMemory"), "{error}: nothing was called");
                assert_eq!((error.vulkan_code(), error.cuda_code()), (Some(-2), None));
                let asked = matches!(error, Error::Allocation { operation: None, asked, .. } if asked == len as u64);
                assert!(asked, "{error:?}");
                if len == 1_000_000_000_000_000 {
                    assert_says(&error, &["requested 909.4 TiB of "]);
                }
            }
        }
    }
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn without_a_context_allocating_is_refused() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let before = Live::now();
    for kind in support::open(NONE).map(|(_context, gpu)| supported(&gpu, &MemoryKind::ALL))? {
        for error in no_context(|| refusals(&gpu, 4096, kind)) {
            assert_says(&error, &["CUDA_ERROR_INVALID_CONTEXT", "open_primary_context"]);
            assert_eq!((error.cuda_code(), error.vulkan_code()), (Some(codes::INVALID_CONTEXT), None));
        }
    }
    assert_eq!(Live::now(), before);
    Ok(())
}
