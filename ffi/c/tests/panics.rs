//! A panic of the program's logger, the one function of the program that the library calls, comes out of no export: the call
//! ends as if nothing had panicked, and the library works on.
//!
//! Here the logger panics on the first line after it was armed, and the simulated driver fails a call whose failure is
//! logged. What the boundary does with a panic of the library's own is tested beside it (`src/boundary.rs`).
#![expect(unsafe_code, reason = "calls the exports")]

use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{LevelFilter, Log, Metadata, Record};
use support::cuda::{PrimaryContext, Stream};
use support::{Controls, child, simcuda, skip};
use vkgdr_c::vkgdr_status::{VKGDR_ERROR_CUDA, VKGDR_SUCCESS};
use vkgdr_c::*;
use vkgdr_rs::cudarc::driver::sys::CUresult;

const SUCCESS: i32 = VKGDR_SUCCESS as i32;
const UNKNOWN: i32 = CUresult::CUDA_ERROR_UNKNOWN as i32;

static ARMED: AtomicBool = AtomicBool::new(false);

struct Panicking;

impl Log for Panicking {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        assert!(!ARMED.swap(false, Ordering::SeqCst), "the logger panics at: {}", record.args());
    }

    fn flush(&self) {}
}

/// Makes the next call of `function` fail, and the next line that is logged panic.
fn arm(sim: &Controls, functions: &[&str]) {
    static LOGGER: Once = Once::new();
    LOGGER.call_once(|| {
        if log::set_logger(&Panicking).is_ok() {
            log::set_max_level(LevelFilter::Trace);
        }
    });
    for function in functions {
        sim.fail(function, 1, UNKNOWN);
    }
    ARMED.store(true, Ordering::SeqCst);
}

/// The armed logger was reached: there was a panic.
#[track_caller]
fn panicked(sim: &Controls) {
    assert!(!ARMED.swap(false, Ordering::SeqCst), "nothing was logged, so that nothing has panicked");
    sim.clear_faults();
}

fn open() -> vkgdr_t {
    let mut g = null_mut();
    // SAFETY: the handle can be written.
    let status = unsafe { vkgdr_open_primary_context(0, 0, &raw mut g) };
    assert_eq!(status, SUCCESS);
    g
}

fn allocate(g: vkgdr_t) -> vkgdr_memory_t {
    // SAFETY: the tests close a handle when they are done with it.
    let mem = unsafe { vkgdr_memory_alloc(g, 4096, 0) };
    assert!(!mem.is_null());
    mem
}

fn last_error() -> Option<String> {
    let text = vkgdr_last_error();
    if text.is_null() {
        return None;
    }
    // SAFETY: a string that ends with a zero byte.
    let copy = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: the caller's to free, and not used again.
    unsafe { libc::free(text.cast()) };
    Some(copy)
}

/// The library still opens, allocates, frees and closes, and nothing is left behind in the driver.
#[track_caller]
fn check_that_all_works(sim: &Controls, g: vkgdr_t) {
    let mem = allocate(g);
    // SAFETY: live, and not used again.
    let freed = unsafe { vkgdr_memory_free_checked(mem) };
    assert_eq!(freed, SUCCESS);
    // SAFETY: live; NULL is allowed.
    let collected = unsafe { vkgdr_device_collect(g, null_mut()) };
    assert_eq!(collected, SUCCESS);
    // SAFETY: not used again.
    unsafe { vkgdr_close(g) };
    for noun in ["mapped", "external", "event", "primary"] {
        assert_eq!(sim.live_objects_of(noun), 0, "{noun}");
    }
}

#[test]
fn a_panic_of_the_logger_in_alloc_leaves_the_drivers_error() {
    let Some(sim) = simcuda() else { skip!("faults are injected into the simulated driver") };
    let g = open();
    arm(sim, &["cuExternalMemoryGetMappedBuffer", "cuDestroyExternalMemory"]);
    // SAFETY: live.
    let mem = unsafe { vkgdr_memory_alloc(g, 4096, 0) };
    panicked(sim);
    assert!(mem.is_null());
    assert_names_the_call();
    check_that_all_works(sim, g);
}

/// The last error is that of the driver's call.
#[track_caller]
fn assert_names_the_call() {
    let text = last_error().unwrap_or_default();
    assert!(text.contains("cuExternalMemoryGetMappedBuffer"), "{text}");
    let mut status = 0;
    // SAFETY: the status can be written, and NULL is allowed.
    unsafe { vkgdr_last_error_codes(&raw mut status, null_mut(), null_mut()) };
    assert_eq!(status, VKGDR_ERROR_CUDA as i32);
}

fn pool(g: vkgdr_t) -> vkgdr_pool_t {
    let mut pool = null_mut();
    // SAFETY: live, and the pool can be written.
    let status = unsafe { vkgdr_pool_create(g, null(), &raw mut pool) };
    assert_eq!(status, SUCCESS);
    pool
}

