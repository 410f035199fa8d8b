//! Contexts: memory enters its own from any thread, restores the current one, and is kept by the handle if it is the primary one.

use std::ptr::null_mut;
use std::thread;

use support::cuda::{self, Context, PrimaryContext, Stream, current, no_context};
use support::ledger::Live;
use support::{Result, bind, device_read, host_read, host_write, logs, pattern, refused, simcuda};
use vkgdr::cudarc::driver::sys;
use vkgdr::{MapMode, Memory, MemoryKind, OpenFlags, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const MAPPED: MemoryKind = MemoryKind::Mapped;
const SIZE: usize = 4097;

/// Whether the primary context of device 0 is retained. Needs an initialised driver.
#[expect(unsafe_code, reason = "queries the driver")]
fn primary_is_active() -> Result<bool> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both are valid outputs.
    let code = unsafe { sys::cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active) };
    code.result()?;
    Ok(active != 0)
}

/// Performs every operation that needs the memory's context or host view.
fn use_it(memory: &Memory) -> Result {
    host_write(memory, 3, b"used")?;
    memory.map(MapMode::ReadWrite, 1..=99)?.finish()?;
    assert_eq!(host_read(memory, 3, 4)?, b"used");
    Ok(())
}

/// Runs on a new thread, which has no current context.
fn elsewhere<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let result = thread::scope(|scope| scope.spawn(|| work().map_err(|error| error.to_string())).join());
    Ok(result.map_err(|_| "the thread panicked")??)
}

#[test]
fn memory_is_used_and_dropped_on_a_thread_without_a_context() -> Result {
    let (_context, gpu) = support::open(FORCED)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    elsewhere(move || {
        use_it(&memory)?;
        assert_eq!(current(), null_mut());
        drop(memory);
        assert_eq!(current(), null_mut());
        Ok(())
    })?;
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn memory_is_used_and_dropped_while_another_context_is_current() -> Result {
    let gpu = Vkgdr::open(0, FORCED)?;
    let owner = Context::create(0);
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let other = Context::create(0);
    use_it(&memory)?;
    assert_eq!((memory.context(), current()), (owner.raw(), other.raw()));
    drop(memory);
    assert_eq!(current(), other.raw());
    assert_eq!(Live::now(), before);
    drop(other);
    assert_eq!(current(), owner.raw());
    Ok(())
}

#[test]
fn memory_is_freed_on_another_thread_while_another_context_is_current_there() -> Result {
    let gpu = Vkgdr::open(0, FORCED)?;
    let _owner = Context::create(0);
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let region = memory.slice(7..)?;
    elsewhere(move || {
        let other = Context::create(0);
        use_it(&memory)?;
        memory.free()?;
        assert_eq!(current(), other.raw());
        drop(region);
        assert_eq!(current(), other.raw());
        Ok(())
    })?;
    assert_eq!(Live::now(), before);
    Ok(())
}

#[test]
fn a_stream_is_bound_and_waited_for_whichever_context_is_current() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let owner = Context::create(0);
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let stream = Stream::create();
    let other = Context::create(0);
    bind(&memory, &stream)?;
    use_it(&memory)?;
    assert_eq!(current(), other.raw());
    no_context(|| use_it(&memory))?;
    assert_eq!(current(), other.raw());
    drop(memory);
    assert_eq!(current(), other.raw());
    owner.with_current(cuda::synchronize);
    gpu.collect();
    assert_eq!(current(), other.raw());
    Ok(())
}

