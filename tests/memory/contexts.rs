//! Contexts: memory enters its own from any thread, restores the current one, and is kept by the handle if it is the primary one.

use std::ptr::null_mut;
use std::thread;

use support::cuda::{self, Context, PrimaryContext, Stream, current, no_context};
use support::ledger::Live;
use support::{Result, bind, free, host_read, host_write, logs, simcuda};
use vkgdr::cudarc::driver::sys;
use vkgdr::{MapMode, Memory, RawMemory, Vkgdr};

use crate::{FORCED, MAPPED, NONE, SIZE};

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
fn memory_is_used_bound_and_freed_on_any_thread_whichever_context_is_current() -> Result {
    let gpu = Vkgdr::open(0, FORCED)?;
    let owner = Context::create(0);
    let before = Live::now();
    let stream = Stream::create();
    let memories = (0..4).map(|_| Memory::allocate(&gpu, SIZE, MAPPED)).collect::<vkgdr::Result<Vec<_>>>()?;
    let other = Context::create(0);
    bind(&memories[3], &stream)?;
    for (number, memory) in memories.into_iter().enumerate() {
        assert_eq!((memory.context(), current()), (owner.raw(), other.raw()), "{number}");
        use_it(&memory)?;
        no_context(|| use_it(&memory))?;
        let region = memory.slice(7..)?;
        let work = || -> Result {
            let _third = (number == 2).then(|| Context::create(0));
            let now = current();
            use_it(&memory)?;
            memory.free()?;
            drop(region);
            assert_eq!(current(), now, "{number}");
            Ok(())
        };
        if number == 1 || number == 2 {
            elsewhere(work)?
        } else {
            work()?
        }
        assert_eq!(current(), other.raw(), "{number}");
    }
    owner.with_current(cuda::synchronize);
    gpu.collect();
    assert_eq!((Live::now(), current()), (before, other.raw()));
    drop(other);
    assert_eq!(current(), owner.raw());
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
    logs::capture();
    drop(region);
    assert!(!primary_is_active()?);
    assert_eq!((current(), Live::now()), (null_mut(), before));
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
fn a_primary_handle_uses_its_context_whichever_is_current() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    let before = Live::now();
    for is_other in [false, true] {
        let other = is_other.then(|| Context::create(0));
        let now = current();
        let memory = Memory::allocate(&gpu, SIZE, MAPPED)?;
        let mut raw = RawMemory::allocate(&gpu, SIZE, MAPPED)?;
        assert!(current() == now && memory.context() != now && !memory.context().is_null());
        use_it(&memory)?;
        drop(other);
        // Neither was in the context that is gone.
        use_it(&memory)?;
        raw.flush(0, SIZE)?;
        let other = is_other.then(|| Context::create(0));
        let now = current();
        drop(memory);
        free(&mut raw)?;
        assert_eq!((current(), Live::now()), (now, before));
        drop(other);
    }
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
