//! Long-running kernels: waits for them, visibility of writes meanwhile, and their end.

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::codes;
use support::cuda::{self, Stream};
use support::vulkan::Vulkan;
use support::{driver, simulated};

use crate::driver::{Buffer, Call, Module, Pinned, Shape, c_string, call, given, handle};
use crate::{KERNELS, Result, bytes_of, child, device_words, good, open};

/// As DPDK's gpudev and other libraries expect of device memory.
#[test]
fn imported_memory_starts_at_a_page_of_the_gpu() -> Result {
    let _context = open();
    let vulkan = Vulkan::open(0)?;
    let memories = [vulkan.memory(100)?, vulkan.memory(5000)?, vulkan.memory(1 << 20)?];
    assert!(
        memories.iter().all(|memory| memory.address().is_multiple_of(64 << 10)),
        "{:?}",
        memories.map(|m| m.address())
    );
    Ok(())
}

#[test]
fn a_launch_does_not_wait_for_its_kernel() -> Result {
    let _context = open();
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
    let _context = open();
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

/// A word as the device addresses it and as the CPU sees it.
type Word<'a> = (u64, &'a AtomicU32);

/// The CPU writes numbers to a flag, and a running kernel answers each.
fn ping_pong(flag: Word<'_>, reply: Word<'_>, rounds: u32) -> Result {
    let module = good(Module::load(KERNELS))?;
    let stream = Stream::create();
    for word in [flag.1, reply.1] {
        word.store(0, Ordering::Release);
    }
    let arguments = [flag.0, reply.0, u64::from(rounds)];
    good(good(module.function("answer"))?.launch(Shape::ONE, handle(&stream), &arguments))?;
    let start = Instant::now();
    for round in 1..=rounds {
        flag.1.store(round, Ordering::Release);
        let mut seen = 0;
        while seen != round {
            assert!(start.elapsed() < Duration::from_secs(50), "no answer to round {round}: {seen}");
            seen = reply.1.load(Ordering::Acquire);
            thread::yield_now();
        }
    }
    stream.synchronize();
    Ok(())
}

#[test]
fn a_running_kernel_answers_in_host_memory_what_the_cpu_writes_into_imported_memory() -> Result {
    let _context = open();
    let (vulkan, host) = (Vulkan::open(0)?, good(Pinned::new(0))?);
    let imported = vulkan.memory(4096)?;
    ping_pong((imported.address(), &imported.words()[0]), (good(host.device())?, host.word()), 200)
}

#[test]
fn a_running_kernel_answers_in_imported_memory_what_the_cpu_writes_into_host_memory() -> Result {
    let _context = open();
    let (vulkan, host) = (Vulkan::open(0)?, good(Pinned::new(0))?);
    let imported = vulkan.memory(4096)?;
    ping_pong((good(host.device())?, host.word()), (imported.address(), &imported.words()[0]), 200)
}

#[test]
fn kernels_are_in_order_with_all_else_where_nothing_runs_in_the_calling_thread() -> Result {
    if child::role().is_some() {
        child_in_order()?;
        child::say("done");
        return Ok(());
    }
    let mut command = child::command("asynchronous")?;
    command.env("SIMCUDA_ASYNC", "1");
    assert_eq!(child::run(command)?, ["done"]);
    Ok(())
}

fn child_in_order() -> Result {
    let _context = open();
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
        let context = open();
        let endless = start_endless(0)?;
        child::say("running");
        // The end of a program without cleanup.
        let _kept = Box::leak(Box::new((endless, context)));
        return Ok(());
    }
    simulated!("a kernel that never ends would block other users of a GPU");
    let said = child::run(child::command("endless")?)?;
    assert_eq!(said, ["running"]);
    Ok(())
}

