//! Memory pools, and allocations in a stream's order.

use std::thread;
use std::time::Duration;

use support::codes::{INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use support::cuda::{Context, PrimaryContext, Stream, no_context};
use support::{child, simulated};

use crate::{call, given, good, read};

const MIB: usize = 1 << 20;
// CUDA_ERROR_INVALID_DEVICE
const INVALID_DEVICE: i32 = 101;
// CUmemPool_attribute.
const THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;
// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
const DEVICE_ORDINAL: u32 = 9;

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    allocation_type: u32,
    handle_types: u32,
    location: [i32; 2],
    security: usize,
    most: usize,
    reserved: [u64; 7],
}

/// Pinned memory of the first device, which cannot be shared.
const PLAIN: Properties =
    Properties { allocation_type: 1, handle_types: 0, location: [1, 0], security: 0, most: 0, reserved: [0; 7] };

fn create(properties: Properties) -> Result<usize, i32> {
    let mut pool = 0;
    match call!(cuMemPoolCreate(&raw mut pool => *mut usize, &raw const properties => *const Properties)) {
        0 => Ok(pool),
        code => Err(code),
    }
}

fn created(properties: Properties) -> usize {
    create(properties).unwrap_or_else(|code| panic!("cuMemPoolCreate: {code}"))
}

fn pool() -> usize {
    created(PLAIN)
}

fn destroy(pool: usize) {
    good(call!(cuMemPoolDestroy(pool => usize)));
}

fn get(pool: usize, attribute: u32) -> u64 {
    given(|out| call!(cuMemPoolGetAttribute(pool => usize, attribute => u32, out => *mut u64)))
}

fn set(pool: usize, attribute: u32, value: u64) -> i32 {
    call!(cuMemPoolSetAttribute(pool => usize, attribute => u32, &raw const value => *const u64))
}

fn allocate(pool: usize, len: usize, stream: usize) -> Result<u64, i32> {
    let mut address = 0;
    let code = call!(
        cuMemAllocFromPoolAsync(&raw mut address => *mut u64, len => usize, pool => usize, stream => usize)
    );
    if code == 0 { Ok(address) } else { Err(code) }
}

fn lent(pool: usize, len: usize, stream: usize) -> u64 {
    allocate(pool, len, stream).unwrap_or_else(|code| panic!("cuMemAllocFromPoolAsync: {code}"))
}

fn free(address: u64, stream: usize) -> i32 {
    call!(cuMemFreeAsync(address => u64, stream => usize))
}

fn synchronize(stream: usize) {
    good(call!(cuStreamSynchronize(stream => usize)));
}

#[test]
fn memory_of_a_pool_is_used_in_the_order_of_its_stream() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let gate = stream.hold();
    let address: u64 = given(|out| call!(cuMemAllocAsync(out => *mut u64, 100 => usize, raw => usize)));
    let copy = crate::allocate(100);
    good(call!(cuMemsetD8Async(address => u64, 7 => u8, 100 => usize, raw => usize)));
    good(call!(cuMemcpyDtoDAsync_v2(copy => u64, address => u64, 100 => usize, raw => usize)));
    good(free(address, raw));
    // Neither the work before the free is lost, nor does other work see the memory.
    assert_eq!(call!(cuMemsetD8Async(address => u64, 9 => u8, 100 => usize, raw => usize)), INVALID_VALUE);
    assert_eq!(free(address, raw), INVALID_VALUE, "a second free");
    assert_eq!(call!(cuMemFree_v2(address => u64)), INVALID_VALUE, "a second free");
    drop(gate);
    synchronize(raw);
    assert_eq!(read(copy, 100), [7; 100]);
    crate::free(copy);
}

