//! Faults at addresses without access.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;

use support::codes::{INVALID_VALUE, OUT_OF_MEMORY};
use support::cuda::{Context, Stream};
use support::{Result, child, simulated};

use super::{
    GRAIN, ILLEGAL_ADDRESS, NONE, READ_WRITE, access, byte, create, discard, fill, free, map, mapped, put, release,
    reserve, set, unmap,
};
use crate::{call, good};

/// A line that cannot be written changes no code.
#[test]
fn a_fault_has_its_code_where_stderr_is_full() {
    simulated!("a fault leaves a real context unusable");
    let context = Context::create(0);
    let address = reserve(GRAIN);
    let Ok(full) = File::options().write(true).open("/dev/full") else { panic!("no /dev/full") };
    // SAFETY: duplicates a descriptor, here and below.
    let kept = unsafe { libc::dup(2) };
    // SAFETY: both are open.
    let replaced = unsafe { libc::dup2(full.as_raw_fd(), 2) };
    let code = put(address);
    // SAFETY: as above.
    let restored = unsafe { libc::dup2(kept, 2) };
    // SAFETY: this test's own descriptor.
    let closed = unsafe { libc::close(kept) };
    assert_eq!((code, replaced, restored, closed), (ILLEGAL_ADDRESS, 2, 2, 0));
    context.destroy();
    good(free(address, GRAIN));
}

/// The system refuses new mappings while the address space exceeds its limit.
#[test]
fn an_unmap_that_fails_changes_nothing() -> Result {
    simulated!("a real driver needs more mappings");
    if child::role().is_none() {
        assert_eq!(child::run(child::command("few mappings")?)?, ["done"]);
        return Ok(());
    }
    let context = Context::create(0);
    let (address, handle) = mapped(2 * GRAIN);
    good(fill(address, 7, 2 * GRAIN));
    let limit = |most: libc::rlim_t| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the limit lives through the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    };
    limit(0);
    let refused = unmap(address, 2 * GRAIN);
    limit(libc::RLIM_INFINITY);
    assert_eq!((refused, access(address), byte(address)), (OUT_OF_MEMORY, Ok(READ_WRITE.into()), 7));
    good(fill(address, 8, 4));
    assert_eq!(free(address, 2 * GRAIN), INVALID_VALUE, "mapped");
    discard(address, 2 * GRAIN);
    good(release(handle));
    context.destroy();
    child::say("done");
    Ok(())
}

#[test]
fn without_access_copies_are_refused_and_kernels_fault() {
    simulated!("a fault leaves a real context unusable");
    let context = Context::create(0);
    let (address, handle) = (reserve(GRAIN), create(GRAIN));
    assert_eq!(fill(address, 1, 4), INVALID_VALUE, "reserved only");
    good(map(address, GRAIN, handle));
    assert_eq!((access(address), fill(address, 1, 4)), (Ok(NONE.into()), INVALID_VALUE));
    good(set(address, GRAIN, READ_WRITE));
    assert_eq!((access(address + 5), put(address)), (Ok(READ_WRITE.into()), 0));
    good(set(address, GRAIN, NONE));
    assert_eq!((access(address), fill(address, 1, 4)), (Ok(NONE.into()), INVALID_VALUE));
    assert_eq!(put(address), ILLEGAL_ADDRESS);
    context.destroy();
    // Queued work that comes after the end of the mapping faults, too.
    let context = Context::create(0);
    good(set(address, GRAIN, READ_WRITE));
    // It goes with its context.
    let stream = ManuallyDrop::new(Stream::create());
    let raw = stream.raw().expose_provenance();
    let gate = stream.hold();
    good(call!(cuMemsetD8Async(address => u64, 1 => u8, 4 => usize, raw => usize)));
    good(unmap(address, GRAIN));
    drop(gate);
    assert_eq!(call!(cuStreamSynchronize(raw => usize)), ILLEGAL_ADDRESS);
    context.destroy();
    good(release(handle));
    good(free(address, GRAIN));
}
