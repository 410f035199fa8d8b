//! Handles that one thread unpins while others use them.
#![expect(unsafe_code, reason = "calls C functions")]

use std::ffi::c_ulong;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use support::{Result, pattern};
use vkgdr_c::{gdr_info_v2_t, gdr_mh_t, gdr_t};
use vkgdr_rs::{Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::api::{call, close, open, unmap, unpin};
use crate::fixture::{NO_HANDLE, PAGE, kind};
use crate::{EAGAIN, EINVAL};

/// Uses the handle that the other thread pinned last, or has unpinned since, by every function but the copies.
fn use_any(g: gdr_t, handle: gdr_mh_t, va: u64) -> Result {
    let (mut info, mut mapped, mut flag) = (gdr_info_v2_t::default(), null_mut(), 7);
    match call!(info(g, handle, &raw mut info)) {
        0 => assert_eq!((info.v1.va, info.v1.mapped_size), (va, PAGE as u64)),
        code => assert_eq!(code, EINVAL),
    }
    match call!(callback_flag(g, handle, &raw mut flag)) {
        0 => assert_eq!(flag, 0),
        code => assert_eq!(code, EINVAL),
    }
    let code = call!(map(g, handle, &raw mut mapped, PAGE));
    assert!([0, EINVAL, EAGAIN].contains(&code), "{code}");
    Ok(())
}

/// Pins, maps, copies and unpins a page of the thread's own.
fn use_own(g: gdr_t, address: u64, seed: u64) -> Result {
    let (mut handle, mut va, mut info) = (NO_HANDLE, null_mut(), gdr_info_v2_t::default());
    assert_eq!(call!(pin(g, address, PAGE, 0, 0, &raw mut handle)), 0);
    assert_eq!(call!(map(g, handle, &raw mut va, PAGE)), 0);
    assert_eq!(call!(info(g, handle, &raw mut info)), 0);
    let bytes = va.wrapping_byte_add(usize::try_from(address - info.v1.va)?);
    let (expected, mut found) = (pattern(500, seed), [0_u8; 500]);
    assert_eq!(call!(copy_to(handle, bytes, expected.as_ptr().cast(), 500)), 0);
    assert_eq!(call!(copy_from(handle, found.as_mut_ptr().cast(), bytes, 500)), 0);
    assert!(found[..] == expected);
    assert_eq!(unmap(g, handle, va, PAGE), 0);
    assert_eq!(unpin(g, handle), 0);
    Ok(())
}

#[test]
fn more_handles_than_a_thread_remembers_each_copy_to_their_own_page() -> Result {
    const COUNT: usize = 40;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, (COUNT + 1) * PAGE, kind(&gpu))?;
    let first = memory.device_ptr().next_multiple_of(PAGE as u64);
    let g = open();
    let mut pins = Vec::new();
    for number in 0..COUNT {
        let (mut handle, mut va) = (NO_HANDLE, null_mut());
        assert_eq!(call!(pin(g, first + (number * PAGE) as u64, PAGE, 0, 0, &raw mut handle)), 0);
        assert_eq!(call!(map(g, handle, &raw mut va, PAGE)), 0);
        pins.push((handle, va));
    }
    for round in 0..3 {
        for (seed, &(handle, va)) in (round..).zip(&pins) {
            assert_eq!(call!(copy_to(handle, va, pattern(64, seed).as_ptr().cast(), 64)), 0);
        }
        for (seed, &(handle, va)) in (round..).zip(&pins) {
            let mut found = [0_u8; 64];
            assert_eq!(call!(copy_from(handle, found.as_mut_ptr().cast(), va, 64)), 0);
            assert!(found[..] == pattern(64, seed));
        }
    }
    for (handle, va) in pins {
        assert_eq!(unmap(g, handle, va, PAGE), 0);
        assert_eq!(unpin(g, handle), 0);
    }
    assert_eq!(close(g), 0);
    Ok(())
}

/// Threads call functions with a handle while this one unpins it, and with handles of their own. They must not change the mapping
/// of the next pinned memory.
#[test]
fn a_handle_that_is_unpinned_meanwhile_is_refused_and_leaves_others_alone() -> Result {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 5 * PAGE, kind(&gpu))?;
    let address = memory.device_ptr();
    // Within one page, wherever the memory begins.
    let va = address - address % PAGE as u64;
    let g = open().addr();
    let (current, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = |page: u64| -> Result {
        for round in 0_u64.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            use_any(without_provenance_mut(g), gdr_mh_t { h: current.load(Ordering::Relaxed) as c_ulong }, va)?;
            use_own(without_provenance_mut(g), address + page * PAGE as u64, page * 1000 + round)?;
        }
        Ok(())
    };
    let pin = || -> Result {
        let g = without_provenance_mut(g);
        for _ in 0..20_000 {
            let (mut handle, mut mapped) = (NO_HANDLE, null_mut());
            assert_eq!(call!(pin(g, address, 1, 0, 0, &raw mut handle)), 0);
            current.store(handle.h, Ordering::Relaxed);
            assert_eq!(unpin(g, handle), 0);
            assert_eq!(call!(pin(g, address, 1, 0, 0, &raw mut handle)), 0);
            assert_eq!(call!(map(g, handle, &raw mut mapped, PAGE)), 0, "a handle that no other thread knows");
            assert_eq!(unpin(g, handle), 0);
        }
        Ok(())
    };
    /// Ends the other threads, also where this one panics.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let end = End(&done);
        let work = &work;
        let users = [1, 2, 3].map(|page| scope.spawn(move || work(page).map_err(|error| error.to_string())));
        let pinned = pin();
        drop(end);
        users.into_iter().try_for_each(|user| user.join().map_err(|_| "a thread panicked".to_owned())?)?;
        pinned
    })?;
    assert_eq!(close(without_provenance_mut(g)), 0);
    Ok(())
}

/// A connection is closed while another thread unpins its memory: all of it is unpinned.
#[test]
fn closing_unpins_all_also_where_another_thread_unpins_some() -> Result {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    for _ in 0..300 {
        let memory = Memory::allocate(&gpu, PAGE, MemoryKind::Host)?;
        let g = open().addr();
        let (mut handles, start) = ([NO_HANDLE; 50], Barrier::new(2));
        for handle in &mut handles {
            assert_eq!(call!(pin(without_provenance_mut(g), memory.device_ptr(), 1, 0, 0, handle)), 0);
        }
        let unpin = || -> Result {
            start.wait();
            // From the last: closing begins at the first.
            for handle in handles.into_iter().rev() {
                let code = unpin(without_provenance_mut(g), handle);
                assert!([0, EINVAL].contains(&code), "{code}");
            }
            Ok(())
        };
        let closed = thread::scope(|scope| -> Result<_> {
            let other = scope.spawn(|| unpin().map_err(|error| error.to_string()));
            start.wait();
            let closed = close(without_provenance_mut(g));
            other.join().map_err(|_| "a thread panicked")??;
            Ok(closed)
        })?;
        drop(memory);
        gpu.collect();
        assert_eq!((closed, gpu.live_allocations()), (0, 0));
    }
    Ok(())
}
