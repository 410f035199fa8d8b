//! What a call through the C library costs beside the same call in Rust, and beside the same function of vkgdr 0.1.
//!
//! The library is loaded as a program would load it. The two sides take turns in one run, on the same driver and in the
//! same context; the table is also written to `vkgdr-c.json`, which has the results so far after each row (see
//! `benches/report`).
#![expect(unsafe_code, reason = "calls C functions")]

#[path = "../../../benches/pairs/mod.rs"]
mod pairs;
mod peer;
#[path = "../../../benches/report/mod.rs"]
mod report;

use std::error::Error;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::{null, null_mut};
use std::time::Duration;

use libloading::{Library, Symbol};
use pairs::{Effort, Pairs};
use report::{Goal, Report};
use support::cuda::Context;
use vkgdr_rs::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const LEN: usize = 4096;
/// The name of the results.
const NAME: &str = "vkgdr-c";
/// Calls of a few nanoseconds.
const FAST: Effort = Effort { batch: 10_000, rounds: 500, at_most: Duration::from_secs(1) };
/// Calls of some microseconds, or of milliseconds on a GPU.
const SLOW: Effort = Effort { batch: 8, rounds: 600, at_most: Duration::from_secs(6) };
/// The rows with vkgdr 0.1.
const CYCLE: &str = "vkgdr_memory_alloc + free and those of 0.1";
const GETTER: &str = "vkgdr_memory_get_device_ptr and that of 0.1";
/// `VKGDR_MEMORY_HOST`.
const HOST: u32 = 1;

/// A handle of the C library.
type Handle = *mut c_void;

/// The functions that vkgdr 0.1 has, too.
struct Functions<'a> {
    open: Symbol<'a, unsafe extern "C" fn(i32, u32) -> Handle>,
    close: Symbol<'a, unsafe extern "C" fn(Handle)>,
    alloc: Symbol<'a, unsafe extern "C" fn(Handle, usize, u32) -> Handle>,
    free: Symbol<'a, unsafe extern "C" fn(Handle)>,
    host_ptr: Symbol<'a, unsafe extern "C" fn(Handle) -> *mut c_void>,
    device_ptr: Symbol<'a, unsafe extern "C" fn(Handle) -> u64>,
    size: Symbol<'a, unsafe extern "C" fn(Handle) -> usize>,
    is_coherent: Symbol<'a, unsafe extern "C" fn(Handle) -> bool>,
    flush: Symbol<'a, unsafe extern "C" fn(Handle, usize, usize)>,
}

/// The functions of pools that are measured.
struct PoolFunctions<'a> {
    create: Symbol<'a, unsafe extern "C" fn(Handle, *const c_void, *mut Handle) -> i32>,
    alloc: Symbol<'a, unsafe extern "C" fn(Handle, usize) -> Handle>,
    close: Symbol<'a, unsafe extern "C" fn(Handle)>,
}

macro_rules! find {
    ($library:expr, $name:literal) => {
        // SAFETY: the type is that of the function in vkgdr.h.
        unsafe { $library.get($name) }?
    };
}

impl<'a> Functions<'a> {
    fn find(library: &'a Library) -> Result<Self> {
        Ok(Self {
            open: find!(library, b"vkgdr_open\0"),
            close: find!(library, b"vkgdr_close\0"),
            alloc: find!(library, b"vkgdr_memory_alloc\0"),
            free: find!(library, b"vkgdr_memory_free\0"),
            host_ptr: find!(library, b"vkgdr_memory_get_host_ptr\0"),
            device_ptr: find!(library, b"vkgdr_memory_get_device_ptr\0"),
            size: find!(library, b"vkgdr_memory_get_size\0"),
            is_coherent: find!(library, b"vkgdr_memory_is_coherent\0"),
            flush: find!(library, b"vkgdr_memory_flush\0"),
        })
    }

    /// Opens the first GPU.
    fn open(&self) -> Result<Handle> {
        // SAFETY: any arguments are allowed.
        let handle = unsafe { (self.open)(0, 0) };
        if handle.is_null() { Err("vkgdr_open failed".into()) } else { Ok(handle) }
    }

