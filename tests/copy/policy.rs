//! The choice between CPU and copy engine for copies: thresholds.

use support::codes;
use support::cuda::{Context, PinnedBytes, no_context};
use support::driver;
use support::ledger::Calls;
use support::{Result, assert_says, child, device_read, pattern, profile, refused, simcuda};
use vkgdr::{CopyPolicy, CopyRoutine, CopyThresholds, Memory, MemoryKind, OpenFlags, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();
const FORCED: OpenFlags = OpenFlags::FORCE_NON_COHERENT;
const MAPPED: MemoryKind = MemoryKind::Mapped;
const LARGE: usize = 1 << 20;
/// The environment variable that forces a routine.
const ROUTINE: &str = "VKGDR_COPY";

/// The driver's calls by which the copy engine reads and writes, counted from the creation of this value.
struct EngineCalls {
    reads: Calls,
    writes: Calls,
}

impl EngineCalls {
    fn new() -> Self {
        Self { reads: Calls::of("cuMemcpyDtoHAsync"), writes: Calls::of("cuMemcpyHtoDAsync") }
    }

    /// Checks whether the engine has read, and whether it has written, if there is a ledger.
    #[track_caller]
    fn assert(&self, [read, written]: [bool; 2], what: &str) {
        if let (Some(reads), Some(writes)) = (self.reads.count(), self.writes.count()) {
            assert_eq!((reads > 0, writes > 0), (read, written), "{what}");
        }
    }

    #[track_caller]
    fn assert_none(&self, what: &str) {
        self.assert([false; 2], what);
    }
}

/// Writes bytes and reads them, by whom the thresholds choose.
fn write_and_read(memory: &Memory, bytes: &[u8]) -> Result {
    memory.write_with(CopyPolicy::Auto, 0, bytes)?;
    memory.flush(..bytes.len())?;
    memory.invalidate(..bytes.len())?;
    let mut seen = vec![0; bytes.len()];
    memory.read_with(CopyPolicy::Auto, 0, &mut seen)?;
    assert!(seen == bytes, "{} bytes", bytes.len());
    Ok(())
}

/// With thresholds by which the copy engine makes all copies that it can.
fn check_the_cpu_copies() -> Result {
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
        write_and_read(&memory, &pattern(LARGE, 1))?;
        engine.assert_none(&kind.to_string());
    }
    Ok(())
}

/// The device profiles in which mapped memory is cached, or is missing.
const CACHED: [&str; 7] = ["none", "dma-buf-cached", "gb10", "gh200", "late", "no-bar", "no-vulkan"];

/// Runs a check where mapped memory is not cached: under a device profile, or on a real GPU.
fn uncached(check: impl FnOnce() -> Result) -> Result {
    if !driver::is_real() {
        let given = std::env::var("VKGDR_TEST_PROFILE").ok().filter(|name| !CACHED.contains(&name.as_str()));
        return profile::under(given.as_deref().unwrap_or("rebar"), check);
    }
    if child::role().is_none() {
        let (_context, gpu) = support::open(NONE)?;
        if Memory::allocate(&gpu, 1, MAPPED)?.is_cached() {
            return support::skip(format_args!("the CPU caches mapped memory of {}", gpu.name()));
        }
    }
    child::afresh(check)
}

#[test]
fn the_cpu_copies_cached_memory_and_memory_that_is_not_coherent_whatever_the_thresholds() -> Result {
    if child::role().is_none() {
        check_the_cpu_copies()?;
    }
    uncached(check_the_cpu_copies)
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
            write_and_read(&memory, &pattern(len, 1))?;
        }
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
            write_and_read(&memory, &private[..len])?;
            engine.assert([read, written], &format!("{len} bytes"));
        }
        let engine = EngineCalls::new();
        memory.write_with(CopyPolicy::Auto, 0, &[0_u8; 1000])?;
        engine.assert_none("a write from memory that is not page-locked");
        // An explicit policy ignores the thresholds.
        let engine = EngineCalls::new();
        memory.write_with(CopyPolicy::Cpu, 0, &private[..])?;
        memory.read_with(CopyPolicy::Cpu, 0, &mut private[..])?;
        memory.write(0, &private[..])?;
        memory.read(0, &mut private[..])?;
        memory.fill(.., 0_u8)?;
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
            let private = PinnedBytes::new(LARGE);
            for made in [false, true] {
                if made {
                    make(&gpu, &memory)?;
                }
                gpu.set_copy_thresholds(CopyThresholds { read: 0, write: 0 });
                let streams = Calls::of("cuStreamCreate");
                let engine = EngineCalls::new();
                write_and_read(&memory, &private)?;
                streams.assert(0, what);
                engine.assert([made; 2], &format!("{what}, {made}"));
            }
            gpu.prepare_copies()?;
        }
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
            memory.read_with(CopyPolicy::Auto, 0, &mut [7_u8; 10])?;
            engine.assert_none("unavailable");
            gpu.prepare_copies()?;
            // A copy begun by the engine is not continued by the CPU.
            sim.fail("cuMemcpyDtoHAsync", 1, codes::UNKNOWN);
            let error = refused(memory.read_with(CopyPolicy::Auto, 0, &mut [8_u8; 10]));
            assert_says(&error, &["cuMemcpyDtoHAsync failed (CUDA_ERROR_UNKNOWN)"]);
        }
        memory.read_with(CopyPolicy::Auto, 0, &mut [9_u8; 10])?;
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
        memory.write_with(CopyPolicy::Auto, 0, &bytes)?;
        assert!(device_read(memory.device_ptr(), LARGE) == pattern(LARGE, 1));
        bytes.fill(0);
        refuse("cuMemcpyDtoHAsync");
        memory.read_with(CopyPolicy::Auto, 0, &mut bytes)?;
        assert!(bytes[..] == pattern(LARGE, 1));
        Ok(())
    })
}
