//! Long-running kernels: waits for them, visibility of writes meanwhile, and their end.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use support::codes;
use support::cuda::{self, Stream};
use support::{driver, simcuda};
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, RawMemory, Vkgdr};

use crate::driver::{Buffer, Module, Pinned, Shape, call, given, handle};
use crate::{KERNELS, Result, bytes_of, child, device_words, good, open};

#[test]
fn a_launch_does_not_wait_for_its_kernel() -> Result {
    let (_context, _gpu) = open()?;
    let module = good(Module::load(KERNELS))?;
    let (stream, flag) = (Stream::create(), good(Pinned::new(0))?);
    good(good(module.function("wait_for"))?.launch(Shape::ONE, handle(&stream), &[good(flag.device())?, 7]))?;
    assert!(!stream.is_idle(), "the kernel waits for 7");
    assert_eq!(call!(cuStreamQuery(handle(&stream) => usize)), Err(codes::NOT_READY));
    flag.word().store(7, Ordering::Release);
    stream.synchronize();
    assert!(stream.is_idle());
    Ok(())
}

#[test]
fn another_streams_work_waits_for_a_kernel_behind_an_event_only() -> Result {
    let (_context, _gpu) = open()?;
    let module = good(Module::load(KERNELS))?;
    let (one, two) = (Stream::create(), Stream::create());
    let (flag, target) = (good(Pinned::new(0))?, good(Pinned::new(0))?);
    let store = good(module.function("store"))?;
    let event: usize = good(given(|out| call!(cuEventCreate(out => *mut usize, 0 => u32))))?;

    good(good(module.function("wait_for"))?.launch(Shape::ONE, handle(&one), &[good(flag.device())?, 1]))?;
    good(store.launch(Shape::ONE, handle(&one), &[good(target.device())?, 11]))?;
    good(call!(cuEventRecord(event => usize, handle(&one) => usize)))?;
    // Without the event nothing blocks the second stream.
    good(store.launch(Shape::ONE, handle(&two), &[good(target.device())?, 5]))?;
    two.synchronize();
    assert_eq!(target.word().load(Ordering::Acquire), 5);

    good(call!(cuStreamWaitEvent(handle(&two) => usize, event => usize, 0 => u32)))?;
    good(store.launch(Shape::ONE, handle(&two), &[good(target.device())?, 22]))?;
    assert_eq!(call!(cuEventQuery(event => usize)), Err(codes::NOT_READY));
    assert!(!two.is_idle());
    assert_eq!(target.word().load(Ordering::Acquire), 5);
    flag.word().store(1, Ordering::Release);
    two.synchronize();
    assert_eq!(target.word().load(Ordering::Acquire), 22, "after the first stream wrote 11");
    good(call!(cuEventQuery(event => usize)))?;
    good(call!(cuEventDestroy_v2(event => usize)))?;
    one.synchronize();
    Ok(())
}

/// The CPU writes through the library's host pointer, and a running kernel answers in memory of another kind.
fn ping_pong(flag_kind: MemoryKind, reply_kind: MemoryKind, rounds: u32) -> Result {
    let (_context, gpu) = open()?;
    let module = good(Module::load(KERNELS))?;
    let stream = Stream::create();
    let (flag, reply) = (Memory::allocate(&gpu, 4096, flag_kind)?, Memory::allocate(&gpu, 4096, reply_kind)?);
    for memory in [&flag, &reply] {
        memory.write(0, &[0_u32])?;
        memory.flush(..4)?;
    }
    let arguments = [flag.device_ptr(), reply.device_ptr(), u64::from(rounds)];
    good(good(module.function("answer"))?.launch(Shape::ONE, handle(&stream), &arguments))?;
    let start = Instant::now();
    for round in 1..=rounds {
        flag.write(0, &[round])?;
        flag.flush(..4)?;
        let mut seen = [0_u32];
        while seen[0] != round {
            assert!(start.elapsed() < Duration::from_secs(50), "no answer to round {round}: {}", seen[0]);
            reply.invalidate(..4)?;
            reply.read(0, &mut seen)?;
            thread::yield_now();
        }
    }
    stream.synchronize();
    Ok(())
}

#[test]
fn a_running_kernel_answers_in_host_memory_what_the_cpu_writes_into_mapped_memory() -> Result {
    ping_pong(MemoryKind::Mapped, MemoryKind::Host, 200)
}

#[test]
fn a_running_kernel_answers_in_mapped_memory_what_the_cpu_writes_into_host_memory() -> Result {
    ping_pong(MemoryKind::Host, MemoryKind::Mapped, 200)
}