    fn allocate(&self, handle: Handle, len: usize, kind: u32) -> Handle {
        // SAFETY: the handle is live.
        let memory = black_box(unsafe { (self.alloc)(handle, len, kind) });
        assert!(!memory.is_null(), "vkgdr_memory_alloc failed");
        memory
    }

    fn cycle(&self, handle: Handle, len: usize) {
        let memory = self.allocate(handle, len, 0);
        // SAFETY: nothing uses the memory.
        unsafe { (self.free)(memory) };
    }
}

impl<'a> PoolFunctions<'a> {
    fn find(library: &'a Library) -> Result<Self> {
        Ok(Self {
            create: find!(library, b"vkgdr_pool_create\0"),
            alloc: find!(library, b"vkgdr_pool_alloc\0"),
            close: find!(library, b"vkgdr_pool_close\0"),
        })
    }
}

/// The library that cargo built beside this program.
fn load() -> Result<Library> {
    let folder = std::env::current_exe()?;
    let folder = folder.parent().ok_or("the program has no folder")?;
    // SAFETY: loading this library runs no code of its own.
    Ok(unsafe { Library::new(folder.join("libvkgdr_c.so")) }?)
}

fn main() -> Result {
    // `cargo test --benches` and `--list` only want to know whether it runs.
    let arguments: Vec<_> = std::env::args().collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    if !has("--bench") || has("--test") || has("--list") {
        return Ok(());
    }
    let _context = Context::create(0);
    let library = load()?;
    let c = Functions::find(&library)?;
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let handle = c.open()?;

    let mut report = Report::default();
    if let Err(reason) = compare_with_peer(&mut report, &c, handle, gpu.name()) {
        for what in [CYCLE, GETTER] {
            report.skip(what, reason.to_string());
        }
    }
    let cycles = SLOW.measure(|| c.cycle(handle, LEN), || cycle_in_rust(&gpu));
    report.add("vkgdr_memory_alloc + free, 4 KiB", "Rust", cycles, Goal::Ratio(1.02));
    report.save(NAME, gpu.name());
    compare_calls(&mut report, &c, handle, &gpu)?;
    compare_pools(&mut report, &PoolFunctions::find(&library)?, &c, handle, &gpu)?;
    report.publish(NAME, gpu.name());
    // SAFETY: nothing uses the handle any more.
    unsafe { (c.close)(handle) };
    Ok(())
}

/// Compares functions of vkgdr 0.1 with ours of the same name.
fn compare_with_peer(report: &mut Report, c: &Functions<'_>, handle: Handle, gpu: &str) -> Result {
    let library = peer::load()?.into();
    let old = Functions::find(&library)?;
    let old_handle = old.open()?;
    for (name, len) in [("4 KiB", LEN), ("1 MiB", 1 << 20)] {
        let cycles = SLOW.measure(|| c.cycle(handle, len), || old.cycle(old_handle, len));
        report.add(format!("{CYCLE}, {name}"), "0.1", cycles, Goal::Ratio(1.0));
        report.save(NAME, gpu);
    }
    let (mem, old_mem) = (c.allocate(handle, LEN, 0), old.allocate(old_handle, LEN, 0));
    // SAFETY: the memory is live.
    let getter = || unsafe { (c.device_ptr)(black_box(mem)) };
    // SAFETY: as above.
    let old_getter = || unsafe { (old.device_ptr)(black_box(old_mem)) };
    report.add(GETTER, "0.1", FAST.measure(getter, old_getter), Goal::Ratio(1.3));
    // SAFETY: nothing uses the memory.
    unsafe { (old.free)(old_mem) };
    // SAFETY: as above.
    unsafe { (c.free)(mem) };
    // SAFETY: nothing uses the handle any more.
    unsafe { (old.close)(old_handle) };
    Ok(())
}

