//! Binding memory to streams and recording their uses: valid streams, the policy that follows, and the streams' lifetimes.
#![expect(unsafe_code, reason = "binds streams that the tests keep alive")]

use std::ptr::null_mut;
use std::sync::Arc;
use std::thread;

use support::cuda::{self, Context, PrimaryContext, Stream, current, no_context};
use support::ledger::{Calls, Live};
use support::{Result, assert_says, bind, record_use, refused};
use vkgdr::DropPolicy::{Immediate, WaitForContext, WaitForStream};
use vkgdr::cudarc::driver::{CudaContext, CudaStream};
use vkgdr::{DropPolicy, Error, Memory, Vkgdr};

use crate::{MAPPED, NONE};

const SIZE: usize = 4097;

/// A stream of the primary context, created on another thread, since cudarc changes the current context.
fn stream_of_another_thread() -> Result<Arc<CudaStream>> {
    let made = thread::spawn(|| CudaContext::new(0)?.new_stream()).join();
    Ok(made.map_err(|_| "the thread panicked")??)
}

#[test]
fn the_policy_follows_the_binding_and_the_recorded_uses() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let (stream, other) = (Stream::create(), Stream::create());
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let state = || (memory.drop_policy(), memory.bound_stream());
    memory.unbind_stream()?;
    assert_eq!((state(), DropPolicy::default()), ((WaitForContext, None), WaitForContext));
    for _ in 0..2 {
        bind(&memory, &stream)?;
        record_use(&memory, stream.raw())?;
        assert_eq!(state(), (WaitForStream, Some(stream.raw())), "the same again changes nothing");
    }
    record_use(&memory, other.raw())?;
    assert_eq!(state(), (WaitForStream, Some(stream.raw())));
    // The stream is waited for, so that it does not count after another binding.
    memory.unbind_stream()?;
    assert_eq!(state(), (WaitForContext, None));
    bind(&memory, &other)?;
    assert_eq!(state(), (WaitForStream, Some(other.raw())));
    bind(&memory, &stream)?;
    assert_eq!(state(), (WaitForContext, Some(stream.raw())));
    for bound in [false, true] {
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        if bound {
            bind(&memory, &stream)?;
        }
        // SAFETY: no work of the device uses the memory.
        unsafe { memory.set_drop_policy(Immediate) };
        bind(&memory, &stream)?;
        assert_eq!(memory.drop_policy(), Immediate, "a binding does not end it");
        memory.unbind_stream()?;
        assert_eq!(memory.drop_policy(), Immediate, "and neither does its end");
    }
    Ok(())
}

#[test]
fn the_per_thread_stream_and_those_of_other_contexts_are_refused_and_change_nothing() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let (memory, own) = (Memory::allocate(&gpu, SIZE, MAPPED)?, Stream::create());
    let other = Context::create(0);
    let (foreign, shared) = (Stream::create(), stream_of_another_thread()?);
    for bound in [false, true] {
        if bound {
            bind(&memory, &own)?;
        }
        let before = (memory.drop_policy(), memory.bound_stream());
        for error in [refused(bind(&memory, &foreign)), refused(memory.bind_stream(&shared))] {
            assert!(matches!(error, Error::ForeignStream), "{error}");
        }
        // SAFETY: CU_STREAM_PER_THREAD is always valid.
        let error = refused(unsafe { memory.bind_raw_stream(cuda::PER_THREAD_STREAM) });
        assert!(matches!(error, Error::PerThreadStream), "{error}");
        assert_says(&error, &["per-thread default stream", "another stream on every thread"]);
        assert_eq!((memory.drop_policy(), memory.bound_stream()), before);
        assert_eq!((Arc::strong_count(&shared), current()), (1, other.raw()));
    }
    drop(memory);
    owner.with_current(|| own.synchronize());
    gpu.collect();
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let (memory, per_thread) = (Memory::allocate(&gpu, SIZE, MAPPED)?, CudaContext::new(0)?.per_thread_stream());
    assert!(matches!(refused(memory.bind_stream(&per_thread)), Error::PerThreadStream));
    Ok(())
}

