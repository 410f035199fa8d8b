//! Many allocations and frees, in sequence and on many threads at once: nothing is left behind.

use std::sync::Barrier;
use std::thread;

use support::cuda::{self, Context, Stream};
use support::driver::rounds;
use support::state::State;
use support::{Result, child, free};
use vkgdr::{Memory, MemoryKind, RawMemory, Vkgdr};

use crate::{FORCED, MAPPED, NONE};

const CYCLES: usize = 10_000;
const THREADS: usize = 8;
const CYCLES_A_THREAD: usize = 2_000;
const SIZES: [usize; 5] = [1, 4095, 4096, 4097, 65_536];

/// The number of cycles; a fiftieth on a GPU, where a cycle takes milliseconds. A leak in each of them still exceeds the
/// changes that [`State::assert_unchanged`] permits there.
fn cycles(all: usize) -> usize {
    rounds(all, all / 50)
}

/// Allocates and frees once; memory type, kind and size change with each call.
fn cycle(gpu: &Vkgdr, number: usize) -> Result {
    let kind = MemoryKind::ALL[number / 2 % MemoryKind::ALL.len()];
    if !gpu.supports(kind) {
        return Ok(());
    }
    let len = SIZES[number % SIZES.len()];
    if number.is_multiple_of(2) {
        let mut memory = RawMemory::allocate(gpu, len, kind)?;
        free(&mut memory)?;
    } else {
        Memory::allocate(gpu, len, kind)?.free()?;
    }
    Ok(())
}

/// Runs `cycle` a few times, then many: nothing may stay.
fn leave_nothing(what: &str, mut cycle: impl FnMut(usize) -> Result, settle: impl Fn()) -> Result {
    (0..10).try_for_each(&mut cycle)?;
    settle();
    let before = State::take();
    (0..cycles(CYCLES)).try_for_each(cycle)?;
    settle();
    State::assert_unchanged(&before, what);
    Ok(())
}

#[test]
fn ten_thousand_cycles_of_deferred_frees_leave_nothing() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open(0, NONE)?;
    let stream = Stream::create();
    let target = Memory::allocate(&gpu, 4096, MAPPED)?;
    let cycle = |_: usize| -> Result {
        let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
        support::bind(&memory, &stream)?;
        cuda::copy_dtod_async(target.device_ptr(), memory.device_ptr(), 4096, &stream);
        Ok(())
    };
    let settle = || {
        stream.synchronize();
        gpu.collect();
    };
    leave_nothing("cycles of deferred frees", cycle, settle)
}

#[test]
fn ten_thousand_opens_leave_nothing() -> Result {
    let _first = Vkgdr::open_primary_context(0, NONE)?;
    let open = |_| {
        drop(Vkgdr::open(0, NONE)?);
        drop(Vkgdr::open_primary_context(0, FORCED)?);
        Ok(())
    };
    leave_nothing("opens", open, || ())
}

/// The cycles of one thread: even threads use the shared handle's primary context, odd threads their own.
fn work(shared: &Vkgdr, number: usize, count: usize) -> Result {
    let own = (!number.is_multiple_of(2)).then(|| Context::create(0));
    let gpu = if own.is_some() { Vkgdr::open_current_context(NONE)? } else { shared.clone() };
    (0..count).try_for_each(|cycle_number| cycle(&gpu, cycle_number + number))
}

fn on_threads(gpu: &Vkgdr, count: usize) {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                work(gpu, number, count).unwrap_or_else(|error| panic!("thread {number}: {error}"));
            });
        }
    });
}

#[test]
fn eight_threads_of_cycles_leave_nothing() -> Result {
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    on_threads(&gpu, 2 * MemoryKind::ALL.len() * SIZES.len());
    let before = State::take();
    on_threads(&gpu, cycles(CYCLES_A_THREAD));
    State::assert_unchanged(&before, "8 threads of cycles");
    Ok(())
}

/// In a child: eight threads open the GPU for the first time, at the same moment.
fn open_at_once() -> Result {
    let start = Barrier::new(THREADS);
    let uuids: Vec<_> = thread::scope(|scope| {
        let open = || -> vkgdr::Result<[u8; 16]> {
            start.wait();
            let gpu = Vkgdr::open_primary_context(0, NONE)?;
            Memory::allocate(&gpu, 4096, MAPPED)?.free()?;
            Ok(gpu.uuid())
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for uuid in uuids {
        child::say(format!("{:?}", uuid.map_err(|_| "a thread panicked")??));
    }
    if let Some(layer) = support::vklayer() {
        let objects = ["instance", "device", "memory", "mapping"].map(|noun| layer.live_objects_of(noun));
        assert_eq!(objects, [1, 1, 0, 0], "Vulkan instances, devices, memories and mappings");
    }
    if let Some(sim) = support::simcuda() {
        assert_eq!(sim.live_objects(), 0, "CUDA objects after the last handle went");
    }
    Ok(())
}

#[test]
fn eight_threads_that_open_at_once_share_one_vulkan_device() -> Result {
    if child::role().is_some() {
        return open_at_once();
    }
    if support::vklayer().is_none() {
        eprintln!("Vulkan's objects are not counted: VKGDR_TEST_LAYERS is neither faults nor validation");
    }
    for _ in 0..rounds(5, 2) {
        let said = child::run(child::command("open")?)?;
        assert_eq!(said.len(), THREADS);
        assert!(said.iter().all(|uuid| *uuid == said[0]), "{said:?}");
    }
    Ok(())
}