#[test]
fn a_panic_of_the_logger_in_a_pools_alloc_leaves_the_drivers_error_and_the_pool_works_on() {
    let Some(sim) = simcuda() else { skip!("faults are injected into the simulated driver") };
    let g = open();
    let pool = pool(g);
    arm(sim, &["cuExternalMemoryGetMappedBuffer", "cuDestroyExternalMemory"]);
    // SAFETY: live.
    let mem = unsafe { vkgdr_pool_alloc(pool, 4096) };
    panicked(sim);
    assert!(mem.is_null());
    assert_names_the_call();
    // SAFETY: live.
    let mem = unsafe { vkgdr_pool_alloc(pool, 4096) };
    assert!(!mem.is_null());
    assert_eq!(last_error(), None);
    // SAFETY: not used again.
    unsafe { vkgdr_memory_free(mem) };
    // SAFETY: not used again.
    unsafe { vkgdr_pool_close(pool) };
    check_that_all_works(sim, g);
}

#[test]
fn a_panic_of_the_logger_in_a_pools_trim_or_close_changes_nothing() {
    let Some(sim) = simcuda() else { skip!("faults are injected into the simulated driver") };
    let g = open();
    let pools = [pool(g), pool(g)];
    for pool in pools {
        // SAFETY: live.
        let mem = unsafe { vkgdr_pool_alloc(pool, 4096) };
        // SAFETY: not used again.
        let freed = unsafe { vkgdr_memory_free_checked(mem) };
        assert_eq!(freed, SUCCESS);
    }
    arm(sim, &["cuMemFree"]);
    let mut freed = 77;
    // SAFETY: live, and the number can be written.
    let status = unsafe { vkgdr_pool_trim(pools[0], 0, &raw mut freed) };
    panicked(sim);
    assert!(status == SUCCESS && freed >= 4096, "{status}, {freed} bytes");
    arm(sim, &["cuMemFree"]);
    // SAFETY: not used again.
    unsafe { vkgdr_pool_close(pools[1]) };
    panicked(sim);
    // SAFETY: not used again.
    unsafe { vkgdr_pool_close(pools[0]) };
    check_that_all_works(sim, g);
}

#[test]
fn a_panic_in_a_function_without_a_status_is_swallowed() {
    let Some(sim) = simcuda() else { skip!("faults are injected into the simulated driver") };
    let (g, mut part) = (open(), null_mut());
    let whole = allocate(g);
    // SAFETY: live, and the region can be written.
    let status = unsafe { vkgdr_memory_create_region(whole, 0, 1, &raw mut part) };
    assert_eq!(status, SUCCESS);
    // SAFETY: live, and not used again.
    unsafe { vkgdr_memory_free(whole) };
    arm(sim, &["cuMemFree"]);
    // SAFETY: live, and not used again.
    unsafe { vkgdr_memory_free(part) };
    panicked(sim);
    check_that_all_works(sim, g);
}

#[test]
fn a_panic_in_close_is_swallowed() {
    let Some(sim) = simcuda() else { skip!("faults are injected into the simulated driver") };
    let (g, other) = (open(), open());
    arm(sim, &["cuDevicePrimaryCtxRelease"]);
    // SAFETY: live, and not used again.
    unsafe { vkgdr_close(other) };
    panicked(sim);
    check_that_all_works(sim, g);
}

#[test]
fn a_panic_of_the_logger_while_frees_are_collected_changes_nothing() {
    let Some(sim) = simcuda() else { skip!("faults are injected into the simulated driver") };
    let g = open();
    let context = PrimaryContext::retain_and_push(0);
    let stream = Stream::create();
    let gate = stream.hold();
    // SAFETY: not used again; the stream outlives its work.
    let freed = unsafe { vkgdr_memory_free_on_stream(allocate(g), stream.raw().cast()) };
    assert_eq!(freed, SUCCESS);
    gate.open();
    stream.synchronize();
    drop((stream, context));
    arm(sim, &["cuMemFree"]);
    let mut count = 77;
    // SAFETY: live, and the number can be written.
    let status = unsafe { vkgdr_device_collect(g, &raw mut count) };
    panicked(sim);
    assert_eq!((status, count), (SUCCESS, 1));
    check_that_all_works(sim, g);
}

/// The complaint about `VKGDR_COPY` is logged by the first allocation of a process.
#[test]
fn a_panic_of_the_logger_in_the_first_alloc_changes_nothing() -> support::Result {
    let Some(sim) = simcuda() else { return skip("faults are injected into the simulated driver") };
    if child::role().is_none() {
        let mut command = child::command("complaint")?;
        let output = command.env("VKGDR_COPY", "nonsense").output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.lines().any(|line| child::said(line) == Some("done")), "{errors}");
        return Ok(());
    }
    let g = open();
    arm(sim, &[]);
    let mem = allocate(g);
    panicked(sim);
    assert_eq!(last_error(), None);
    // SAFETY: live, and not used again.
    unsafe { vkgdr_memory_free(mem) };
    check_that_all_works(sim, g);
    child::say("done");
    Ok(())
}
