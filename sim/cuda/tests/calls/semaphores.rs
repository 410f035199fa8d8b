//! Semaphores of Vulkan's, imported.

use std::fs::File;
use std::os::fd::{AsRawFd as _, IntoRawFd as _, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

use support::codes::{ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, NOT_SUPPORTED};
use support::cuda::{Context, PrimaryContext, Stream, no_context};
use support::{simulated, skip, vklayer};

use crate::vulkan::{Kind, Vulkan};
use crate::{NOWHERE, allocate, call, fill, free, given, good, put, read};

const OPAQUE_FD: u32 = 1;
const TIMELINE_FD: u32 = 9;
const MOMENT: Duration = Duration::from_millis(20);

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`.
#[repr(C)]
struct Handle {
    kind: u32,
    padding: u32,
    /// The union begins with the descriptor.
    union: [u64; 2],
    flags: u32,
    reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS`, which has the same shape as `CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS` for a fence.
#[repr(C)]
struct Fence {
    value: u64,
    others: [u64; 8],
    flags: u32,
    reserved: [u32; 16],
}

impl Fence {
    fn new(value: u64) -> Fence {
        Fence { value, others: [0; 8], flags: 0, reserved: [0; 16] }
    }
}

fn import_with(kind: u32, fd: RawFd, flags: u32) -> Result<usize, i32> {
    let union = [u64::from(fd.cast_unsigned()), 0];
    let handle = Handle { kind, padding: 0, union, flags, reserved: [0; 16] };
    let mut semaphore = 0;
    match call!(cuImportExternalSemaphore(&raw mut semaphore => *mut usize, &raw const handle => *const Handle)) {
        0 => Ok(semaphore),
        code => Err(code),
    }
}

#[track_caller]
fn import(kind: u32, fd: OwnedFd) -> usize {
    // CUDA takes the descriptor.
    import_with(kind, fd.into_raw_fd(), 0).unwrap_or_else(|code| panic!("{code}"))
}

fn destroy(semaphore: usize) {
    good(call!(cuDestroyExternalSemaphore(semaphore => usize)));
}

fn signal(semaphore: usize, value: u64, stream: usize) -> i32 {
    let fence = Fence::new(value);
    call!(cuSignalExternalSemaphoresAsync(
        &raw const semaphore => *const usize, &raw const fence => *const Fence, 1 => u32, stream => usize
    ))
}

fn wait(semaphore: usize, value: u64, stream: usize) -> i32 {
    let fence = Fence::new(value);
    call!(cuWaitExternalSemaphoresAsync(
        &raw const semaphore => *const usize, &raw const fence => *const Fence, 1 => u32, stream => usize
    ))
}

fn query(stream: usize) -> i32 {
    call!(cuStreamQuery(stream => usize))
}

fn synchronize(stream: usize) {
    good(call!(cuStreamSynchronize(stream => usize)));
}

/// Whether the driver and Vulkan share semaphores here.
macro_rules! vulkan {
    () => {
        match Vulkan::open() {
            Some(vulkan) => vulkan,
            None => skip!("Vulkan exports no semaphores here"),
        }
    };
}

// Here, since it uses the macro.
mod graphs;

#[test]
fn a_semaphore_for_export_works_where_the_extension_is_not_enabled() {
    let Some(vulkan) = Vulkan::open_plain() else { skip!("Vulkan exports no semaphores here") };
    let [binary, timeline] = [Kind::Binary, Kind::Timeline(3)].map(|kind| vulkan.semaphore(kind, true));
    vulkan.submit_signal(binary, 0);
    vulkan.pass(binary);
    vulkan.signal(timeline, 4);
    vulkan.wait(timeline, 4);
    for semaphore in [binary, timeline] {
        vulkan.destroy(semaphore);
    }
}

#[test]
fn a_timeline_orders_both_sides() {
    let vulkan = vulkan!();
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let (timeline, fd) = vulkan.exported(Kind::Timeline(3));
    let semaphore = import(TIMELINE_FD, fd);
    let memory = allocate(4);
    fill(memory, 1, 4);
    // A value that it has already.
    good(wait(semaphore, 3, raw));
    synchronize(raw);

    // CUDA waits for Vulkan's CPU.
    good(wait(semaphore, 4, raw));
    good(call!(cuMemsetD8Async(memory => u64, 2 => u8, 4 => usize, raw => usize)));
    thread::sleep(MOMENT);
    assert_eq!((query(raw), read(memory, 4)), (NOT_READY, vec![1; 4]));
    vulkan.signal(timeline, 4);
    synchronize(raw);
    assert_eq!(read(memory, 4), [2; 4]);

    // Vulkan's CPU waits for CUDA.
    assert!(!vulkan.reaches(timeline, 5, MOMENT));
    good(signal(semaphore, 5, raw));
    vulkan.wait(timeline, 5);
    // Work that a stream has finished is visible at once.
    good(signal(semaphore, 7, raw));
    synchronize(raw);
    assert_eq!(vulkan.counter(timeline), 7);
    assert!(vulkan.reaches(timeline, 7, Duration::ZERO));

    // Vulkan's queue waits for CUDA, and CUDA for it, many times.
    for round in 0..100 {
        let value = 10 + 2 * round;
        vulkan.submit((timeline, value), Some((timeline, value + 1)), ash::vk::Fence::null());
        good(signal(semaphore, value, raw));
        good(wait(semaphore, value + 1, raw));
    }
    synchronize(raw);
    assert_eq!(vulkan.counter(timeline), 209);
    vulkan.submit_signal(timeline, u64::MAX - 1);
    good(wait(semaphore, u64::MAX - 1, raw));
    synchronize(raw);
    destroy(semaphore);
    vulkan.destroy(timeline);
    free(memory);
}

/// The mirror between the two sides follows with threads of its own, which may be late.
#[test]
fn signals_of_both_sides_in_the_order_of_the_cpu_keep_the_device() {
    let vulkan = vulkan!();
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    let semaphore = import(TIMELINE_FD, fd);
    let by_cuda = |value| {
        good(signal(semaphore, value, raw));
        synchronize(raw);
    };
    for round in 0..5000 {
        by_cuda(4 * round + 1);
        // Meets the mirror at different moments.
        (0..(round * 37) % 97 * 50).for_each(|_| std::hint::spin_loop());
        vulkan.signal(timeline, 4 * round + 2);
        by_cuda(4 * round + 3);
        vulkan.submit_signal(timeline, 4 * round + 4);
        vulkan.wait(timeline, 4 * round + 4);
    }
    assert_eq!(vulkan.counter(timeline), 20_000);
    destroy(semaphore);
    vulkan.destroy(timeline);
}

#[test]
fn a_binary_semaphore_passes_one_wait_for_each_signal() {
    let vulkan = vulkan!();
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let (to_cuda, to_cuda_fd) = vulkan.exported(Kind::Binary);
    let (to_vulkan, to_vulkan_fd) = vulkan.exported(Kind::Binary);
    let (from_vulkan, from_cuda) = (import(OPAQUE_FD, to_cuda_fd), import(OPAQUE_FD, to_vulkan_fd));
    for _ in 0..50 {
        vulkan.submit_signal(to_cuda, 0);
        good(wait(from_vulkan, 0, raw));
        good(signal(from_cuda, 0, raw));
        vulkan.pass(to_vulkan);
    }
    synchronize(raw);
    // Within Vulkan.
    vulkan.submit_signal(to_vulkan, 0);
    vulkan.pass(to_vulkan);
    destroy(from_vulkan);
    destroy(from_cuda);
    vulkan.destroy(to_cuda);
    vulkan.destroy(to_vulkan);
}

#[test]
fn an_imported_semaphore_is_the_exported_one() {
    let (vulkan, other) = (vulkan!(), vulkan!());
    let _context = PrimaryContext::retain_and_push(0);
    let (timeline, fd) = vulkan.exported(Kind::Timeline(5));
    // With a later value of its own, which the import replaces. The validation layer takes it for the value afterwards.
    let validated = vklayer().is_some_and(|layer| layer.validated_instances() > 0);
    let imported = other.semaphore(Kind::Timeline(if validated { 1 } else { 90 }), true);
    assert_eq!(other.import(imported, fd.into_raw_fd()), Ok(()));
    assert_eq!(other.counter(imported), 5);
    other.signal(imported, 6);
    assert_eq!(vulkan.counter(timeline), 6);
    other.submit_signal(imported, 7);
    vulkan.wait(timeline, 7);
    let semaphore = import(TIMELINE_FD, other.export(imported));
    good(signal(semaphore, 8, 0));
    vulkan.wait(timeline, 8);
    other.wait(imported, 8);
    // It outlives the exporter.
    vulkan.destroy(timeline);
    good(signal(semaphore, 9, 0));
    other.wait(imported, 9);

    // A binary one, into a semaphore that cannot be exported.
    let (binary, fd) = vulkan.exported(Kind::Binary);
    let plain = other.semaphore(Kind::Binary, false);
    assert_eq!(other.import(plain, fd.into_raw_fd()), Ok(()));
    for _ in 0..10 {
        vulkan.submit_signal(binary, 0);
        other.pass(plain);
    }
    destroy(semaphore);
    other.destroy(imported);
    other.destroy(plain);
    vulkan.destroy(binary);
}

#[test]
fn bad_calls_are_refused_and_leave_the_descriptor_alone() {
    let vulkan = vulkan!();
    let sim = simulated!("a real driver's own codes are not known");
    let _context = PrimaryContext::retain_and_push(0);
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    let raw = fd.as_raw_fd();
    let before = sim.live_objects_of("semaphore");
    assert_eq!(import_with(0, raw, 0), Err(INVALID_VALUE));
    assert_eq!(import_with(11, raw, 0), Err(INVALID_VALUE));
    for other in [2, 3, 4, 5, 6, 7, 8, 10] {
        assert_eq!(import_with(other, raw, 0), Err(NOT_SUPPORTED), "type {other}");
    }
    assert_eq!(import_with(TIMELINE_FD, raw, 1), Err(INVALID_VALUE), "flags");
    assert_eq!(import_with(OPAQUE_FD, raw, 0), Err(INVALID_HANDLE), "a timeline is not binary");
    assert_eq!(import_with(TIMELINE_FD, -1, 0), Err(INVALID_HANDLE));
    let file = File::open("/proc/self/exe").unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(import_with(TIMELINE_FD, file.as_raw_fd(), 0), Err(INVALID_HANDLE), "no semaphore");
    assert_eq!(no_context(|| import_with(TIMELINE_FD, raw, 0)), Err(INVALID_CONTEXT));
    assert_eq!(call!(cuImportExternalSemaphore(0 => usize, 0 => usize)), INVALID_VALUE);
    assert_eq!(sim.live_objects_of("semaphore"), before);

    // Still open.
    let semaphore = import(TIMELINE_FD, fd);
    assert_eq!(sim.live_objects_of("semaphore"), before + 1);
    assert_eq!(signal(semaphore + 1, 1, 0), INVALID_HANDLE);
    assert_eq!(wait(0, 1, 0), INVALID_HANDLE);
    assert_eq!(signal(semaphore, 1, 12345), INVALID_HANDLE, "no stream");
    let flagged = Fence { flags: 1, ..Fence::new(1) };
    assert_eq!(
        call!(cuSignalExternalSemaphoresAsync(
            &raw const semaphore => *const usize, &raw const flagged => *const Fence, 1 => u32, 0 => usize
        )),
        INVALID_VALUE
    );
    assert_eq!(call!(cuWaitExternalSemaphoresAsync(0 => usize, 0 => usize, 1 => u32, 0 => usize)), INVALID_VALUE);
    // One bad semaphore of two: nothing is queued.
    let (semaphores, fences) = ([semaphore, 77], [Fence::new(1), Fence::new(1)]);
    assert_eq!(
        call!(cuSignalExternalSemaphoresAsync(
            semaphores.as_ptr() => *const usize, fences.as_ptr() => *const Fence, 2 => u32, 0 => usize
        )),
        INVALID_HANDLE
    );
    good(call!(cuCtxSynchronize()));
    assert_eq!(vulkan.counter(timeline), 0);
    destroy(semaphore);
    assert_eq!(call!(cuDestroyExternalSemaphore(semaphore => usize)), INVALID_HANDLE);
    assert_eq!(signal(semaphore, 1, 0), INVALID_HANDLE);
    assert_eq!(sim.live_objects_of("semaphore"), before);
    // Vulkan's imports, likewise.
    let (binary, fd) = (vulkan.semaphore(Kind::Binary, false), vulkan.export(timeline));
    let refused = Err(ash::vk::Result::ERROR_INVALID_EXTERNAL_HANDLE);
    assert_eq!(vulkan.import(binary, fd.as_raw_fd()), refused, "another type");
    assert_eq!(vulkan.import(timeline, file.as_raw_fd()), refused);
    vulkan.destroy(binary);
    vulkan.destroy(timeline);
}

#[test]
fn the_end_of_a_context_ends_its_waits() {
    let vulkan = vulkan!();
    simulated!("a real driver may wait for ever");
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    let context = Context::create(0);
    let semaphore = import(TIMELINE_FD, fd);
    good(wait(semaphore, 1, 0));
    context.destroy();
    let _context = PrimaryContext::retain_and_push(0);
    assert_eq!(call!(cuDestroyExternalSemaphore(semaphore => usize)), INVALID_HANDLE, "its semaphores go with it");
    vulkan.destroy(timeline);
}

#[test]
fn a_failed_context_ends_its_waits() {
    let vulkan = vulkan!();
    simulated!("a fault leaves a real context unusable");
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    let context = Context::create(0);
    let semaphore = import(TIMELINE_FD, fd);
    // Non-blocking, so that the kernel does not wait for it.
    let stream: usize = given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32)));
    good(wait(semaphore, 1, stream));
    assert_eq!(put(NOWHERE), ILLEGAL_ADDRESS);
    assert_eq!(call!(cuStreamSynchronize(stream => usize)), ILLEGAL_ADDRESS);
    context.destroy();
    vulkan.destroy(timeline);
}

#[test]
fn the_faults_layer_counts_semaphores_and_fails_their_export() {
    let vulkan = vulkan!();
    let Some(layer) = vklayer() else { skip!("VKGDR_TEST_LAYERS is not set") };
    let before = layer.live_objects_of("semaphore");
    let (timeline, fd) = vulkan.exported(Kind::Timeline(0));
    assert_eq!(layer.live_objects_of("semaphore"), before + 1);
    layer.fail("vkGetSemaphoreFdKHR", 1, -5);
    assert_eq!(vulkan.try_export(timeline).map(drop), Err(ash::vk::Result::ERROR_MEMORY_MAP_FAILED));
    drop(fd);
    vulkan.destroy(timeline);
    assert_eq!(layer.live_objects_of("semaphore"), before);
}
