//! The default choice between CPU and copy engine for copies and fills: thresholds.

use support::codes;
use support::cuda::{Context, PinnedBytes, no_context};
use support::driver;
use support::ledger::Calls;
use support::{Result, assert_says, child, device_read, host_read, host_write, pattern, profile, refused, simcuda};
use vkgdr::{CopyPolicy, CopyRoutine, CopyThresholds, Error, Memory, MemoryKind, OpenFlags, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const MAPPED: MemoryKind = MemoryKind::Mapped;
const LARGE: usize = 1 << 20;
/// The environment variable that forces a routine.
const ROUTINE: &str = "VKGDR_COPY";

/// The driver's calls by which the copy engine reads, and writes or fills, counted from the creation of this value.
struct EngineCalls {
    reads: Calls,
    writes: [Calls; 4],
}

impl EngineCalls {
    fn new() -> Self {
        let writes = ["cuMemcpyHtoDAsync", "cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"];
        Self { reads: Calls::of("cuMemcpyDtoHAsync"), writes: writes.map(Calls::of) }
    }

    /// Checks whether the engine has read, and whether it has written or filled, if there is a ledger.
    #[track_caller]
    fn assert(&self, [read, written]: [bool; 2], what: &str) {
        if let Some(reads) = self.reads.count() {
            let writes: u64 = self.writes.iter().filter_map(Calls::count).sum();
            assert_eq!((reads > 0, writes > 0), (read, written), "{what}");
        }
    }

    #[track_caller]
    fn assert_none(&self, what: &str) {
        self.assert([false; 2], what);
    }
}

#[test]
fn the_cpu_copies_and_fills_cached_memory_and_memory_that_is_not_coherent_whatever_the_thresholds() -> Result {
    let ((_context, gpu), (_forced_context, forced)) = (support::open(NONE)?, support::open(FORCED)?);
    gpu.set_copy_thresholds(CopyThresholds { read: 0, write: 0 });
    assert_eq!(gpu.copy_thresholds(), CopyThresholds { read: 0, write: 0 });
    assert_says(&refused(no_context(|| Vkgdr::open(0, NONE)?.prepare_copies())), &["CUDA_ERROR_INVALID_CONTEXT"]);
    for (gpu, kind) in [(&gpu, MAPPED), (&gpu, MemoryKind::Host), (&forced, MAPPED)] {
        if !gpu.supports(kind) {
            continue;
        }
        let memory = Memory::allocate(gpu, LARGE, kind)?;
        if memory.is_coherent() && memory.copy_routine() != CopyRoutine::Ordinary {
            eprintln!("left out: {kind} memory is neither cached nor non-coherent");
            continue;
        }
        gpu.prepare_copies()?;
        let engine = EngineCalls::new();
        host_write(&memory, 0, &pattern(LARGE, 1))?;
        assert!(host_read(&memory, 0, LARGE)? == pattern(LARGE, 1));
        memory.fill(.., 5_u8)?;
        memory.flush(..)?;
        assert!(host_read(&memory, 0, LARGE)? == vec![5; LARGE]);
        engine.assert_none(&kind.to_string());
    }
    Ok(())
}

/// The device profiles in which mapped memory is cached, or is missing.
const CACHED: [&str; 7] = ["none", "dma-buf-cached", "gb10", "gh200", "late", "no-bar", "no-vulkan"];

/// Runs a check in a child under a device profile in which mapped memory is not cached.
fn uncached(check: impl FnOnce() -> Result) -> Result {
    if child::role().is_some() {
        check()?;
        child::say("done");
        return Ok(());
    }
    let command = if driver::is_real() {
        let (_context, gpu) = support::open(NONE)?;
        if Memory::allocate(&gpu, 1, MAPPED)?.is_cached() {
            return support::skip(format_args!("the CPU caches mapped memory of {}", gpu.name()));
        }
        child::command("uncached")?
    } else {
        let given = std::env::var("VKGDR_TEST_PROFILE").ok().filter(|name| !CACHED.contains(&name.as_str()));
        let command = profile::command(given.as_deref().unwrap_or("rebar"), "uncached")?;
        let Some(command) = command else { return Ok(()) };
        command
    };
    assert_eq!(child::run(command)?, ["done"]);
    Ok(())
}

#[test]
fn a_forced_routine_leaves_cached_memory_to_the_cpu() -> Result {
    if child::role().is_some() {
        let (_context, gpu) = support::open(NONE)?;
        gpu.set_copy_thresholds(CopyThresholds { read: 0, write: 0 });
        let memory = Memory::allocate(&gpu, 2 * LARGE, MemoryKind::Host)?;
        gpu.prepare_copies()?;
        let engine = EngineCalls::new();
        for len in [0, 1, 2 * LARGE] {
            host_write(&memory, 0, &pattern(len, 1))?;
            assert!(host_read(&memory, 0, len)? == pattern(len, 1));
        }
        memory.fill(.., 1_u8)?;
        engine.assert_none("cached memory");
        child::say(memory.copy_routine());
        return Ok(());
    }
    let mut command = child::command("forced")?;
    command.env(ROUTINE, "portable");
    assert_eq!(child::run(command)?, ["portable"]);
    Ok(())
}

#[test]
fn the_thresholds_decide_between_cpu_and_gpu_for_copies_of_uncached_memory() -> Result {
    uncached(|| {
        let Some((_context, gpu)) = support::open_coherent()? else { return Ok(()) };
        assert_eq!(gpu.copy_thresholds(), CopyThresholds::default());
        gpu.clone().set_copy_thresholds(CopyThresholds { read: 100, write: 200 });
        let memory = Memory::allocate(&gpu, 1000, MAPPED)?;
        gpu.prepare_copies()?;
        let mut private = PinnedBytes::new(1000);
        for (len, read, written) in [
            (0, false, false),
            (99, false, false),
            (100, true, false),
            (199, true, false),
            (200, true, true),
            (1000, true, true),
        ] {
            let engine = EngineCalls::new();
            let bytes = pattern(len, len as u64);
            private[..len].copy_from_slice(&bytes);
            memory.write(0, &private[..len])?;
            let mut seen = vec![0; len];
            memory.read(0, &mut seen)?;
            assert!(seen == bytes, "{len}");
            engine.assert([read, written], &format!("{len} bytes"));
        }
        let engine = EngineCalls::new();
        memory.write(0, &[0_u8; 1000])?;
        engine.assert_none("a write from memory that is not page-locked");
        // An explicit policy ignores the thresholds.
        let engine = EngineCalls::new();
        memory.write_with(CopyPolicy::Cpu, 0, &[0_u8; 1000])?;
        engine.assert_none("by the CPU");
        memory.write_with(CopyPolicy::Dma, 0, &[0_u8; 1])?;
        engine.assert([false, true], "by the copy engine");
        Ok(())
    })
}

#[test]
fn the_copy_engine_is_made_on_purpose() -> Result {
    uncached(|| {
        let Some(_) = support::open_coherent()? else { return Ok(()) };
        type Make = fn(&Vkgdr, &Memory) -> vkgdr::Result<()>;
        let makers: [(&str, Make); 3] = [
            ("prepare_copies", |gpu, _| gpu.prepare_copies()),
            ("a copy by it", |_, memory| memory.write_with(CopyPolicy::Dma, 0, &[1_u8])),
            ("a copy of device memory", |gpu, _| {
                Memory::allocate(gpu, 100, MemoryKind::Device)?.write_with(CopyPolicy::Auto, 0, &[1_u8])
            }),
        ];
        for (what, make) in makers {
            // Each handle has an engine for each context, which ends before the context.
            let _context = Context::create(0);
            let gpu = Vkgdr::open(0, OpenFlags::empty())?;
            let memory = Memory::allocate(&gpu, LARGE, MAPPED)?;
            for made in [false, true] {
                if made {
                    make(&gpu, &memory)?;
                }
                gpu.set_copy_thresholds(CopyThresholds { read: 0, write: 0 });
                let streams = Calls::of("cuStreamCreate");
                let engine = EngineCalls::new();
                memory.write(0, &pattern(LARGE, 1))?;
                memory.fill(.., 2_u8)?;
                let mut seen = vec![0; LARGE];
                memory.read_with(CopyPolicy::Auto, 0, &mut seen)?;
                assert!(seen == [2_u8; LARGE], "{what}");
                streams.assert(0, what);
                engine.assert([made; 2], &format!("{what}, {made}"));
            }
            gpu.prepare_copies()?;
        }
        Ok(())
    })
}

#[test]
fn non_coherent_memory_is_copied_by_the_cpu_unless_requested_otherwise() -> Result {
    uncached(|| {
        let (_context, gpu) = support::open(FORCED)?;
        gpu.set_copy_thresholds(CopyThresholds { read: 0, write: 0 });
        gpu.prepare_copies()?;
        let memory = Memory::allocate(&gpu, LARGE, MAPPED)?;
        let engine = EngineCalls::new();
        host_write(&memory, 0, &pattern(LARGE, 1))?;
        assert!(host_read(&memory, 0, LARGE)? == pattern(LARGE, 1));
        engine.assert_none("not coherent");
        Ok(())
    })
}

#[test]
fn the_cpu_copies_if_the_copy_engine_is_unavailable() -> Result {
    uncached(|| {
        let Some((_primary, gpu)) = support::open_coherent()? else { return Ok(()) };
        gpu.set_copy_thresholds(CopyThresholds { read: 0, write: 0 });
        let memory = Memory::allocate(&gpu, 1000, MAPPED)?;
        if let Some(sim) = simcuda() {
            let engine = EngineCalls::new();
            sim.fail("cuStreamCreate", 1, 2);
            assert_says(&refused(gpu.prepare_copies()), &["cuStreamCreate failed"]);
            sim.clear_faults();
            memory.read(0, &mut [7_u8; 10])?;
            engine.assert_none("unavailable");
            gpu.prepare_copies()?;
            // A copy begun by the engine is not continued by the CPU.
            sim.fail("cuMemcpyDtoHAsync", 1, codes::UNKNOWN);
            let error = refused(memory.read(0, &mut [8_u8; 10]));
            assert_says(&error, &["cuMemcpyDtoHAsync failed (CUDA_ERROR_UNKNOWN)"]);
        }
        memory.read(0, &mut [9_u8; 10])?;
        Ok(())
    })
}

/// NVIDIA's driver refuses such memory, the simulated one does not.
#[test]
fn the_cpu_copies_private_memory_of_which_only_parts_are_page_locked() -> Result {
    uncached(|| {
        let Some((_primary, gpu)) = support::open_coherent()? else { return Ok(()) };
        gpu.set_copy_thresholds(CopyThresholds { read: 0, write: 0 });
        gpu.prepare_copies()?;
        let memory = Memory::allocate(&gpu, LARGE, MAPPED)?;
        let mut bytes = PinnedBytes::pageable(LARGE);
        bytes.copy_from_slice(&pattern(LARGE, 1));
        [0..4096, LARGE - 4096..LARGE].into_iter().for_each(|part| bytes.pin(part));
        let refuse = |function| simcuda().into_iter().for_each(|sim| sim.fail(function, 1, codes::INVALID_VALUE));
        refuse("cuMemcpyHtoDAsync");
        memory.write(0, &bytes)?;
        assert!(device_read(memory.device_ptr(), LARGE) == pattern(LARGE, 1));
        bytes.fill(0);
        refuse("cuMemcpyDtoHAsync");
        memory.read(0, &mut bytes)?;
        assert!(bytes[..] == pattern(LARGE, 1));
        Ok(())
    })
}

/// Checks all bytes of the memory as the device and the CPU see them.
fn assert_is(memory: &Memory, expected: &[u8], what: &str) -> Result {
    assert!(device_read(memory.device_ptr(), memory.len()) == expected, "{what}: the device's");
    assert!(host_read(memory, 0, memory.len())? == expected, "{what}: the CPU's");
    Ok(())
}

#[test]
fn the_threshold_of_writes_decides_between_cpu_and_gpu_for_fills_of_uncached_memory() -> Result {
    uncached(|| {
        let Some((_context, gpu)) = support::open_coherent()? else { return Ok(()) };
        gpu.set_copy_thresholds(CopyThresholds { read: usize::MAX, write: 200 });
        let memory = Memory::allocate(&gpu, 1000, MAPPED)?;
        gpu.prepare_copies()?;
        let mut expected = pattern(1000, 1);
        memory.write_with(CopyPolicy::Cpu, 0, &expected)?;
        let (one, two, four) = ([7_u8].as_slice(), [1, 2].as_slice(), [3, 4, 5, 6].as_slice());
        let eight = [1, 2, 3, 4, 5, 6, 7, 8].as_slice();
        let known = [
            (0, 199, one, false),
            (0, 200, one, true),
            (3, 997, one, true),
            (2, 600, two, true),
            (1, 600, two, false),
            (4, 996, four, true),
            (2, 996, four, false),
            (8, 800, eight, false),
            (8, 800, &[0; 8], true),
            (5, 201, &[9; 3], true),
            (5, 201, &[9, 9, 8], false),
        ];
        for (offset, len, value, by_gpu) in known {
            let what = format!("{len} bytes of {value:?} at {offset}");
            let engine = EngineCalls::new();
            memory.fill_pattern(offset..offset + len, value)?;
            engine.assert([false, by_gpu], &what);
            expected[offset..offset + len].copy_from_slice(&value.repeat(len / value.len()));
            assert_is(&memory, &expected, &what)?;
        }
        memory.fill_pattern::<u8>(.., &[])?;
        memory.fill(1000.., 1_u8)?;
        assert!(matches!(memory.fill(..301, 1_u32), Err(Error::Misaligned { value: 301, unit: 4, .. })));
        assert!(matches!(memory.fill(..1001, 1_u8), Err(Error::OutOfRange { .. })));
        assert_is(&memory, &expected, "nothing")
    })
}

#[test]
fn a_fill_begun_by_the_gpu_is_finished_by_the_gpu() -> Result {
    let Some(sim) = simcuda() else { return support::skip("fault injection needs the simulated driver") };
    uncached(|| {
        let Some((_context, gpu)) = support::open_coherent()? else { return Ok(()) };
        gpu.set_copy_thresholds(CopyThresholds { read: usize::MAX, write: 0 });
        let memory = Memory::allocate(&gpu, 1000, MAPPED)?;
        let engine = EngineCalls::new();
        memory.fill(.., 1_u8)?;
        engine.assert_none("before it is made");
        gpu.prepare_copies()?;
        type Fill = fn(&Memory) -> vkgdr::Result<()>;
        let fills: [(&str, Fill); 3] = [
            ("cuMemsetD8Async", |memory| memory.fill(.., 2_u8)),
            ("cuMemsetD16Async", |memory| memory.fill(.., 0x203_u16)),
            ("cuMemsetD32Async", |memory| memory.fill(.., 0x203_0405_u32)),
        ];
        for (function, fill) in fills {
            fill(&memory)?;
            sim.fail(function, 1, codes::UNKNOWN);
            assert_says(&refused(fill(&memory)), &[&format!("{function} failed (CUDA_ERROR_UNKNOWN)")]);
            sim.clear_faults();
            fill(&memory)?;
        }
        assert_is(&memory, &[5, 4, 3, 2].repeat(250), "the last")
    })
}
