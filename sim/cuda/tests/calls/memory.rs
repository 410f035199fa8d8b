//! Device and managed memory.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use support::codes::{INVALID_CONTEXT, INVALID_VALUE};
use support::cuda::{Gate, PrimaryContext, Stream, no_context};

use crate::{allocate, call, free, given, good};

const MIB: usize = 1 << 20;
// CUDA_ERROR_INVALID_DEVICE
const INVALID_DEVICE: i32 = 101;

#[test]
fn large_blocks_start_at_a_multiple_of_2_mib() {
    let _context = PrimaryContext::retain_and_push(0);
    // Several at once, so that none is aligned by chance.
    for len in [2 * MIB, 3 * MIB + 4, 16 * MIB] {
        let blocks: Vec<u64> = (0..4).map(|_| allocate(len)).collect();
        assert!(blocks.iter().all(|address| address.is_multiple_of(2 << 20)), "{len} bytes at {blocks:x?}");
        blocks.into_iter().for_each(free);
    }
    for len in [1, 256, 4097, MIB] {
        let blocks: Vec<u64> = (0..4).map(|_| allocate(len)).collect();
        assert!(blocks.iter().all(|address| address.is_multiple_of(256)), "{len} bytes at {blocks:x?}");
        blocks.into_iter().for_each(free);
    }
}

#[test]
fn null_is_freed_by_doing_nothing() {
    let _context = PrimaryContext::retain_and_push(0);
    good(call!(cuMemFree_v2(0 => u64)));
    good(call!(cuMemFreeHost(0 => usize)));
    assert_eq!(call!(cuMemHostUnregister(0 => usize)), INVALID_VALUE);
}

/// `CUmemLocation` in a register: the type in its lower half, the number in the upper.
fn location(kind: u32, id: i32) -> u64 {
    u64::from(kind) | u64::from(id.cast_unsigned()) << 32
}

const HOST: i32 = -1;
const LEN: usize = 4096;

fn managed() -> u64 {
    given(|out| call!(cuMemAllocManaged(out => *mut u64, LEN => usize, 1 => u32)))
}

#[test]
fn managed_memory_can_be_prefetched() {
    let _context = PrimaryContext::retain_and_push(0);
    let (managed, plain) = (managed(), allocate(LEN));
    let old = |address: u64, len: usize, device: i32, stream: usize| call!(cuMemPrefetchAsync(address => u64, len => usize, device => i32, stream => usize));
    let new = |location: u64, flags: u32| call!(cuMemPrefetchAsync_v2(managed => u64, LEN => usize, location => u64, flags => u32, 0 => usize));
    good(old(managed, LEN, 0, 0));
    good(old(managed + 100, 50, HOST, 0));
    assert_eq!(old(managed, LEN, 99, 0), INVALID_DEVICE);
    assert_eq!(old(managed, LEN + 1, 0, 0), INVALID_VALUE);
    assert_eq!(old(managed, 0, 0, 0), INVALID_VALUE);
    assert_eq!(old(plain, LEN, 0, 0), INVALID_VALUE, "not managed");
    assert_eq!(no_context(|| old(managed, LEN, 0, 0)), INVALID_CONTEXT);
    // The device, the host, a node of the host, the nearest node.
    for place in [location(1, 0), location(2, 77), location(3, 0), location(4, -5)] {
        good(new(place, 0));
    }
    assert_eq!(new(location(1, 0), 1), INVALID_VALUE, "flags");
    assert_eq!(new(location(0, 0), 0), INVALID_VALUE, "no type");
    assert_eq!(new(location(1, 99), 0), INVALID_DEVICE);
    free(managed);
    free(plain);
}

#[test]
fn advice_on_managed_memory_is_checked() {
    let _context = PrimaryContext::retain_and_push(0);
    let (managed, plain) = (managed(), allocate(LEN));
    let old = |address: u64, advice: u32, device: i32| call!(cuMemAdvise(address => u64, LEN => usize, advice => u32, device => i32));
    let new =
        |advice: u32, place: u64| call!(cuMemAdvise_v2(managed => u64, LEN => usize, advice => u32, place => u64));
    for advice in 1..=6 {
        good(old(managed, advice, 0));
        good(old(managed, advice, HOST));
        assert_eq!(old(plain, advice, 0), INVALID_VALUE, "not managed");
        // Read-mostly, and no preferred location, need no location.
        let ignored = matches!(advice, 1 | 2 | 4);
        assert_eq!(old(managed, advice, 99), if ignored { 0 } else { INVALID_DEVICE }, "advice {advice}");
        good(new(advice, location(2, 0)));
        // A node of the host accesses nothing.
        assert_eq!(new(advice, location(3, 0)), if advice < 5 { 0 } else { INVALID_VALUE }, "advice {advice}");
    }
    assert_eq!(old(managed, 7, 0), INVALID_VALUE);
    free(managed);
    free(plain);
}