#[test]
fn a_pool_keeps_unused_memory_up_to_its_threshold() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let pool = pool();
    good(set(pool, THRESHOLD, u64::MAX));
    let first = lent(pool, 3 * MIB, raw);
    let used = get(pool, USED);
    assert!(used >= 3 << 20 && get(pool, RESERVED) >= used, "{used}");
    good(free(first, raw));
    synchronize(raw);
    assert_eq!(get(pool, USED), 0);
    assert!(get(pool, RESERVED) >= used, "within the threshold");
    assert_eq!(get(pool, USED_HIGH), used);
    // The next allocation of that size is the same memory.
    assert_eq!(allocate(pool, 3 * MIB, raw), Ok(first));
    good(free(first, raw));
    synchronize(raw);
    good(call!(cuMemPoolTrimTo(pool => usize, 0 => usize)));
    assert_eq!(get(pool, RESERVED), 0);
    assert!(get(pool, RESERVED_HIGH) >= used);
    good(set(pool, RESERVED_HIGH, 0));
    good(set(pool, USED_HIGH, 0));
    assert_eq!((get(pool, RESERVED_HIGH), get(pool, USED_HIGH)), (0, 0));
    // Without a threshold, waiting for the event is enough to release it.
    good(set(pool, THRESHOLD, 0));
    good(free(lent(pool, MIB, raw), raw));
    synchronize(raw);
    assert_eq!(get(pool, RESERVED), 0);
    destroy(pool);
}

#[test]
fn memory_is_not_lent_again_before_its_stream_has_freed_it() {
    let _context = PrimaryContext::retain_and_push(0);
    let (busy, other) = (Stream::create(), Stream::create());
    let [busy_raw, other_raw] = [&busy, &other].map(|stream| stream.raw().expose_provenance());
    let pool = pool();
    good(set(pool, THRESHOLD, u64::MAX));
    let first = lent(pool, MIB, busy_raw);
    let gate = busy.hold();
    good(free(first, busy_raw));
    let second = lent(pool, MIB, other_raw);
    assert_ne!(first, second);
    assert!(get(pool, USED) >= 2 << 20, "the first is still used");
    drop(gate);
    synchronize(busy_raw);
    assert_eq!(allocate(pool, MIB, other_raw), Ok(first));
    good(free(first, other_raw));
    // cuMemFree works, too, and takes all work to be done.
    crate::free(second);
    destroy(pool);
}

#[test]
fn a_full_pool_waits_for_its_frees() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let pool = created(Properties { most: 2 * MIB, ..PLAIN });
    let first = lent(pool, 2 * MIB, raw);
    assert_eq!(allocate(pool, 1, raw), Err(OUT_OF_MEMORY));
    let gate = stream.hold();
    good(free(first, raw));
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(5));
            drop(gate);
        });
        let second = lent(pool, MIB, raw);
        good(free(second, raw));
    });
    assert_eq!(allocate(pool, 3 * MIB, raw), Err(OUT_OF_MEMORY));
    assert_eq!(allocate(pool, usize::MAX, raw), Err(OUT_OF_MEMORY));
    destroy(pool);
}

#[test]
fn all_threads_wait_for_the_free_that_has_room_for_them() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let pool = created(Properties { most: 2 * MIB, ..PLAIN });
    let first = lent(pool, 2 * MIB, raw);
    let gate = stream.hold();
    good(free(first, raw));
    let answers = thread::scope(|scope| {
        let allocations = [(); 3].map(|()| {
            scope.spawn(move || {
                let _context = PrimaryContext::retain_and_push(0);
                let stream = Stream::create();
                let raw = stream.raw().expose_provenance();
                allocate(pool, MIB / 2, raw).map(|address| free(address, raw))
            })
        });
        thread::sleep(Duration::from_millis(20));
        drop(gate);
        allocations.map(|allocation| allocation.join().unwrap_or_else(|_| panic!("a thread panicked")))
    });
    assert_eq!(answers, [Ok(0); 3]);
    destroy(pool);
}