#[test]
fn memory_comes_and_goes_while_a_kernel_runs() -> Result {
    let (_context, gpu) = open()?;
    let module = good(Module::load(KERNELS))?;
    let (stream, flag) = (Stream::create(), good(Pinned::new(0))?);
    good(good(module.function("wait_for"))?.launch(Shape::ONE, handle(&stream), &[good(flag.device())?, 1]))?;
    if simcuda().is_some() {
        // On a real driver the free may wait for the kernel.
        for round in 0..200_u32 {
            let len = 4096 + usize::try_from(round)?;
            drop(good(Buffer::new(len))?);
            let mut memory = RawMemory::allocate(&gpu, len, MemoryKind::Mapped)?;
            // SAFETY: nothing uses the memory.
            unsafe { memory.free() }?;
        }
    }
    assert!(!stream.is_idle());
    flag.word().store(1, Ordering::Release);
    stream.synchronize();
    Ok(())
}

#[test]
fn kernels_are_in_order_with_all_else_where_nothing_runs_in_the_calling_thread() -> Result {
    if child::role().is_some() {
        child_in_order()?;
        child::say("done");
        return Ok(());
    }
    let test = "running::kernels_are_in_order_with_all_else_where_nothing_runs_in_the_calling_thread";
    let mut command = child::command(test, "asynchronous")?;
    command.env("SIMCUDA_ASYNC", "1");
    assert_eq!(child::run(command)?, ["done"]);
    Ok(())
}

fn child_in_order() -> Result {
    let (_context, _gpu) = open()?;
    let module = good(Module::load(KERNELS))?;
    let add_one = good(module.function("add_one"))?;
    let (values, sum) = (good(Buffer::new(4000))?, good(Buffer::new(4))?);
    for round in 0..50_u32 {
        // Does not wait, unlike the function of the support crate.
        let bytes = bytes_of(&vec![round; 1000]);
        good(call!(cuMemcpyHtoD_v2(values.0 => u64, bytes.as_ptr() => *const u8, bytes.len() => usize)))?;
        cuda::memset_d8(sum.0, 0, 4);
        good(add_one.launch(Shape::threads(1000), 0, &[values.0, 1000]))?;
        good(good(module.function("total"))?.launch(Shape::threads(1000), 0, &[sum.0, values.0, 1000]))?;
        assert_eq!(device_words(sum.0, 1), [1000 * (round + 1)], "round {round}");
    }
    Ok(())
}

/// Starts a kernel that never ends.
fn start_endless(stream: usize) -> Result<(Module, Pinned)> {
    let module = good(Module::load(KERNELS))?;
    let flag = good(Pinned::new(0))?;
    good(good(module.function("wait_for"))?.launch(Shape::ONE, stream, &[good(flag.device())?, 1]))?;
    Ok((module, flag))
}

#[test]
fn a_process_ends_whatever_its_kernels_do() -> Result {
    if child::role().is_some() {
        let (context, gpu) = open()?;
        let endless = start_endless(0)?;
        child::say("running");
        // The end of a program without cleanup.
        let _kept = Box::leak(Box::new((endless, gpu, context)));
        return Ok(());
    }
    if simcuda().is_none() {
        eprintln!("skipped: a kernel that never ends would block other users of a GPU");
        return Ok(());
    }
    let said = child::run(child::command("running::a_process_ends_whatever_its_kernels_do", "endless")?)?;
    assert_eq!(said, ["running"]);
    Ok(())
}

#[test]
fn a_context_that_is_destroyed_ends_its_kernels_and_leaves_nothing_behind() -> Result {
    let Some(sim) = simcuda() else {
        eprintln!("skipped: a kernel that never ends would block other users of a GPU");
        return Ok(());
    };
    driver::initialise();
    let before = sim.live_objects();
    let context = cuda::Context::create(0);
    let (module, flag) = start_endless(0)?;
    context.destroy();
    let text = sim.last_kernel_fault().unwrap_or_default();
    assert!(text.contains("wait_for") && text.contains("context was destroyed"), "{text:?}");
    // Both were destroyed with the context.
    drop((module, flag));
    assert_eq!(sim.live_objects(), before);
    Ok(())
}

#[test]
fn a_context_that_is_destroyed_lets_a_kernel_finish_its_work() -> Result {
    if simcuda().is_none() {
        eprintln!("skipped: the behaviour of a real driver is not documented");
        return Ok(());
    }
    let (_primary, _gpu) = open()?;
    let values = good(Pinned::new(1))?;
    let context = cuda::Context::create(0);
    let module = good(Module::load(KERNELS))?;
    good(good(module.function("store"))?.launch(Shape::ONE, 0, &[good(values.device())?, 77]))?;
    good(good(module.function("add_one"))?.launch(Shape::ONE, 0, &[good(values.device())?, 1]))?;
    drop(module);
    context.destroy();
    assert_eq!(values.word().load(Ordering::Acquire), 78);
    Ok(())
}

