//! Copies and fills on streams: the bytes copied, and refused arguments.
#![expect(unsafe_code, reason = "uses streams and addresses that the tests keep alive")]

use std::ptr::null_mut;

use support::cuda::{Context, Stream, no_context};
use support::ledger::Calls;
use support::{Random, Result, assert_says, device_read, host_read, host_write, pattern, refused};
use vkgdr::{CopyPtr, Error, Extent, FillPattern, Memory, PitchedPtr, StreamRef, Vkgdr};

use crate::{MAPPED, NONE, here, stream_of};

const SIZE: usize = 1 << 14;
/// The driver's copy functions.
const COPIES: [&str; 5] =
    ["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemcpy3DAsync", "cuMemcpyPeerAsync"];
const FILLS: [&str; 3] = ["cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"];

/// Copies and waits.
fn copy(stream: StreamRef, to: PitchedPtr, from: PitchedPtr, extent: Extent) -> vkgdr::Result<()> {
    // SAFETY: the tests pass valid ranges, which are otherwise unused.
    unsafe { stream.copy(to, from, extent) }?;
    stream.synchronize()
}

fn on_device(memory: &Memory, offset: usize) -> CopyPtr {
    CopyPtr::Device(memory.device_ptr() + offset as u64)
}

fn on_host(bytes: &mut [u8], offset: usize) -> CopyPtr {
    CopyPtr::Host(bytes[offset..].as_mut_ptr())
}

/// The byte offsets of a copy's rows and slices.
fn model(to: &mut [u8], to_side: (usize, usize, usize), from: &[u8], from_side: (usize, usize, usize), e: Extent) {
    for (slice, row) in (0..e.depth).flat_map(|slice| (0..e.height).map(move |row| (slice, row))) {
        let start = |(offset, rows, slices): (usize, usize, usize)| offset + row * rows + slice * slices;
        let (to_start, from_start) = (start(to_side), start(from_side));
        to[to_start..to_start + e.width].copy_from_slice(&from[from_start..from_start + e.width]);
    }
}

/// An offset, a row pitch and a slice pitch that an extent fits into within [`SIZE`] bytes.
fn random_side(random: &mut Random, e: Extent) -> (usize, usize, usize) {
    let row = e.width + random.below(40);
    let slice = row * (e.height + random.below(3));
    let span = (e.depth - 1) * slice + (e.height - 1) * row + e.width;
    (random.below(SIZE - span), row, slice)
}

#[test]
fn rows_and_rectangles_are_copied_as_a_loop_would_whatever_their_pitches() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let (one, two) = (Memory::allocate(&gpu, SIZE, MAPPED)?, Memory::allocate(&gpu, SIZE, MAPPED)?);
    let stream = stream_of(&one, &stream)?;
    let mut random = Random::new(11);
    for round in 0..40 {
        // One row is copied by other functions.
        let (height, depth) = if round % 4 == 0 { (1, 1) } else { (1 + random.below(9), 1 + random.below(6)) };
        let extent = Extent { width: 1 + random.below(60), height, depth };
        let sides = [(); 2].map(|()| random_side(&mut random, extent));
        let [to, from] = sides.map(|(offset, row_pitch, slice_pitch)| {
            move |ptr: &mut dyn FnMut(usize) -> CopyPtr| PitchedPtr { ptr: ptr(offset), row_pitch, slice_pitch }
        });
        let (mut source, before) = (random.bytes(SIZE), random.bytes(SIZE));
        let mut expected = before.clone();
        model(&mut expected, sides[0], &source, sides[1], extent);

        host_write(&two, 0, &before)?;
        copy(stream, to(&mut |at| on_device(&two, at)), from(&mut |at| on_host(&mut source, at)), extent)?;
        assert!(device_read(two.device_ptr(), SIZE) == expected, "round {round}, host to device: {extent:?} {sides:?}");

        host_write(&one, 0, &source)?;
        host_write(&two, 0, &before)?;
        copy(stream, to(&mut |at| on_device(&two, at)), from(&mut |at| on_device(&one, at)), extent)?;
        assert!(device_read(two.device_ptr(), SIZE) == expected, "round {round}, on the device: {extent:?} {sides:?}");

        let mut seen = before;
        copy(stream, to(&mut |at| on_host(&mut seen, at)), from(&mut |at| on_device(&one, at)), extent)?;
        assert!(seen == expected, "round {round}, device to host: {extent:?} {sides:?}");
    }
    Ok(())
}