/// What the C functions do: nothing is waited for.
fn cycle_in_rust(gpu: &Vkgdr) {
    let memory = Memory::allocate(gpu, LEN, MemoryKind::Mapped).map(black_box);
    let memory = memory.unwrap_or_else(|error| panic!("{error}"));
    // SAFETY: nothing uses the memory.
    unsafe { memory.free_unsynchronized() }.unwrap_or_else(|error| panic!("{error}"));
}

fn compare_calls(report: &mut Report, c: &Functions<'_>, handle: Handle, gpu: &Vkgdr) -> Result {
    let memory = &Memory::allocate(gpu, LEN, MemoryKind::Host)?;
    let mem = c.allocate(handle, LEN, HOST);
    let mut add = |what: &str, call: &mut dyn FnMut() -> Pairs| {
        report.add(format!("vkgdr_memory_{what}"), "Rust", call(), Goal::Nanoseconds(3.0));
        report.save(NAME, gpu.name());
    };
    /// Measures a C getter of `mem` beside a Rust expression.
    macro_rules! getter {
        ($function:ident, $rust:expr) => {
            // SAFETY: the memory is live.
            &mut || FAST.measure(|| unsafe { (c.$function)(black_box(mem)) }, || $rust)
        };
    }
    add("get_device_ptr", getter!(device_ptr, black_box(memory).device_ptr()));
    add("get_host_ptr", getter!(host_ptr, black_box(memory).host_ptr()));
    add("get_size", getter!(size, black_box(memory).len()));
    add("is_coherent", getter!(is_coherent, black_box(memory).is_coherent()));
    // SAFETY: the memory is live.
    let flush = || unsafe { (c.flush)(black_box(mem), 0, black_box(LEN)) };
    let flush_in_rust = || black_box(memory).flush(..black_box(LEN)).unwrap_or_else(|error| panic!("{error}"));
    add("flush", &mut || FAST.measure(flush, flush_in_rust));
    // SAFETY: nothing uses the memory.
    unsafe { (c.free)(mem) };
    Ok(())
}

/// An allocation and a free, also of memory whose address on the device was asked for.
fn compare_pools(
    report: &mut Report,
    pools: &PoolFunctions<'_>,
    c: &Functions<'_>,
    handle: Handle,
    gpu: &Vkgdr,
) -> Result {
    let rust = Pool::new(gpu, PoolOptions::default())?;
    let mut pool = null_mut();
    // SAFETY: the handle is live, and the pool can be written.
    let status = unsafe { (pools.create)(handle, null(), &raw mut pool) };
    assert_eq!(status, 0, "vkgdr_pool_create failed");
    for (case, is_shown) in [("", false), (" with get_device_ptr", true)] {
        let in_c = || {
            // SAFETY: the pool is live.
            let memory = black_box(unsafe { (pools.alloc)(pool, LEN) });
            assert!(!memory.is_null(), "vkgdr_pool_alloc failed");
            if is_shown {
                // SAFETY: the memory is live.
                black_box(unsafe { (c.device_ptr)(memory) });
            }
            // SAFETY: nothing uses the memory.
            unsafe { (c.free)(memory) };
        };
        let in_rust = || {
            let memory = rust.allocate(LEN).map(black_box).unwrap_or_else(|error| panic!("{error}"));
            if is_shown {
                black_box(memory.device_ptr());
            }
            // SAFETY: nothing uses the memory.
            unsafe { memory.free_unsynchronized() }.unwrap_or_else(|error| panic!("{error}"));
        };
        let pairs = FAST.measure(in_c, in_rust);
        if !is_shown {
            report.add("vkgdr_pool_alloc + free at its best, 4 KiB", "Rust", pairs.clone(), Goal::Time(130.0));
        }
        report.add(format!("vkgdr_pool_alloc + free, 4 KiB{case}"), "Rust", pairs, Goal::Ratio(1.3));
        report.save(NAME, gpu.name());
    }
    // SAFETY: nothing uses the pool any more.
    unsafe { (pools.close)(pool) };
    Ok(())
}