#[test]
fn two_contexts_each_keep_their_own_memory() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let first = Context::create(0);
    let before = Live::now();
    let in_first = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let second = Context::create(0);
    let in_second = Memory::allocate(&gpu, SIZE, MAPPED)?;
    assert_eq!((in_first.context(), in_second.context()), (first.raw(), second.raw()));
    host_write(&in_first, 0, &pattern(SIZE, 1))?;
    host_write(&in_second, 0, &pattern(SIZE, 2))?;
    assert_eq!(device_read(in_second.device_ptr(), SIZE), pattern(SIZE, 2));
    first.with_current(|| assert_eq!(device_read(in_first.device_ptr(), SIZE), pattern(SIZE, 1)));
    // Each is freed in its own context while the other is current.
    drop(in_first);
    assert_eq!(Live::now(), before.plus_one(MAPPED));
    first.with_current(|| drop(in_second));
    assert_eq!(Live::now(), before);
    assert_eq!(current(), second.raw());
    Ok(())
}

#[test]
fn a_primary_handle_holds_the_primary_context_until_it_is_dropped() -> Result {
    drop(Vkgdr::open(0, NONE)?);
    assert!(!primary_is_active()?, "a plain handle retains it");
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let clone = gpu.clone();
    assert!(primary_is_active()?);
    drop(gpu);
    assert!(primary_is_active()?);
    drop(clone);
    assert!(!primary_is_active()?);
    assert!(simcuda().is_none_or(|sim| sim.live_objects_of("primary") == 0));
    Ok(())
}

#[test]
fn memory_holds_the_primary_context_longer_than_its_handle() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    let region = memory.slice(100..)?;
    drop(gpu);
    use_it(&memory)?;
    drop(memory);
    assert!(primary_is_active()?);
    host_write(&region, 0, b"alone")?;
    assert_eq!(current(), null_mut());
    logs::capture();
    drop(region);
    assert!(!primary_is_active()?);
    assert_eq!(current(), null_mut());
    assert_eq!(Live::now(), before);
    assert_eq!(logs::captured(), [""; 0], "the context existed until the free");
    Ok(())
}

#[test]
fn memory_whose_free_is_deferred_holds_the_primary_context() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    {
        let _primary = PrimaryContext::retain_and_push(0);
        let stream = Stream::create();
        bind(&memory, &stream)?;
        let gate = stream.hold();
        gate.wait_until_reached();
        drop((memory, gpu));
        gate.open();
        stream.synchronize();
    }
    assert!(primary_is_active()?, "the deferred free keeps it");
    logs::capture();
    // Any handle of the GPU collects deferred frees.
    assert_eq!(Vkgdr::open(0, NONE)?.collect(), 1);
    assert!(!primary_is_active()?);
    assert_eq!(Live::now(), before);
    assert_eq!(logs::captured(), [""; 0]);
    Ok(())
}

#[test]
fn a_primary_handle_uses_its_context_and_leaves_the_current_one_alone() -> Result {
    let other = Context::create(0);
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
    assert_ne!(memory.context(), other.raw());
    assert_eq!(current(), other.raw());
    use_it(&memory)?;
    drop(memory);
    assert_eq!(current(), other.raw());
    drop(other);
    assert_eq!(current(), null_mut());
    Ok(())
}

#[test]
fn a_failed_allocation_leaves_the_current_context_alone() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    refused(Memory::allocate(&gpu, 0, MAPPED));
    refused(Memory::allocate(&gpu, usize::MAX, MAPPED));
    assert_eq!(current(), null_mut());
    let other = Context::create(0);
    refused(Memory::allocate(&gpu, usize::MAX, MAPPED));
    assert_eq!(current(), other.raw());
    Ok(())
}

#[test]
fn memory_in_the_current_primary_context_keeps_it_when_its_other_owners_let_go() -> Result {
    let gpu = Vkgdr::open(0, NONE)?;
    let before = Live::now();
    let memory = {
        let _owner = PrimaryContext::retain_and_push(0);
        Memory::allocate(&gpu, SIZE, MAPPED)?
    };
    assert!(primary_is_active()?, "the handle keeps it");
    use_it(&memory)?;
    logs::capture();
    memory.free()?;
    assert_eq!((logs::captured(), Live::now()), (Vec::<String>::new(), before));
    drop(gpu);
    assert!(!primary_is_active()?);
    Ok(())
}