#[test]
fn managed_memory_can_be_attached_to_a_stream() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let (managed, plain) = (managed(), allocate(LEN));
    let attach = |stream: usize, address: u64, len: usize, flags: u32| call!(cuStreamAttachMemAsync(stream => usize, address => u64, len => usize, flags => u32));
    let own = stream.raw().expose_provenance();
    for flags in [1, 2, 4] {
        good(attach(own, managed, 0, flags));
        good(attach(own, managed, LEN, flags));
        assert_eq!(attach(own, managed, LEN - 1, flags), INVALID_VALUE, "a part");
        assert_eq!(attach(own, plain, 0, flags), INVALID_VALUE, "not managed");
    }
    assert_eq!(attach(0, managed, 0, 4), INVALID_VALUE, "singly to the null stream");
    assert_eq!(attach(own, managed, 0, 3), INVALID_VALUE, "two flags");
    assert_eq!(attach(own, managed, 0, 0), INVALID_VALUE, "no flag");
    free(managed);
    free(plain);
}

#[test]
fn ranges_of_managed_memory_remember_advice() {
    let _context = PrimaryContext::retain_and_push(0);
    let len = 4 * LEN;
    let memory: u64 = given(|out| call!(cuMemAllocManaged(out => *mut u64, len => usize, 1 => u32)));
    let ask = |attribute: u32, size: usize, start: usize, count: usize| {
        let mut value = [7_i32; 4];
        let code = call!(cuMemRangeGetAttribute(
            value.as_mut_ptr() => *mut i32, size => usize, attribute => u32, memory + start as u64 => u64,
            count => usize
        ));
        (code, value)
    };
    let one = |attribute: u32, start: usize, count: usize| match ask(attribute, 4, start, count) {
        (0, value) => Ok(value[0]),
        (code, _) => Err(code),
    };
    let advise = |advice: u32, start: usize, count: usize, device: i32| {
        good(call!(cuMemAdvise(memory + start as u64 => u64, count => usize, advice => u32, device => i32)));
    };
    const NONE: i32 = -2;
    assert_eq!([1, 2, 4].map(|attribute| one(attribute, 0, len)), [Ok(0), Ok(NONE), Ok(NONE)]);
    assert_eq!(ask(3, 8, 0, len), (0, [NONE, NONE, 7, 7]));
    // Read mostly: the second and third page, by parts of them.
    advise(1, LEN + 5, LEN, 0);
    assert_eq!(one(1, LEN, 2 * LEN), Ok(1));
    assert_eq!([one(1, 0, len), one(1, LEN - 1, 2), one(1, 3 * LEN - 1, 2)], [Ok(0); 3]);
    advise(2, LEN, LEN, 0);
    assert_eq!((one(1, LEN, 1), one(1, 2 * LEN, LEN)), (Ok(0), Ok(1)));
    // Preferred locations, in both forms.
    advise(3, 0, len, 0);
    assert_eq!([2, 5, 6].map(|attribute| one(attribute, 0, len)), [Ok(0), Ok(1), Ok(0)]);
    advise(3, 0, LEN, HOST);
    assert_eq!([one(2, 0, LEN), one(5, 0, LEN), one(2, 0, len), one(5, 0, len)], [Ok(HOST), Ok(2), Ok(NONE), Ok(0)]);
    advise(4, 0, len, 0);
    assert_eq!(one(2, 0, len), Ok(NONE));
    advise(5, 0, len, 0);
    advise(5, 0, LEN, HOST);
    assert_eq!(ask(3, 12, 0, LEN), (0, [HOST, 0, NONE, 7]));
    assert_eq!(ask(3, 8, 0, len), (0, [0, NONE, 7, 7]));
    advise(6, 0, len, 0);
    assert_eq!(ask(3, 4, LEN, LEN), (0, [NONE, 7, 7, 7]));
    good(call!(cuMemPrefetchAsync(memory => u64, len => usize, 0 => i32, 0 => usize)));
    assert_eq!([4, 7, 8].map(|attribute| one(attribute, 0, len)), [Ok(0), Ok(1), Ok(0)]);
    // Several at once.
    let (mut first, mut second) = (9_i32, 9_i32);
    let outs = [&raw mut first, &raw mut second];
    let many = |sizes: &[usize; 2], attributes: &[u32; 2], count: usize| {
        call!(cuMemRangeGetAttributes(
            outs.as_ptr() => *const *mut i32, sizes.as_ptr() => *const usize, attributes.as_ptr() => *const u32,
            count => usize, memory => u64, len => usize
        ))
    };
    good(many(&[4, 4], &[4, 2], 2));
    assert_eq!((first, second), (0, NONE));
    assert_eq!([many(&[4, 4], &[4, 99], 2), many(&[4, 8], &[4, 2], 2), many(&[4, 4], &[4, 2], 0)], [INVALID_VALUE; 3]);

    assert_eq!([one(0, 0, len), one(99, 0, len), one(1, 0, len + 1), one(1, 0, 0)], [Err(INVALID_VALUE); 4]);
    assert_eq!([ask(1, 8, 0, len).0, ask(3, 0, 0, len).0, ask(3, 6, 0, len).0], [INVALID_VALUE; 3], "sizes");
    let plain = allocate(LEN);
    let mut value = 0_i32;
    let code = call!(cuMemRangeGetAttribute(
        &raw mut value => *mut i32, 4 => usize, 1 => u32, plain => u64, LEN => usize
    ));
    assert_eq!(code, INVALID_VALUE, "not managed");
    assert_eq!(no_context(|| one(1, 0, len)), Err(INVALID_CONTEXT));
    free(memory);
    free(plain);
}