#[test]
fn both_names_of_the_legacy_stream_are_one_stream() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    let names = [null_mut(), cuda::LEGACY_STREAM];
    for (bound, used) in [(names[0], names[1]), (names[1], names[0])] {
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        for name in [bound, used] {
            // SAFETY: the default stream lives as long as the context.
            unsafe { memory.bind_raw_stream(name) }?;
            record_use(&memory, used)?;
            assert_eq!(memory.drop_policy(), WaitForStream, "bound to {name:?}, used by {used:?}");
        }
        record_use(&memory, cuda::PER_THREAD_STREAM)?;
        assert_eq!(memory.drop_policy(), WaitForContext);
    }
    Ok(())
}

/// A way in which memory lets go of the stream that it is bound to; the second stream is another one.
type LetGo = fn(Memory, &Arc<CudaStream>) -> vkgdr::Result<()>;

#[test]
fn a_cudarc_stream_is_kept_until_the_memory_lets_go_which_leaves_the_current_context_alone() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let other = Context::create(0);
    let (first, second) = (stream_of_another_thread()?, stream_of_another_thread()?);
    let counts = || (Arc::strong_count(&first), Arc::strong_count(&second));
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    memory.bind_stream(&first)?;
    memory.bind_stream(&first)?;
    assert_eq!((memory.drop_policy(), memory.bound_stream()), (WaitForStream, Some(first.cu_stream())));
    assert_eq!(counts(), (2, 1));
    memory.bind_stream(&second)?;
    assert_eq!(counts(), (1, 2));
    memory.unbind_stream()?;
    assert_eq!((memory.bound_stream(), counts()), (None, (1, 1)));
    drop(memory);
    // Where the memory has the last reference, the stream ends.
    let ways: [(&str, LetGo); 4] = [
        ("a drop", |_dropped, _| Ok(())),
        ("free", |memory, _| memory.free()),
        ("another binding", |memory, other| memory.bind_stream(other)),
        ("unbinding", |memory, _| memory.unbind_stream()),
    ];
    for (what, let_go) in ways {
        for is_outside in [false, true] {
            let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
            memory.bind_stream(&stream_of_another_thread()?)?;
            let work = || -> Result {
                let now = current();
                let_go(memory, &second)?;
                assert_eq!(current(), now, "{what}");
                Ok(())
            };
            if is_outside {
                no_context(work)?
            } else {
                work()?
            }
            assert_eq!(current(), other.raw(), "{what}");
        }
    }
    let _primary = PrimaryContext::retain_and_push(0);
    cuda::synchronize();
    gpu.collect();
    assert_eq!((counts(), Live::now()), ((1, 1), before));
    Ok(())
}

#[test]
fn a_recorded_stream_is_waited_for_beside_the_bound_one() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for is_recorded_first in [false, true] {
        let (bound, other) = (Stream::create(), Stream::create());
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        if is_recorded_first {
            record_use(&memory, other.raw())?;
        }
        bind(&memory, &bound)?;
        if !is_recorded_first {
            record_use(&memory, other.raw())?;
            // Another binding does not clear the recorded use.
            memory.unbind_stream()?;
            bind(&memory, &bound)?;
        }
        let gate = bound.hold();
        // SAFETY: both streams are live, and of the current context.
        let later = unsafe { Stream::hold_raw_behind(other.raw(), bound.raw()) };
        let waits = Calls::of("cuCtxSynchronize");
        drop(memory);
        waits.assert(0, "the drop waits for events");
        assert_eq!((gpu.collect(), gpu.deferred_frees()), (0, 1), "freed while both streams use it");
        gate.open();
        bound.synchronize();
        assert_eq!((gpu.collect(), gpu.deferred_frees()), (0, 1), "freed while the other stream uses it");
        later.open();
        other.synchronize();
        assert_eq!((gpu.collect(), gpu.deferred_frees()), (1, 0));
    }
    Ok(())
}
