//! Each thread's stack of current contexts.
#![expect(unsafe_code, reason = "asks the C allocator")]

use std::mem::ManuallyDrop;
use std::thread;

use support::cuda::{Context, PrimaryContext, current, no_context};
use support::simulated;

/// Bytes that the C allocator has given out, in all of its arenas.
fn allocated() -> usize {
    // SAFETY: asks only.
    unsafe { libc::mallinfo2() }.uordblks
}

/// The growth of the heap by 1,000 threads that end one after the other, in bytes.
fn growth(leave_contexts: fn()) -> usize {
    let run = |threads| {
        for _ in 0..threads {
            thread::spawn(leave_contexts).join().unwrap_or_else(|_| panic!("a thread panicked"));
        }
    };
    run(10);
    let before = allocated();
    run(1000);
    allocated().saturating_sub(before)
}

#[test]
fn a_context_destroyed_below_the_top_of_the_stack_leaves_no_memory_behind() {
    simulated!("what a real driver keeps of a thread is its own business");
    let _context = PrimaryContext::retain_and_push(0);
    let growth = growth(|| {
        let buried = Context::create(0);
        let top = Context::create(0);
        buried.destroy();
        drop(top);
        // The stack is not empty: the destroyed context is current.
        assert!(!current().is_null());
    });
    assert!(growth < 16 << 10, "{growth} bytes");
}

#[test]
fn a_thread_that_ends_with_a_current_context_leaves_no_memory_behind() {
    simulated!("what a real driver keeps of a thread is its own business");
    let _context = PrimaryContext::retain_and_push(0);
    let growth = growth(|| {
        let _kept = ManuallyDrop::new(PrimaryContext::retain_and_push(0));
    });
    assert!(growth < 16 << 10, "{growth} bytes");
}

#[test]
fn contexts_come_off_a_deep_stack_in_order() {
    let contexts: Vec<_> = (0..40).map(|_| Context::create(0)).collect();
    let raw: Vec<_> = contexts.iter().map(Context::raw).collect();
    assert_eq!(current(), raw[39]);
    // Takes all 40 off and pushes them again.
    no_context(|| assert!(current().is_null()));
    for (context, raw) in contexts.into_iter().zip(raw).rev() {
        assert_eq!(current(), raw);
        context.destroy();
    }
    assert!(current().is_null());
}