/// The legacy default stream, of the synchronous functions, held up.
fn hold() -> Gate {
    // SAFETY: the context's own stream lives as long as the context.
    unsafe { Stream::hold_raw(null_mut()) }
}

/// Runs a call with the legacy stream held up for a moment: whether it returned only afterwards.
fn waits(call: impl FnOnce() -> i32) -> bool {
    let (gate, opened) = (hold(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(50));
            opened.store(true, Ordering::SeqCst);
            drop(gate);
        });
        good(call());
        opened.load(Ordering::SeqCst)
    })
}

#[test]
fn synchronous_calls_wait_where_the_program_asks_for_it() {
    // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS.
    const SYNC_MEMOPS: u32 = 6;
    let _context = PrimaryContext::retain_and_push(0);
    let (one, other, managed) = (allocate(LEN), allocate(LEN), managed());
    let ask = |address: u64| -> u32 {
        given(|out| call!(cuPointerGetAttribute(out => *mut u32, SYNC_MEMOPS => u32, address => u64)))
    };
    let set_any = |address: u64, value: u32, attribute: u32| call!(cuPointerSetAttribute(&raw const value => *const u32, attribute => u32, address => u64));
    let set = |address: u64, value: u32| set_any(address, value, SYNC_MEMOPS);
    let copy = |to: u64, from: u64| call!(cuMemcpyDtoD_v2(to => u64, from => u64, LEN => usize));
    let fill = |address: u64| call!(cuMemsetD8_v2(address => u64, 1 => u8, LEN => usize));
    assert_eq!([one, other].map(ask), [0, 0]);
    good(set(one + 5, 1));
    assert_eq!([one, one + 9, other].map(ask), [1, 1, 0]);
    assert!(waits(|| copy(one, other)));
    assert!(waits(|| copy(other, one)));
    assert!(waits(|| fill(one)));
    good(set(one, 0));
    assert_eq!(ask(one), 0);
    // They return at once, and what is at work already is waited for when the attribute is set.
    let gate = hold();
    good(copy(one, other));
    good(fill(other));
    drop(gate);
    assert!(waits(|| {
        good(fill(other));
        set(other, 1)
    }));
    // Only device memory has it, and no other attribute can be set.
    assert_eq!([set(managed, 1), set(77, 1), set_any(one, 1, 7)], [INVALID_VALUE; 3]);
    [one, other, managed].into_iter().for_each(free);
}