/// Copies long enough for the copy engine, by default thresholds, of memory that the CPU does not cache, while a kernel waits
/// for the CPU, under a driver whose allocations and registrations wait for kernels.
fn copy_beside_a_kernel(prepared: bool) -> Result {
    const LEN: usize = 4 << 20;
    let (_context, gpu) = open()?;
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    if prepared {
        gpu.prepare_copies()?;
    }
    let module = good(Module::load(KERNELS))?;
    let (stream, flag) = (Stream::create(), good(Pinned::new(0))?);
    let (bytes, mut seen) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    good(good(module.function("wait_for"))?.launch(Shape::ONE, handle(&stream), &[good(flag.device())?, 1]))?;
    memory.write(0, &bytes)?;
    memory.read(0, &mut seen)?;
    memory.fill(.., 9_u8)?;
    assert!(!stream.is_idle(), "the kernel waits for the CPU");
    flag.word().store(1, Ordering::Release);
    stream.synchronize();
    assert!(seen == bytes && support::host_read(&memory, 0, LEN)? == [9; LEN]);
    let stats = gpu.copy_stats();
    child::say(if stats.dma_writes > 0 { "by the copy engine" } else { "by the CPU" });
    Ok(())
}

/// If a copy waits for the kernel, the test runner's time limit ends the test.
#[test]
fn large_copies_do_not_wait_for_a_kernel_that_waits_for_the_cpu() -> Result {
    if let Some(role) = child::role() {
        return copy_beside_a_kernel(role == "prepared");
    }
    let test = "running::large_copies_do_not_wait_for_a_kernel_that_waits_for_the_cpu";
    for (role, expected) in [("plain", "by the CPU"), ("prepared", "by the copy engine")] {
        let Some(mut command) = support::profile::command("rebar", test, role)? else { return Ok(()) };
        command.env("SIMCUDA_BEHIND_KERNELS", "wait");
        assert_eq!(child::run(command)?, [expected], "{role}");
    }
    Ok(())
}

#[test]
fn an_allocation_waits_for_running_kernels_where_the_driver_does() -> Result {
    if child::role().is_some() {
        let (_context, _gpu) = open()?;
        let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
        let module = good(Module::load(KERNELS))?;
        let (stream, flag) = (Stream::create(), good(Pinned::new(0))?);
        good(good(module.function("wait_for"))?.launch(Shape::ONE, handle(&stream), &[good(flag.device())?, 1]))?;
        thread::scope(|scope| {
            let allocated = scope.spawn(|| Memory::allocate(&gpu, 4096, MemoryKind::Mapped).map(drop));
            thread::sleep(Duration::from_millis(50));
            let waited = !allocated.is_finished();
            flag.word().store(1, Ordering::Release);
            child::say(if waited { "waited" } else { "did not wait" });
        });
        stream.synchronize();
        return Ok(());
    }
    if simcuda().is_none() {
        eprintln!("skipped: a real driver may wait or not");
        return Ok(());
    }
    let test = "running::an_allocation_waits_for_running_kernels_where_the_driver_does";
    let mut command = child::command(test, "allocating")?;
    command.env("SIMCUDA_BEHIND_KERNELS", "wait");
    assert_eq!(child::run(command)?, ["waited"]);
    Ok(())
}

#[test]
fn a_pool_can_be_used_while_it_allocates_a_smaller_block_than_it_was_asked_for() -> Result {
    if child::role().is_some() {
        let (_context, _gpu) = open()?;
        let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
        // No heap has so much: the block is as small as the chunk needs.
        let pool = Pool::new(&gpu, PoolOptions::new(MemoryKind::Mapped).block_len(128 << 30))?;
        let module = good(Module::load(KERNELS))?;
        let (stream, flag) = (Stream::create(), good(Pinned::new(0))?);
        good(good(module.function("wait_for"))?.launch(Shape::ONE, handle(&stream), &[good(flag.device())?, 1]))?;
        thread::scope(|scope| {
            let allocated = scope.spawn(|| pool.allocate(48 << 10).map(drop));
            thread::sleep(Duration::from_millis(50));
            let used = scope.spawn(|| pool.managed_bytes());
            thread::sleep(Duration::from_millis(200));
            let is_free = used.is_finished() && !allocated.is_finished();
            flag.word().store(1, Ordering::Release);
            child::say(if is_free { "free" } else { "locked" });
            assert!(allocated.join().is_ok_and(|result| result.is_ok()), "the smaller block");
        });
        stream.synchronize();
        return Ok(());
    }
    if simcuda().is_none() {
        eprintln!("skipped: a real driver may wait or not");
        return Ok(());
    }
    let test = "running::a_pool_can_be_used_while_it_allocates_a_smaller_block_than_it_was_asked_for";
    let mut command = child::command(test, "allocating")?;
    command.env("SIMCUDA_BEHIND_KERNELS", "wait");
    assert_eq!(child::run(command)?, ["free"]);
    Ok(())
}
