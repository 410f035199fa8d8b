//! The same bytes in a forked process. On a GPU a child may not see them: NVIDIA's driver does not support its memory there (CUDA C++
//! Programming Guide, "Initialization"), and the child would have to flush memory that is not coherent.
#![expect(unsafe_code, reason = "reads and writes through raw pointers")]

use std::thread;

use support::cuda::{self, PrimaryContext};
use support::driver::{self, DriverKind};
use support::{HOST_VIEWS, Result, device_read, fork, host_read, host_write, pattern, skip};
use vkgdr::{Memory, OpenFlags};

const LEN: usize = 4096 + 17;
/// The messages of the child and of the device through the shared memory; 0 until then.
const CHILD_WROTE: u8 = 1;
const DEVICE_WROTE: u8 = 2;

/// Runs a check on memory of every kind that a forked process sees, with its first byte.
fn each_kind(check: impl Fn(&Memory, *mut u8) -> Result) -> Result {
    if driver::kind() != Some(DriverKind::Sim) {
        return skip("NVIDIA's driver does not support a fork");
    }
    let (_context, gpu) = support::open(OpenFlags::empty())?;
    for kind in support::imported(&gpu, &HOST_VIEWS) {
        let memory = Memory::allocate(&gpu, LEN, kind)?;
        if memory.is_coherent() {
            check(&memory, memory.host_ptr().ok_or("no host pointer")?.as_ptr())?;
        }
    }
    Ok(())
}

#[test]
fn a_forked_childs_writes_are_seen_by_the_parent_and_its_device_which_keep_the_memory() -> Result {
    each_kind(|memory, host| {
        let bytes = pattern(LEN, 9);
        host_write(memory, 0, &[0; LEN])?;
        fork::in_child(|| {
            for (index, byte) in bytes.iter().enumerate() {
                // SAFETY: within the memory, which is mapped in the child as in the parent.
                unsafe { host.wrapping_add(index).write_volatile(*byte) };
            }
            Ok(())
        })?;
        assert!(host_read(memory, 0, LEN)? == bytes, "the host's view of {} memory", memory.kind());
        assert!(device_read(memory.device_ptr(), LEN) == bytes, "the device's view of {} memory", memory.kind());
        Ok(())
    })
}

#[test]
fn a_forked_child_sees_what_the_device_writes_later() -> Result {
    each_kind(|memory, host| {
        host_write(memory, 0, &[0])?;
        let (device, place) = (memory.device_ptr(), host.expose_provenance());
        let fills = thread::spawn(move || {
            // SAFETY: mapped for as long as the memory lives.
            while unsafe { std::ptr::with_exposed_provenance::<u8>(place).read_volatile() } != CHILD_WROTE {
                thread::yield_now();
            }
            let _context = PrimaryContext::retain_and_push(0);
            cuda::memset_d8(device, DEVICE_WROTE, 1);
        });
        fork::in_child(|| {
            // SAFETY: mapped in the child as in the parent.
            unsafe { host.write_volatile(CHILD_WROTE) };
            // SAFETY: as above.
            while unsafe { host.read_volatile() } != DEVICE_WROTE {
                std::hint::spin_loop();
            }
            Ok(())
        })?;
        fills.join().map_err(|_| "the thread panicked".into())
    })
}
