//! Which accesses a copy makes, against a search of all possible ones.

use std::cell::RefCell;
use std::ptr;

use proptest::prelude::*;

use super::*;

const WIDTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

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

    unsafe fn store_lines(target: *mut u8, _: *const u8, lines: usize) {
        note(target, WIDTH, lines * LINE / WIDTH);
    }

    unsafe fn load(_: *mut u8, source: *const u8) {
        note(source, WIDTH, 1);
    }

    unsafe fn load_lines(_: *mut u8, source: *const u8, lines: usize) {
        note(source, WIDTH, lines * LINE / WIDTH);
    }
}

/// The stores of a write to `len` bytes at `at`, and the loads of a read.
fn of_width<const WIDTH: usize>(at: usize, len: usize) -> [Vec<Access>; 2] {
    let (shared, mut private) = (ptr::without_provenance_mut(at), vec![0; len]);
    // SAFETY: no access is made.
    unsafe { write::<Noted<WIDTH>>(shared, &private) };
    let stores = MADE.take();
    // SAFETY: as above.
    unsafe { read::<Noted<WIDTH>>(shared, &mut private) };
    [stores, MADE.take()]
}

fn accesses(at: usize, len: usize, width: usize) -> [Vec<Access>; 2] {
    match width {
        1 => of_width::<1>(at, len),
        2 => of_width::<2>(at, len),
        4 => of_width::<4>(at, len),
        8 => of_width::<8>(at, len),
        16 => of_width::<16>(at, len),
        32 => of_width::<32>(at, len),
        _ => of_width::<64>(at, len),
    }
}

fn stores(at: usize, len: usize, widest: usize) -> Vec<Access> {
    let [stores, _] = accesses(at, len, widest);
    stores
}

fn loads(at: usize, len: usize, width: usize) -> Vec<Access> {
    let [_, loads] = accesses(at, len, width);
    loads
}

/// How often each byte is accessed.
fn touched(accesses: &[Access], bytes: usize) -> Vec<u8> {
    let mut touched = vec![0; bytes];
    for &(place, width) in accesses {
        assert!(width.is_power_of_two() && place.is_multiple_of(width), "{width} bytes at {place}");
        assert!(place / LINE == (place + width - 1) / LINE, "{width} bytes at {place} cross a line");
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
        let possible = WIDTHS.iter().filter(|&&w| w <= widest && w <= left && place.is_multiple_of(w));
        best[left] = 1 + possible.map(|w| best[left - w]).min().unwrap_or(usize::MAX / 2);
    }
    best[len]
}

fn check(at: usize, len: usize, width: usize) {
    let what = format!("{len} bytes at {at}, {width} wide");
    let wanted = |place: usize| (at..at + len).contains(&place);
    let bytes = (at + len).next_multiple_of(LINE);
    let [stores, loads] = accesses(at, len, width);

    let exactly = (0..bytes).map(|place| u8::from(wanted(place)));
    assert!(touched(&stores, bytes).into_iter().eq(exactly), "{what}: {stores:?}");

    let touched = touched(&loads, bytes);
    assert!(touched.iter().all(|&count| count <= 1), "{what}: twice: {loads:?}");
    assert!((0..bytes).all(|place| !wanted(place) || touched[place] == 1), "{what}: {loads:?}");
    let blocks = if len == 0 { 0 } else { (at + len - 1) / width - at / width + 1 };
    assert_eq!(loads.len(), blocks, "{what}: more loads than blocks");
}

#[test]
fn every_access_is_aligned_within_a_line_and_reaches_what_it_should() {
    for at in (0..LINE).chain([LINE, 2 * LINE - 1]) {
        for len in 0..=300 {
            for width in WIDTHS {
                check(at, len, width);
            }
        }
    }
}

proptest! {
    #[test]
    fn large_copies_make_the_same_accesses(at in 0..LINE, len in 0..100_000_usize, width in prop::sample::select(&WIDTHS[..])) {
        check(at, len, width);
    }
}

proptest! {
    #[test]
    fn no_addresses_overflow(address in ..=usize::MAX - 2 * LINE - 1000, len in 0..1000_usize) {
        let bytes: usize = stores(address, len, 16).into_iter().map(|(_, width)| width).sum();
        prop_assert_eq!(bytes, len);
        prop_assert!(loads(address, len, 64).len() <= len.div_ceil(LINE) + 1);
    }
}