#[test]
fn an_extent_of_zero_copies_and_fills_nothing() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let stream = here(null_mut())?;
    let calls = COPIES.map(Calls::of).into_iter().chain(FILLS.map(Calls::of));
    // Invalid addresses, at which a driver call would fail.
    let (device, host) = (CopyPtr::Device(1), CopyPtr::Host(null_mut()));
    for (width, height, depth) in [(0, 1, 1), (0, 2, 2), (2, 0, 2), (2, 2, 0)] {
        let extent = Extent { width, height, depth };
        for (to, from) in [(device, host), (host, device), (device, device)] {
            copy(stream, support::linear(to), support::linear(from), extent)?;
        }
    }
    // SAFETY: nothing is copied.
    unsafe { stream.copy_between_contexts(1, 1, memory.context(), 0) }?;
    for value in [FillPattern::One(0), FillPattern::Two(0), FillPattern::Four(0)] {
        // SAFETY: nothing is filled.
        unsafe { stream.fill(1, value, 0) }?;
    }
    calls.into_iter().for_each(|calls| calls.assert(0, "nothing to do"));
    Ok(())
}

#[test]
fn copies_from_host_to_host_and_pitches_that_do_not_fit_are_refused() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (mut from, mut to) = ([1_u8; 16], [2_u8; 16]);
    for extent in [support::row(16), Extent { width: 2, height: 2, depth: 2 }] {
        let side = |bytes: &mut [u8]| PitchedPtr { ptr: on_host(bytes, 0), row_pitch: 4, slice_pitch: 8 };
        let error = refused(copy(here(null_mut())?, side(&mut to), side(&mut from), extent));
        assert!(matches!(error, Error::HostToHost), "{error}");
        assert_says(&error, &["needs device memory", "with the CPU"]);
    }
    assert_eq!(to, [2; 16]);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let side = |slice_pitch| PitchedPtr { ptr: on_device(&memory, 0), row_pitch: 10, slice_pitch };
    let extent = Extent { width: 8, height: 2, depth: 2 };
    for (to, from) in [(side(25), side(30)), (side(30), side(25))] {
        let error = refused(copy(here(null_mut())?, to, from, extent));
        assert!(matches!(error, Error::Misaligned { value: 25, unit: 10, .. }), "{error}");
    }
    Ok(())
}

#[test]
fn fills_repeat_values_of_every_width() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let stream = Stream::create();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let stream = stream_of(&memory, &stream)?;
    memory.fill(.., 0x11_u8)?;
    memory.flush(..)?;
    let at = |offset: u64| memory.device_ptr() + offset;
    let values = [FillPattern::One(0x22), FillPattern::Two(0x3344), FillPattern::Four(0x5566_7788)];
    for (value, (offset, count)) in values.into_iter().zip([(1, 5), (8, 3), (16, 2)]) {
        // SAFETY: within the memory, which is otherwise unused.
        unsafe { stream.fill(at(offset), value, count) }?;
    }
    stream.synchronize()?;
    let expected = [
        &[0x11, 0x22, 0x22, 0x22, 0x22, 0x22, 0x11, 0x11][..],
        &[0x44, 0x33, 0x44, 0x33, 0x44, 0x33, 0x11, 0x11],
        &[0x88, 0x77, 0x66, 0x55, 0x88, 0x77, 0x66, 0x55, 0x11],
    ];
    assert_eq!(host_read(&memory, 0, 25)?, expected.concat());
    Ok(())
}

#[test]
fn a_copy_between_contexts_goes_from_the_other_one() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let from_context = Context::create(0);
    let from = Memory::allocate(&gpu, SIZE, MAPPED)?;
    host_write(&from, 0, &pattern(SIZE, 4))?;
    let to_context = Context::create(0);
    let to = Memory::allocate(&gpu, SIZE, MAPPED)?;
    host_write(&to, 0, &[9; SIZE])?;
    assert_eq!((from.context(), to.context()), (from_context.raw(), to_context.raw()));
    // SAFETY: the default stream lives as long as its context.
    let stream = unsafe { to.stream(null_mut()) }?;
    let (to_address, from_address) = (to.device_ptr() + 1, from.device_ptr() + 2);
    // SAFETY: both memories have the bytes, and no other code uses them.
    no_context(|| unsafe { stream.copy_between_contexts(to_address, from_address, from.context(), 100) })?;
    stream.synchronize()?;
    let expected = [&[9], &pattern(SIZE, 4)[2..102], &[9; SIZE - 101]].concat();
    assert!(host_read(&to, 0, SIZE)? == expected);
    drop((to, from));
    Ok(())
}
