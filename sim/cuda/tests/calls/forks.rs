//! Forked children, which cannot use the driver that their parent initialised.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::cuda::PrimaryContext;
use support::fork::{End, end_of, in_child};
use support::{Result, codes, driver, simulated};

use crate::{call, good};

const NOT_INITIALIZED: i32 = 3;

#[test]
fn a_forked_child_has_no_driver() -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    in_child(|| {
        let mut out = 0_usize;
        assert_eq!(call!(cuMemAlloc_v2(&raw mut out => *mut usize, 4 => usize)), NOT_INITIALIZED);
        assert_eq!(call!(cuCtxSynchronize()), NOT_INITIALIZED);
        assert_eq!(call!(cuInit(0 => u32)), NOT_INITIALIZED);
        let mut version = 0;
        good(call!(cuDriverGetVersion(&raw mut version => *mut i32)));
        Ok(())
    })?;
    good(call!(cuCtxSynchronize()));
    Ok(())
}

#[test]
fn a_forked_child_waits_for_no_lock_of_threads_that_it_does_not_have() -> Result {
    type Version = unsafe extern "C" fn(*mut i32) -> i32;
    let sim = simulated!("faults are the simulator's");
    let _context = PrimaryContext::retain_and_push(0);
    // While a fault is pending, every call counts against it, under a lock.
    sim.fail("cuMemAlloc", u64::MAX, codes::OUT_OF_MEMORY);
    // Looked up here, since the dynamic linker has locks, too.
    // SAFETY: the type in cuda.h.
    let version = unsafe { driver::function::<Version>("cuDriverGetVersion") };
    let ask = || {
        let mut number = 0;
        // SAFETY: a valid output.
        unsafe { version(&raw mut number) }
    };
    let over = AtomicBool::new(false);
    let in_child = || {
        // SAFETY: async-signal-safe; kills a hanging child.
        unsafe { libc::alarm(5) };
        ask()
    };
    let hung = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    good(ask());
                }
            });
        }
        let hung = (0..300).map(|_| end_of(in_child)).find(|end| !matches!(end, Ok(End::Exit(0))));
        over.store(true, Ordering::Relaxed);
        hung
    });
    sim.clear_faults();
    assert!(hung.is_none(), "{hung:?}");
    Ok(())
}