#[test]
fn no_other_stores_are_fewer() {
    for at in 0..LINE {
        for len in 0..=200 {
            for widest in WIDTHS {
                let found = stores(at, len, widest).len();
                assert_eq!(found, fewest(at, len, widest), "{len} bytes at {at}, {widest} wide");
            }
        }
    }
}

/// With each of the bytes before the first line, whole lines and the rest, and without.
#[test]
fn a_copy_makes_the_accesses_that_its_bytes_need() {
    let widths = |accesses: Vec<Access>| accesses.into_iter().map(|(_, width)| width).collect::<Vec<_>>();
    let stored = |at, len, widest| widths(stores(at, len, widest));
    for (at, len, expected) in [
        (0, 0, &[] as &[usize]),
        (5, 0, &[]),
        (0, 5, &[4, 1]),
        (0, 64, &[64]),
        (0, 128, &[64, 64]),
        (0, 130, &[64, 64, 2]),
        (3, 5, &[1, 4]),
        (59, 5, &[1, 4]),
        (60, 5, &[4, 1]),
        (1, 127, &[1, 2, 4, 8, 16, 32, 64]),
        (63, 65, &[1, 64]),
        (63, 66, &[1, 64, 1]),
        (64 + 63, 66, &[1, 64, 1]),
    ] {
        assert_eq!(stored(at, len, 64), expected, "{len} bytes at {at}");
    }
    assert_eq!(stored(1, 63, 16), [1, 2, 4, 8, 16, 16, 16]);
    assert_eq!(stored(1, 63, 32), [1, 2, 4, 8, 16, 32]);
    assert_eq!(stored(0, 63, 32), [32, 16, 8, 4, 2, 1]);
    assert_eq!(stored(6, 3, 32), [2, 1]);
    assert_eq!(stored(60, 8, 64), [4, 4]);
    assert_eq!(loads(15, 2, 16), [(0, 16), (16, 16)]);
    assert_eq!(loads(15, 2, 32), [(0, 32)]);
    assert_eq!(loads(15, 0, 32), []);
    assert_eq!(loads(0, 33, 32), [(0, 32), (32, 32)]);
}

/// The accesses of a read by alignment ramps: each as wide as `widths` and the place allow.
fn ramp(at: usize, len: usize, widths: &[usize]) -> usize {
    let (mut place, end, mut accesses) = (at, at + len, 0);
    while place < end {
        let fits = |width: &&usize| place.is_multiple_of(**width) && place + **width <= end;
        place += widths.iter().filter(fits).max().copied().unwrap_or(1);
        accesses += 1;
    }
    accesses
}

/// Our accesses ÷ those of ramps, summed over every start within a line that is not a multiple of 16.
fn ratio(len: usize, width: usize, ramps: &[usize]) -> f64 {
    let starts = || (0..LINE).filter(|at| !at.is_multiple_of(16));
    let ours: usize = starts().map(|at| loads(at, len, width).len()).sum();
    let theirs: usize = starts().map(|at| ramp(at, len, ramps)).sum();
    f64::from(u32::try_from(ours).unwrap_or(u32::MAX)) / f64::from(u32::try_from(theirs).unwrap_or(0))
}

#[test]
fn an_unaligned_read_makes_at_most_half_the_accesses_of_alignment_ramps() {
    for len in [3, 7, 15, 31, 63] {
        for width in [16, 32, 64] {
            // Bytes up to a word, words up to 16 bytes.
            let ratio = ratio(len, width, &[1, 8, 16]);
            eprintln!("{len} bytes, {width} wide: {ratio:.3}");
            assert!(ratio <= 0.5, "{len} bytes, {width} wide: {ratio}");
        }
    }
}

/// As gdrcopy does it. Three bytes are two accesses there, and here one, or two where they cross loads.
#[test]
fn an_unaligned_read_makes_about_half_the_accesses_of_ramps_through_every_width() {
    for (len, most) in [
        (3, [0.57, 0.54, 0.52]),
        (7, [0.47, 0.40, 0.37]),
        (15, [0.49, 0.37, 0.31]),
        (31, [0.59, 0.40, 0.30]),
        (63, [0.71, 0.43, 0.29]),
    ] {
        for (width, most) in [16, 32, 64].into_iter().zip(most) {
            let ratio = ratio(len, width, &[1, 2, 4, 8, 16]);
            eprintln!("{len} bytes, {width} wide: {ratio:.3}");
            assert!(ratio <= most, "{len} bytes, {width} wide: {ratio}");
        }
    }
}
