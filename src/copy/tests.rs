//! Every routine that this CPU has against a byte-wise model, and which accesses copies make.

use std::cell::RefCell;
use std::ptr;
use std::slice;

use super::accesses::Accesses;
use super::*;
use crate::allocation::LINE;

const GUARD: u8 = 0xee;
const PAGE: usize = 4096;

/// Bytes that differ from their neighbours and from the guard.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 199).unwrap_or(0)).collect()
}

/// A page between two inaccessible ones.
struct Page(*mut u8);

impl Page {
    fn new() -> Self {
        // SAFETY: a new mapping, wherever there is room.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let page = base.wrapping_byte_add(PAGE);
        // SAFETY: the second of the mapping's pages.
        assert_eq!(unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) }, 0);
        Self(page.cast())
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        NonNull::new(self.0.wrapping_add(offset)).expect("a page is not at address 0")
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the page is mapped, and nothing else uses it meanwhile.
        unsafe { slice::from_raw_parts_mut(self.0, PAGE) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing else uses.
        unsafe { libc::munmap(self.0.wrapping_sub(PAGE).cast(), 3 * PAGE) };
    }
}

/// Writes to `offset` in the page and reads from there, `skew` bytes off in private memory, and checks every byte around.
fn check(routine: CopyRoutine, page: &mut Page, (offset, len, skew): (usize, usize, usize)) {
    let what = format!("{routine}: {len} bytes at {offset}, {skew}");
    let source = [vec![GUARD; skew], pattern(len)].concat();
    page.bytes().fill(GUARD);
    // SAFETY: the page has the bytes, and the CPU has the routine.
    unsafe { write_unordered(routine, page.at(offset), &source[skew..]) };
    let expected = [vec![GUARD; offset], pattern(len), vec![GUARD; PAGE - offset - len]].concat();
    assert!(page.bytes() == expected, "{what}, written");

    let mut target = vec![GUARD; skew + len + LINE];
    order_reads(routine);
    // SAFETY: the page is whole lines and has the bytes, and the CPU has the routine.
    unsafe { read_unordered(routine, page.at(offset), &mut target[skew..skew + len]) };
    assert!(target == [source, vec![GUARD; LINE]].concat(), "{what}, read");
}

#[test]
fn every_routine_reaches_its_bytes_and_no_others() {
    let mut page = Page::new();
    for routine in CopyRoutine::ALL.into_iter().chain([CopyRoutine::Ordinary]) {
        if !routine.is_supported() {
            eprintln!("left out: this CPU has no {routine}");
            continue;
        }
        for distance in 0..LINE {
            for len in (0..=300).chain([1000]) {
                // Every misalignment of the private side comes up, since 7 is odd.
                let skew = (distance + 7 * len) % LINE;
                check(routine, &mut page, (distance, len, skew));
                check(routine, &mut page, (PAGE - distance - len, len, skew));
            }
        }
    }
}

#[test]
fn fills_repeat_the_pattern_across_steps() {
    for routine in [CopyRoutine::Ordinary, CopyRoutine::of(false)] {
        for (len, unit) in
            [(0, 1), (1, 1), (9, 3), (40_000, 8), (32_784, 12), (32_796, 12), (20_000, 20_000), (60_000, 20_000)]
        {
            for offset in [0, 1, 60, 64] {
                let pattern = pattern(unit);
                let mut target = vec![GUARD; offset + len + LINE];
                let to = NonNull::from(&mut target[offset..]).cast();
                // SAFETY: the buffer has `len` bytes from there, and the CPU has the routine.
                unsafe { fill(routine, to, len, &pattern) };
                let filled = pattern.iter().copied().cycle().take(len).collect();
                let expected = [vec![GUARD; offset], filled, vec![GUARD; LINE]].concat();
                assert!(target == expected, "{len} bytes of {unit} at {offset}");
            }
        }
    }
}

/// An access by its place and width.
type Access = (usize, usize);

thread_local! {
    static MADE: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
}

/// Notes accesses instead of making them. Lines are noted as accesses of `WIDTH`.
struct Noted<const WIDTH: usize>;

fn note(place: *const u8, width: usize, count: usize) {
    let accesses = (0..count).map(|index| (place.addr() + index * width, width));
    MADE.with_borrow_mut(|made| made.extend(accesses));
}

impl<const WIDTH: usize> Accesses for Noted<WIDTH> {
    const LOAD: usize = WIDTH;
    const STORE: usize = if WIDTH < LINE { WIDTH } else { LINE / 2 };

    unsafe fn store(width: usize, target: *mut u8, _: *const u8) {
        note(target, width, 1);
    }

    unsafe fn store_line(target: *mut u8, _: *const u8) {
        note(target, WIDTH, LINE / WIDTH);
    }

    unsafe fn load(_: *mut u8, source: *const u8) {
        note(source, WIDTH, 1);
    }
}

/// How often each byte is accessed.
fn touched(accesses: &[Access], bytes: usize) -> Vec<u8> {
    let mut touched = vec![0; bytes];
    for &(place, width) in accesses {
        assert!(width.is_power_of_two() && place.is_multiple_of(width), "{width} bytes at {place}");
        touched[place..place + width].iter_mut().for_each(|count| *count += 1);
    }
    touched
}

/// The fewest aligned accesses of any power of two up to `widest` that reach `len` bytes at `at` and no others, by
/// trying all.
fn fewest(at: usize, len: usize, widest: usize) -> usize {
    let mut best = vec![0; len + 1];
    for left in 1..=len {
        let place = at + len - left;
        let widths = [1, 2, 4, 8, 16, 32, 64].into_iter();
        let possible = widths.filter(|&w| w <= widest && w <= left && place.is_multiple_of(w));
        best[left] = 1 + possible.map(|w| best[left - w]).min().unwrap_or(usize::MAX / 2);
    }
    best[len]
}

/// Stores reach each byte once, and loads the blocks that hold the bytes, also once: the fewest that can.
fn check_accesses<const WIDTH: usize>(at: usize, len: usize) {
    let (shared, mut private) = (ptr::without_provenance_mut(at), vec![0; len]);
    // SAFETY: no access is made.
    unsafe { accesses::write::<Noted<WIDTH>>(shared, &private) };
    let stores = MADE.take();
    // SAFETY: as above.
    unsafe { accesses::read::<Noted<WIDTH>>(shared, &mut private) };
    let loads = MADE.take();

    let what = format!("{len} bytes at {at}, {WIDTH} wide: {stores:?}, {loads:?}");
    let bytes = (at + len).next_multiple_of(LINE);
    let stored = (0..bytes).map(|place| u8::from((at..at + len).contains(&place)));
    assert!(touched(&stores, bytes).into_iter().eq(stored), "{what}");
    assert_eq!(stores.len(), fewest(at, len, WIDTH), "{what}");

    let (first, end) = if len == 0 { (0, 0) } else { (at / WIDTH * WIDTH, (at + len).next_multiple_of(WIDTH)) };
    let loaded = (0..bytes).map(|place| u8::from((first..end).contains(&place)));
    assert!(touched(&loads, bytes).into_iter().eq(loaded), "{what}");
}

#[test]
fn a_copy_makes_the_fewest_aligned_accesses() {
    for at in 0..LINE {
        for len in 0..=200 {
            check_accesses::<1>(at, len);
            check_accesses::<16>(at, len);
            check_accesses::<32>(at, len);
            check_accesses::<64>(at, len);
        }
    }
}