#[test]
fn a_context_that_is_destroyed_ends_its_kernels_and_leaves_nothing_behind() -> Result {
    let sim = simulated!("a kernel that never ends would block other users of a GPU");
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
    simulated!("the behaviour of a real driver is not documented");
    let _primary = open();
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

/// Makes a call while a kernel waits for the CPU. Returns whether it returned before the kernel ended: one that shall has long
/// enough for that on a busy machine.
fn returns_beside_a_kernel(shall_return: bool, call: impl FnOnce() -> Call) -> Result<bool> {
    let timeout = Duration::from_millis(if shall_return { 20_000 } else { 100 });
    let module = good(Module::load(KERNELS))?;
    let (stream, flag, has_returned) = (Stream::create(), good(Pinned::new(0))?, AtomicBool::new(false));
    good(good(module.function("wait_for"))?.launch(Shape::ONE, handle(&stream), &[good(flag.device())?, 1]))?;
    let end_kernel = || {
        let start = Instant::now();
        while !has_returned.load(Ordering::Acquire) && start.elapsed() < timeout {
            thread::yield_now();
        }
        let returned = has_returned.load(Ordering::Acquire);
        flag.word().store(1, Ordering::Release);
        returned
    };
    let (outcome, returned) = thread::scope(|scope| {
        let ended = scope.spawn(end_kernel);
        let outcome = call();
        has_returned.store(true, Ordering::Release);
        (outcome, ended.join())
    });
    stream.synchronize();
    good(outcome)?;
    Ok(returned.is_ok_and(|returned| returned))
}

/// A page to register.
static PAGE: [u8; 4096] = [0; 4096];

/// As driver 580 does it on an H100. Each is made and ended beside a kernel.
#[test]
fn frees_and_loads_wait_for_running_kernels_and_allocations_do_not() -> Result {
    type Row = (&'static str, fn() -> Call<usize>, fn(usize) -> Call, [bool; 2]);
    const ROWS: [Row; 5] = [
        (
            "cuMemAlloc and cuMemFree",
            || given(|out| call!(cuMemAlloc_v2(out => *mut usize, 4096 => usize))),
            |address| call!(cuMemFree_v2(address => usize)),
            [true, false],
        ),
        (
            "cuMemHostAlloc and cuMemFreeHost",
            || given(|out| call!(cuMemHostAlloc(out => *mut usize, 4096 => usize, 0 => u32))),
            |address| call!(cuMemFreeHost(address => usize)),
            [true, false],
        ),
        (
            "cuMemHostRegister and cuMemHostUnregister",
            || {
                let address = PAGE.as_ptr().expose_provenance();
                call!(cuMemHostRegister_v2(address => usize, PAGE.len() => usize, 0 => u32)).map(|()| address)
            },
            |address| call!(cuMemHostUnregister(address => usize)),
            [true, false],
        ),
        (
            "cuStreamCreate and cuStreamDestroy",
            || given(|out| call!(cuStreamCreate(out => *mut usize, 1 => u32))),
            |stream| call!(cuStreamDestroy_v2(stream => usize)),
            [true, true],
        ),
        (
            "cuModuleLoadData and cuModuleUnload",
            || {
                let text = c_string(KERNELS);
                given(|out| call!(cuModuleLoadData(out => *mut usize, text.as_ptr() => *const c_char)))
            },
            |module| call!(cuModuleUnload(module => usize)),
            [false, false],
        ),
    ];
    simulated!("a real driver may wait or not");
    let _context = open();
    for (calls, make, end, expected) in ROWS {
        let (mut made, [is_made, has_ended]) = (0, expected);
        let returned = [
            returns_beside_a_kernel(is_made, || make().map(|handle| made = handle))?,
            returns_beside_a_kernel(has_ended, || end(made))?,
        ];
        assert_eq!(returned, expected, "{calls}");
    }
    let (vulkan, mut imported) = (Vulkan::open(0)?, None);
    let import = || {
        imported = vulkan.memory(4096).ok();
        Ok(())
    };
    assert!(returns_beside_a_kernel(true, import)?, "an import");
    assert!(imported.is_some());
    let free = || {
        drop(imported.take());
        Ok(())
    };
    assert!(!returns_beside_a_kernel(false, free)?, "cuMemFree of imported memory");
    Ok(())
}
