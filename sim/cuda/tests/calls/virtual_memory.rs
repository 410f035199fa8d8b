//! Virtual memory management: allocations, addresses, mappings, access, descriptors.

mod attributes;
mod descriptors;
mod faults;
mod model;

use support::codes::{INVALID_VALUE, NOT_SUPPORTED};
use support::cuda::{PrimaryContext, Stream, memcpy_dtoh, no_context};
use support::{Result, simulated};

use crate::dma_buf::under;
use crate::{call, given, good, put};

const GRAIN: usize = 2 << 20;
const INVALID_DEVICE: i32 = 101;
const ILLEGAL_ADDRESS: i32 = 700;
const NONE: u32 = 0;
const READ_WRITE: u32 = 3;
const POSIX_FD: u32 = 1;

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
struct Properties {
    kind: u32,
    handle_types: u32,
    place: u32,
    device: i32,
    metadata: usize,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

const PLAIN: Properties = Properties {
    kind: 1,
    handle_types: 0,
    place: 1,
    device: 0,
    metadata: 0,
    compression: 0,
    rdma: 0,
    usage: 0,
    reserved: [0; 4],
};
const SHARED: Properties = Properties { handle_types: POSIX_FD, ..PLAIN };

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Access {
    place: u32,
    device: i32,
    flags: u32,
}

fn try_create(size: usize, properties: Properties) -> std::result::Result<usize, i32> {
    let mut handle = 0;
    let code = call!(cuMemCreate(
        &raw mut handle => *mut usize, size => usize, &raw const properties => *const Properties, 0 => u64
    ));
    if code == 0 { Ok(handle) } else { Err(code) }
}

fn create(size: usize) -> usize {
    try_create(size, SHARED).unwrap_or_else(|code| panic!("{code}"))
}

fn release(handle: usize) -> i32 {
    call!(cuMemRelease(handle => usize))
}

fn reserve(size: usize) -> u64 {
    given(|out| call!(cuMemAddressReserve(out => *mut u64, size => usize, 0 => usize, 0 => u64, 0 => u64)))
}

fn free(address: u64, size: usize) -> i32 {
    call!(cuMemAddressFree(address => u64, size => usize))
}

fn map(address: u64, size: usize, handle: usize) -> i32 {
    call!(cuMemMap(address => u64, size => usize, 0 => usize, handle => usize, 0 => u64))
}

fn unmap(address: u64, size: usize) -> i32 {
    call!(cuMemUnmap(address => u64, size => usize))
}

fn set(address: u64, size: usize, flags: u32) -> i32 {
    let access = Access { place: 1, device: 0, flags };
    call!(cuMemSetAccess(address => u64, size => usize, &raw const access => *const Access, 1 => usize))
}

fn access(address: u64) -> std::result::Result<u64, i32> {
    let (mut flags, place) = (9, [1_i32, 0]);
    match call!(cuMemGetAccess(&raw mut flags => *mut u64, place.as_ptr() => *const i32, address => u64)) {
        0 => Ok(flags),
        code => Err(code),
    }
}

fn fill(address: u64, byte: u8, len: usize) -> i32 {
    match call!(cuMemsetD8_v2(address => u64, byte => u8, len => usize)) {
        0 => call!(cuCtxSynchronize()),
        code => code,
    }
}

fn byte(address: u64) -> u8 {
    let mut bytes = [0];
    memcpy_dtoh(&mut bytes, address);
    bytes[0]
}

/// A mapping of a new allocation, with access.
fn mapped(size: usize) -> (u64, usize) {
    let (address, handle) = (reserve(size), create(size));
    good(map(address, size, handle));
    good(set(address, size, READ_WRITE));
    (address, handle)
}

fn discard(address: u64, size: usize) {
    good(unmap(address, size));
    good(free(address, size));
}

#[test]
fn mapped_memory_is_used_as_any_other() {
    let _context = PrimaryContext::retain_and_push(0);
    let plain = PLAIN;
    let granularity = |option: u32| -> usize {
        given(|out| {
            call!(cuMemGetAllocationGranularity(
                out => *mut usize, &raw const plain => *const Properties, option => u32
            ))
        })
    };
    assert_eq!([granularity(0), granularity(1)], [GRAIN; 2]);
    let attribute =
        |number: u32| -> i32 { given(|out| call!(cuDeviceGetAttribute(out => *mut i32, number => u32, 0 => i32))) };
    assert_eq!([102, 103].map(attribute), [1, 1]);
    let size = 2 * GRAIN;
    let (address, handle) = mapped(size);
    assert!(address.is_multiple_of(GRAIN as u64));
    assert_eq!(byte(address), 0, "new memory is zero");
    good(put(address + 8));
    assert_eq!(byte(address + 8), 7);
    good(fill(address, 3, size));
    assert_eq!((byte(address), byte(address + size as u64 - 1)), (3, 3));
    let properties: [u64; 4] = given(|out| {
        call!(cuMemGetAllocationPropertiesFromHandle(
            out => *mut [u64; 4], handle => usize
        ))
    });
    assert_eq!(properties, [1 | u64::from(POSIX_FD) << 32, 1, 0, 0]);
    // The handle may go first.
    good(release(handle));
    assert_eq!(release(handle), INVALID_VALUE);
    assert_eq!(byte(address), 3);
    let again: usize = given(|out| call!(cuMemRetainAllocationHandle(out => *mut usize, address + 77 => u64)));
    assert_eq!(again, handle);
    // The same memory at a second place.
    let second = reserve(size);
    good(map(second, size, again));
    good(set(second, size, READ_WRITE));
    good(fill(second, 9, 1));
    assert_eq!(byte(address), 9);
    good(release(again));
    // Its attributes: memory type, context, device, managed.
    let ask = |number: u32, address: u64| -> (i32, u64) {
        let mut value = 0_u64;
        (call!(cuPointerGetAttribute(&raw mut value => *mut u64, number => u32, address => u64)), value)
    };
    assert_eq!([2, 1, 9, 8].map(|number| ask(number, address)), [(0, 2), (0, 0), (0, 0), (0, 0)]);
    assert_eq!(ask(14, address + 5), (0, POSIX_FD.into()), "handle types");
    discard(address, size);
    assert_eq!(byte(second), 9);
    discard(second, size);
}

#[test]
fn neighbouring_mappings_are_one_range() {
    let _context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let raw = stream.raw().expose_provenance();
    let size = 4 * GRAIN;
    let address = reserve(size);
    let part = |index: usize| address + (index * GRAIN) as u64;
    // The first three, the last of them with access later.
    let handles: Vec<usize> = (0..3).map(|_| create(GRAIN)).collect();
    for (index, handle) in handles.iter().enumerate() {
        good(map(part(index), GRAIN, *handle));
    }
    good(set(address, 2 * GRAIN, READ_WRITE));
    good(fill(part(1) - 5, 4, 10));
    assert_eq!(fill(part(2) - 5, 4, 10), INVALID_VALUE, "beyond what is accessible");
    // Work that is queued keeps its range while another one grows beside it.
    let gate = stream.hold();
    let other: u64 = given(|out| call!(cuMemAlloc_v2(out => *mut u64, 10 => usize)));
    good(call!(cuMemcpyDtoDAsync_v2(other => u64, part(1) - 5 => u64, 10 => usize, raw => usize)));
    good(set(part(2), GRAIN, READ_WRITE));
    drop(gate);
    stream.synchronize();
    assert_eq!([byte(other), byte(other + 9)], [4, 4]);
    good(fill(address, 6, 3 * GRAIN));
    let mut bytes = vec![0; 3 * GRAIN];
    memcpy_dtoh(&mut bytes, address);
    assert!(bytes.iter().all(|byte| *byte == 6));
    assert_eq!(fill(part(3), 1, 1), INVALID_VALUE, "reserved only");
    // The middle goes: the copy would have a gap.
    good(unmap(part(1), GRAIN));
    assert_eq!(fill(part(1) - 5, 1, 10), INVALID_VALUE);
    good(fill(part(1) - 5, 1, 5));
    good(map(part(1), GRAIN, handles[1]));
    good(set(part(1), GRAIN, READ_WRITE));
    assert_eq!(byte(part(1)), 6, "the bytes are the allocation's");
    good(unmap(address, 3 * GRAIN));
    good(free(address, size));
    handles.into_iter().for_each(|handle| good(release(handle)));
    good(call!(cuMemFree_v2(other => u64)));
}

fn check_rdma() {
    let rdma = Properties { rdma: 1, ..PLAIN };
    for attribute in [110_u32, 116] {
        assert_eq!(
            given(|out| call!(cuDeviceGetAttribute(out => *mut i32, attribute => u32, 0 => i32))),
            1,
            "{attribute}"
        );
    }
    let size: usize = given(
        |out| call!(cuMemGetAllocationGranularity(out => *mut usize, &raw const rdma => *const Properties, 0 => u32)),
    );
    assert_eq!(size, GRAIN);
    let handle = try_create(GRAIN, rdma).unwrap_or_else(|code| panic!("{code}"));
    let mut properties = PLAIN;
    good(call!(cuMemGetAllocationPropertiesFromHandle(&raw mut properties => *mut Properties, handle => usize)));
    assert_eq!(properties, rdma);
    assert_eq!(release(handle), 0);
}

#[test]
fn a_gpu_for_gpudirect_has_memory_for_it() -> Result {
    under("dma-buf", check_rdma)
}

#[test]
fn bad_calls_are_refused() {
    let sim = simulated!("a real driver's own codes are not known");
    let _context = PrimaryContext::retain_and_push(0);
    let live = || ["allocation", "reservation"].map(|noun| sim.live_objects_of(noun));
    let before = live();
    for (properties, code) in [
        (Properties { kind: 0, ..PLAIN }, INVALID_VALUE),
        (Properties { kind: 3, ..PLAIN }, INVALID_VALUE),
        (Properties { kind: 2, ..PLAIN }, NOT_SUPPORTED),
        (Properties { handle_types: 2, ..PLAIN }, NOT_SUPPORTED),
        (Properties { handle_types: 8 | 1, ..PLAIN }, NOT_SUPPORTED),
        (Properties { handle_types: 16, ..PLAIN }, INVALID_VALUE),
        (Properties { place: 0, ..PLAIN }, INVALID_VALUE),
        (Properties { place: 3, ..PLAIN }, NOT_SUPPORTED),
        (Properties { place: 9, ..PLAIN }, INVALID_VALUE),
        (Properties { device: 99, ..PLAIN }, INVALID_DEVICE),
        (Properties { device: -1, ..PLAIN }, INVALID_DEVICE),
        (Properties { rdma: 1, ..PLAIN }, NOT_SUPPORTED),
        (Properties { usage: 1, ..PLAIN }, NOT_SUPPORTED),
    ] {
        assert_eq!(try_create(GRAIN, properties), Err(code), "{properties:?}");
        let mut size = 0_usize;
        let asked = call!(cuMemGetAllocationGranularity(
            &raw mut size => *mut usize, &raw const properties => *const Properties, 0 => u32
        ));
        assert_eq!(asked, code, "{properties:?}");
    }
    assert_eq!([0, 1, GRAIN - 1, GRAIN + 4096].map(|size| try_create(size, PLAIN)), [Err(INVALID_VALUE); 4]);
    assert_eq!(try_create(usize::MAX / GRAIN * GRAIN, PLAIN), Err(2), "out of memory");
    assert_eq!(call!(cuMemCreate(0 => usize, GRAIN => usize, 0 => usize, 0 => u64)), INVALID_VALUE);
    // Sizes, alignments, flags.
    for (size, alignment, flags) in [(0, 0, 0), (100, 0, 0), (GRAIN, 3, 0), (GRAIN, 0, 1)] {
        let mut address = 0_u64;
        let code = call!(cuMemAddressReserve(
            &raw mut address => *mut u64, size => usize, alignment => usize, 0 => u64, flags => u64
        ));
        assert_eq!(code, INVALID_VALUE, "{size} {alignment} {flags}");
    }
    let size = 3 * GRAIN;
    let (address, handle) = (reserve(size), create(2 * GRAIN));
    let (end, inside) = (address + size as u64, address + GRAIN as u64);
    assert_eq!(map(address, size, handle), INVALID_VALUE, "more than there is");
    assert_eq!(map(inside + GRAIN as u64, 2 * GRAIN, handle), INVALID_VALUE, "beyond the reservation");
    assert_eq!(map(end, GRAIN, handle), INVALID_VALUE, "nothing reserved");
    assert_eq!(map(address + 4096, GRAIN, handle), INVALID_VALUE, "not aligned");
    assert_eq!(map(address, 4096, handle), INVALID_VALUE, "not a whole page");
    assert_eq!(map(address, GRAIN, 77), INVALID_VALUE, "no handle");
    let offset = call!(cuMemMap(address => u64, GRAIN => usize, GRAIN => usize, handle => usize, 0 => u64));
    assert_eq!(offset, INVALID_VALUE);
    assert_eq!((unmap(address, GRAIN), set(address, GRAIN, READ_WRITE)), (INVALID_VALUE, INVALID_VALUE));
    assert_eq!(access(address), Err(INVALID_VALUE));
    good(map(address, 2 * GRAIN, handle));
    assert_eq!(map(inside, GRAIN, handle), INVALID_VALUE, "mapped already");
    assert_eq!(unmap(address, GRAIN), INVALID_VALUE, "a part");
    assert_eq!(unmap(address, size), INVALID_VALUE, "with what is not mapped");
    assert_eq!(set(address, GRAIN, READ_WRITE), INVALID_VALUE, "a part");
    assert_eq!((set(address, 2 * GRAIN, 2), set(address, 2 * GRAIN, 1)), (INVALID_VALUE, NOT_SUPPORTED));
    let elsewhere = Access { place: 1, device: 99, flags: 3 };
    let code =
        call!(cuMemSetAccess(address => u64, 2 * GRAIN => usize, &raw const elsewhere => *const Access, 1 => usize));
    assert_eq!(code, INVALID_DEVICE);
    assert_eq!(call!(cuMemSetAccess(address => u64, 2 * GRAIN => usize, 0 => usize, 1 => usize)), INVALID_VALUE);
    assert_eq!(free(address, size), INVALID_VALUE, "mapped");
    good(set(address, 2 * GRAIN, READ_WRITE));
    assert_eq!(call!(cuMemFree_v2(address => u64)), INVALID_VALUE, "not of cuMemAlloc");
    good(unmap(address, 2 * GRAIN));
    assert_eq!((free(address, GRAIN), free(inside, GRAIN)), (INVALID_VALUE, INVALID_VALUE), "a part");
    good(free(address, size));
    assert_eq!(free(address, size), INVALID_VALUE, "twice");
    let mut other = 0_usize;
    assert_eq!(call!(cuMemRetainAllocationHandle(&raw mut other => *mut usize, address => u64)), INVALID_VALUE);
    good(release(handle));
    assert_eq!((release(handle), release(0)), (INVALID_VALUE, INVALID_VALUE));
    assert_eq!(live(), before);
    // No context is needed.
    no_context(|| {
        let (address, handle) = mapped(GRAIN);
        discard(address, GRAIN);
        good(release(handle));
    });
}

#[test]
fn a_wish_for_an_address_is_granted_where_it_is_free() {
    simulated!("a wish is not binding");
    let _context = PrimaryContext::retain_and_push(0);
    let first = reserve(GRAIN);
    good(free(first, GRAIN));
    let wish = |at: u64, alignment: usize| -> u64 {
        given(|out| {
            call!(cuMemAddressReserve(
                out => *mut u64, GRAIN => usize, alignment => usize, at => u64, 0 => u64
            ))
        })
    };
    assert_eq!(wish(first, 0), first);
    let other = wish(first, 0);
    assert_ne!(other, first, "it is taken");
    let aligned = wish(0, 1 << 26);
    assert!(aligned.is_multiple_of(1 << 26));
    [first, other, aligned].into_iter().for_each(|address| good(free(address, GRAIN)));
}