#[test]
fn a_device_has_a_default_and_a_current_pool() {
    let _context = PrimaryContext::retain_and_push(0);
    let default: usize = given(|out| call!(cuDeviceGetDefaultMemPool(out => *mut usize, 0 => i32)));
    let current = || -> usize { given(|out| call!(cuDeviceGetMemPool(out => *mut usize, 0 => i32))) };
    let location = [1_i32, 0];
    let at = |out| call!(cuMemGetDefaultMemPool(out => *mut usize, location.as_ptr() => *const i32, 1 => u32));
    assert_eq!(given::<usize>(at), default);
    assert_eq!(current(), default);
    let pool = pool();
    good(call!(cuDeviceSetMemPool(0 => i32, pool => usize)));
    assert_eq!(current(), pool);
    let address: u64 = given(|out| call!(cuMemAllocAsync(out => *mut u64, MIB => usize, 0 => usize)));
    assert!(get(pool, USED) >= 1 << 20);
    // The pool is an attribute of the memory, which belongs to no context.
    let attribute = |number: u32| -> usize {
        given(|out| call!(cuPointerGetAttribute(out => *mut usize, number => u32, address => u64)))
    };
    assert_eq!((attribute(17), attribute(1)), (pool, 0));
    // Without it, the default is the current one again. Memory lives on.
    destroy(pool);
    assert_eq!(current(), default);
    good(call!(cuMemsetD8_v2(address => u64, 1 => u8, MIB => usize)));
    good(free(address, 0));
    let set = |device: i32, pool: usize| call!(cuDeviceSetMemPool(device => i32, pool => usize));
    assert_eq!(set(0, pool), INVALID_VALUE);
    assert_eq!(set(99, default), INVALID_DEVICE);
    let mut unused = 0_usize;
    assert_eq!(call!(cuDeviceGetMemPool(&raw mut unused => *mut usize, 99 => i32)), INVALID_DEVICE);
    assert_eq!(call!(cuMemPoolDestroy(default => usize)), INVALID_VALUE);
}

#[test]
fn bad_calls_of_pools_are_refused() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let pool = pool();
    for (properties, code) in [
        (Properties { allocation_type: 0, ..PLAIN }, INVALID_VALUE),
        (Properties { location: [0, 0], ..PLAIN }, INVALID_VALUE),
        (Properties { location: [1, 99], ..PLAIN }, INVALID_VALUE),
        (Properties { location: [9, 0], ..PLAIN }, INVALID_VALUE),
        (Properties { handle_types: 1, ..PLAIN }, NOT_SUPPORTED),
        (Properties { location: [2, 0], ..PLAIN }, NOT_SUPPORTED),
    ] {
        assert_eq!(create(properties), Err(code));
    }
    assert_eq!(call!(cuMemPoolCreate(0 => usize, &PLAIN => *const Properties)), INVALID_VALUE);
    let mut out = 0_u64;
    assert_eq!(call!(cuMemPoolCreate(&raw mut out => *mut u64, 0 => usize)), INVALID_VALUE);
    assert_eq!(allocate(pool, 0, raw), Ok(0), "no memory");
    assert_eq!(allocate(1, MIB, raw), Err(INVALID_VALUE));
    assert_eq!(call!(cuMemAllocAsync(0 => usize, MIB => usize, raw => usize)), INVALID_VALUE);
    assert_eq!(no_context(|| allocate(pool, MIB, 0)), Err(INVALID_CONTEXT));
    let address = lent(pool, MIB, raw);
    assert_eq!(free(address + 512, raw), INVALID_VALUE, "not its start");
    good(free(0, raw));
    let plain = crate::allocate(MIB);
    good(free(plain, raw));
    assert_eq!(free(plain, raw), INVALID_VALUE, "freed in the stream's order, though not of a pool");
    assert_eq!(call!(cuMemFree_v2(plain => u64)), INVALID_VALUE);
    good(free(address, raw));
    for attribute in [0, RESERVED, USED, 15, 99] {
        assert_eq!(set(pool, attribute, 0), INVALID_VALUE, "{attribute}");
    }
    assert_eq!(set(pool, USED_HIGH, 1), INVALID_VALUE);
    for attribute in [0, 16, 99] {
        let code = call!(cuMemPoolGetAttribute(pool => usize, attribute => u32, &raw mut out => *mut u64));
        assert_eq!(code, INVALID_VALUE, "{attribute}");
    }
    assert_eq!(call!(cuMemPoolGetAttribute(pool => usize, USED => u32, 0 => usize)), INVALID_VALUE);
    assert_eq!(call!(cuMemPoolSetAttribute(pool => usize, THRESHOLD => u32, 0 => usize)), INVALID_VALUE);
    for reuse in 1..=3 {
        let before = get(pool, reuse);
        good(set(pool, reuse, 0));
        assert_eq!((before, get(pool, reuse)), (1, 0));
    }
    destroy(pool);
    for code in [
        call!(cuMemPoolDestroy(pool => usize)),
        call!(cuMemPoolTrimTo(pool => usize, 0 => usize)),
        set(pool, THRESHOLD, 0),
    ] {
        assert_eq!(code, INVALID_VALUE, "a destroyed pool");
    }
    assert_eq!(allocate(pool, 1, raw), Err(INVALID_VALUE), "a destroyed pool");
}

