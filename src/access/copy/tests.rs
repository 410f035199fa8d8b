//! Every routine that this CPU has against a byte-wise model.

use proptest::prelude::*;

use super::*;
use crate::allocation::LINE;

const GUARD: u8 = 0xee;

/// Bytes that differ from their neighbours and from the guard.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 199).unwrap_or(0)).collect()
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE]);

/// Whole lines, as an allocation is.
pub(super) struct Aligned(Vec<Line>);

impl Aligned {
    pub(super) fn new(bytes: &[u8]) -> Self {
        let mut lines = vec![Line([GUARD; LINE]); bytes.len().div_ceil(LINE)];
        for (line, bytes) in lines.iter_mut().zip(bytes.chunks(LINE)) {
            line.0[..bytes.len()].copy_from_slice(bytes);
        }
        Self(lines)
    }

    pub(super) fn at(&self, offset: usize) -> *const u8 {
        self.0.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    fn at_mut(&mut self, offset: usize) -> *mut u8 {
        self.0.as_mut_ptr().cast::<u8>().wrapping_add(offset)
    }

    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(|line| line.0)
    }
}

/// The copy of cached memory on a CPU without wide registers.
const NARROW: &Table = &Table { write: write_narrowly, read: read_narrowly };

/// # Safety
///
/// The contract of [`cached::copy`].
unsafe fn write_narrowly(target: *mut u8, source: &[u8]) {
    // SAFETY: by this function's contract.
    unsafe { cached::copy(Vectors::Narrow, target, source.as_ptr(), source.len()) };
}

/// # Safety
///
/// The contract of [`cached::copy`].
unsafe fn read_narrowly(source: *const u8, target: &mut [u8]) {
    // SAFETY: by this function's contract.
    unsafe { cached::copy(Vectors::Narrow, target.as_mut_ptr(), source, target.len()) };
}

/// The routines that this CPU has.
fn routines() -> impl Iterator<Item = (CopyRoutine, &'static Table)> {
    let of = |routine| Some((routine, Table::of(routine)?));
    CopyRoutine::ALL.into_iter().filter_map(of).chain([(CopyRoutine::Ordinary, NARROW)])
}

/// Writes from a private place `skew` bytes off to `offset`, and checks every byte of the lines around.
fn check_write(table: &Table, skew: usize, offset: usize, len: usize) -> bool {
    let source = [vec![GUARD; skew], pattern(len)].concat();
    let size = (offset + len).next_multiple_of(LINE) + LINE;
    let mut target = Aligned::new(&vec![GUARD; size]);
    // SAFETY: the buffer has the bytes.
    unsafe { (table.write)(target.at_mut(offset), &source[skew..]) };
    fences::store_fence();
    let expected = [vec![GUARD; offset], pattern(len), vec![GUARD; size - offset - len]].concat();
    target.bytes().eq(expected)
}

/// Reads from `offset` to a private place `skew` bytes off, and checks every byte around it.
fn check_read(table: &Table, source: &Aligned, skew: usize, offset: usize, len: usize) -> bool {
    let mut target = vec![GUARD; skew + len + LINE];
    // SAFETY: the buffer is whole lines and has the bytes.
    unsafe { (table.read)(source.at(offset), &mut target[skew..skew + len]) };
    let expected = source.bytes().skip(offset).take(len);
    target[..skew].iter().all(|&byte| byte == GUARD)
        && target[skew..skew + len].iter().copied().eq(expected)
        && target[skew + len..].iter().all(|&byte| byte == GUARD)
}