#[test]
fn only_its_device_has_access_to_a_pool() {
    let _context = PrimaryContext::retain_and_push(0);
    let pool = pool();
    // A location and flags: CUmemAccessDesc.
    let set = |access: [i32; 3]| call!(cuMemPoolSetAccess(pool => usize, access.as_ptr() => *const i32, 1 => usize));
    good(set([1, 0, 3]));
    assert_eq!(set([1, 0, 0]), INVALID_VALUE, "its own device");
    assert_eq!(set([1, 0, 2]), INVALID_VALUE, "no such flags");
    assert_eq!(set([2, 0, 3]), INVALID_VALUE, "no device");
    assert_eq!(set([1, 99, 3]), INVALID_DEVICE);
    assert_eq!(call!(cuMemPoolSetAccess(pool => usize, 0 => usize, 1 => usize)), INVALID_VALUE);
    let location = [1_i32, 0];
    let flags: u32 =
        given(|out| call!(cuMemPoolGetAccess(out => *mut u32, pool => usize, location.as_ptr() => *const i32)));
    assert_eq!(flags, 3);
    destroy(pool);
}

/// It ends with the context of the stream that it was allocated on.
#[test]
fn memory_of_another_devices_pool_has_a_context() -> support::Result {
    let simcuda = simulated!("the devices are simulated");
    if child::role().is_none() {
        let mut command = child::command("two devices")?;
        command.env("SIMCUDA_DEVICES", "2").env_remove("CUDA_VISIBLE_DEVICES");
        assert_eq!(child::run(command)?, ["done"]);
        return Ok(());
    }
    let context = Context::create(0);
    let pool = created(Properties { location: [1, 1], ..PLAIN });
    let address = lent(pool, MIB, 0);
    let device: i32 = given(|out| call!(cuPointerGetAttribute(out => *mut i32, DEVICE_ORDINAL => u32, address => u64)));
    assert_eq!((device, simcuda.live_objects_of("memory")), (1, 1));
    context.destroy();
    assert_eq!((simcuda.live_objects_of("memory"), get(pool, USED)), (0, 0));
    destroy(pool);
    child::say("done");
    Ok(())
}

#[test]
fn threads_share_a_pool() {
    let _context = PrimaryContext::retain_and_push(0);
    let pool = pool();
    thread::scope(|scope| {
        for byte in 1..=8_u8 {
            scope.spawn(move || {
                let _context = PrimaryContext::retain_and_push(0);
                let stream = Stream::create();
                let raw = stream.raw().expose_provenance();
                for round in 0..100 {
                    let len = (round % 7 + 1) * 1000;
                    let address = lent(pool, len, raw);
                    good(call!(cuMemsetD8Async(address => u64, byte => u8, len => usize, raw => usize)));
                    synchronize(raw);
                    assert_eq!(read(address, len), vec![byte; len]);
                    good(free(address, raw));
                }
                synchronize(raw);
            });
        }
    });
    assert_eq!(get(pool, USED), 0);
    destroy(pool);
}