#[test]
fn every_routine_reaches_its_bytes_and_no_others() {
    for routine in CopyRoutine::ALL.into_iter().filter(|routine| !routine.is_supported()) {
        eprintln!("left out: this CPU has no {routine}");
    }
    let source = Aligned::new(&pattern(512));
    for (routine, table) in routines() {
        for offset in 0..2 * LINE {
            for len in 0..=300 {
                // Every misalignment of the private side comes up, since 7 is odd.
                let skew = (offset + 7 * len) % LINE;
                assert!(check_write(table, skew, offset, len), "{routine} writes {len} bytes at {offset} from {skew}");
                assert!(check_read(table, &source, skew, offset, len), "{routine} reads {len} bytes at {offset}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn large_copies_reach_their_bytes_and_no_others(offset in 0..LINE, skew in 0..LINE, len in 0..200_000_usize) {
        let source = Aligned::new(&pattern(offset + len));
        for (routine, table) in routines() {
            prop_assert!(check_write(table, skew, offset, len), "{} writes {} bytes at {}", routine, len, offset);
            prop_assert!(check_read(table, &source, skew, offset, len), "{} reads {} bytes at {}", routine, len, offset);
        }
    }
}

/// A page between two inaccessible ones.
struct Fenced {
    base: *mut u8,
}

const PAGE: usize = 4096;

impl Fenced {
    fn new() -> Self {
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base = base.cast::<u8>();
        // SAFETY: the second of the mapping's pages.
        let rc = unsafe { libc::mprotect(base.wrapping_add(PAGE).cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(rc, 0);
        Self { base }
    }

    /// A place in the accessible page.
    fn at(&self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(PAGE + offset)
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing else uses.
        unsafe { libc::munmap(self.base.cast(), 3 * PAGE) };
    }
}

#[test]
fn no_access_leaves_the_lines_that_hold_the_bytes() {
    let page = Fenced::new();
    for (_, table) in routines() {
        for len in 0..=300 {
            for offset in [0, 1, 15, 33, 63, PAGE - 63 - len, PAGE - 1 - len, PAGE - len] {
                // SAFETY: the page has the bytes.
                unsafe { (table.write)(page.at(offset), &pattern(len)) };
                fences::store_fence();
                let mut target = vec![GUARD; len];
                // SAFETY: the page has the bytes, and is whole lines.
                unsafe { (table.read)(page.at(offset), &mut target) };
                assert_eq!(target, pattern(len));
            }
        }
    }
}

#[test]
fn fills_repeat_the_pattern_across_steps() {
    Choice::made();
    for access in ACCESSES {
        for (len, unit) in [(0, 1), (1, 1), (9, 3), (4096, 8), (12_288, 12), (12_300, 12), (5000, 5000), (15_000, 5000)]
        {
            for offset in [0, 1, 60, 64] {
                let pattern = pattern(unit);
                let mut target = Aligned::new(&vec![GUARD; offset + len + LINE]);
                let to = NonNull::new(target.at_mut(offset));
                if let Some(to) = to {
                    // SAFETY: the buffer has `len` bytes from there.
                    unsafe { fill(access, to, len, &pattern) };
                }
                let expected: Vec<_> = pattern.iter().copied().cycle().take(len).collect();
                let found: Vec<_> = target.bytes().collect();
                assert!(found[offset..offset + len] == expected, "{len} bytes of {unit} at {offset}");
                assert!(found[..offset].iter().all(|&byte| byte == GUARD));
                assert!(found[offset + len..].iter().all(|&byte| byte == GUARD));
            }
        }
    }
}

/// Every way in which the CPU copies.
const ACCESSES: [HostAccess; 3] =
    [HostAccess::Cached(Vectors::Narrow), HostAccess::CachedByRoutine, HostAccess::WriteCombined];

#[test]
fn cached_memory_is_copied_by_memcpy_unless_a_routine_is_forced() {
    let forced = Choice::made().forced;
    assert_eq!(HostAccess::of(true, false).routine(), CopyRoutine::chosen());
    let cached = HostAccess::of(true, true);
    assert_eq!(cached.routine(), if forced { CopyRoutine::chosen() } else { CopyRoutine::Ordinary });
    assert_eq!(matches!(cached, HostAccess::Cached(_)), !forced);
}

#[test]
fn finding_out_how_memory_is_copied_chooses_the_routine() {
    for cached in [false, true] {
        HostAccess::of(true, cached);
        let used = Table::chosen();
        assert!(ptr::eq(used, Choice::made().table), "cached: {cached}");
    }
}

#[test]
fn a_forced_routine_makes_no_memory_write_combined_that_is_cached() {
    assert_eq!(HostAccess::of(true, false), HostAccess::WriteCombined);
    assert_ne!(HostAccess::of(true, true), HostAccess::WriteCombined);
    assert_eq!([true, false].map(|cached| HostAccess::of(false, cached)), [HostAccess::None; 2]);
}

#[test]
fn every_access_writes_and_reads_any_length() {
    Choice::made();
    for access in ACCESSES {
        for len in [0, 1, 100, 5000, 300_000] {
            let mut memory = Aligned::new(&vec![GUARD; len + 2 * LINE]);
            let place = NonNull::new(memory.at_mut(13));
            let mut seen = vec![GUARD; len];
            if let Some(place) = place {
                // SAFETY: the buffer has the bytes.
                unsafe { write(access, place, &pattern(len)) };
                // SAFETY: the buffer has the bytes, and is whole lines.
                unsafe { read(access, place, &mut seen) };
            }
            assert!(seen == pattern(len), "{len} bytes");
        }
    }
}
