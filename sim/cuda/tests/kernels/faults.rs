//! Faulting kernels: the launch and its context fail, and the message names the instruction, the address and nearby
//! allocations. On the simulated driver only: a GPU reports no details and is left in a bad state.

use support::codes;
use support::cuda::{self, Context, Stream};
use support::vulkan::Vulkan;
use support::{SimCuda, simcuda};

use crate::driver::{Buffer, Call, Module, Pinned, Shape, call, handle, synchronize};
use crate::{KERNELS, Result, assert_says, bytes_of, device_words, good};

/// A plain context for a kernel that fails it.
struct Doomed {
    sim: &'static SimCuda,
    context: Context,
    module: Module,
}

impl Doomed {
    fn new() -> Result<Option<Self>> {
        let Some(sim) = simcuda() else {
            eprintln!("skipped: only the simulated driver reports a kernel's fault");
            return Ok(None);
        };
        let context = Context::create(0);
        let module = good(Module::load(KERNELS))?;
        Ok(Some(Self { sim, context, module }))
    }

    /// Runs a kernel with one thread, which must fail, and returns the message.
    fn run(&self, kernel: &str, arguments: &[u64], code: i32) -> Result<String> {
        self.sim.clear_faults();
        good(good(self.module.function(kernel))?.launch(Shape::ONE, 0, arguments))?;
        assert_eq!(synchronize(0), Err(code));
        let text = self.sim.last_kernel_fault().ok_or("no message")?;
        assert!(!text.contains('\n'), "{text:?}");
        assert_says(&text, &[kernel, "block (0, 0, 0)", "thread (0, 0, 0)"]);
        Ok(text)
    }
}

/// The line number in KERNELS of the first such instruction after the kernel's name.
#[track_caller]
fn line_of(kernel: &str, instruction: &str) -> String {
    let lines = KERNELS.lines().enumerate().skip_while(|(_, line)| !line.contains(&format!(".entry {kernel}(")));
    let found = lines.skip(1).find(|(_, line)| line.contains(instruction));
    found.map(|(index, _)| format!("line {}", index + 1)).unwrap_or_else(|| panic!("{kernel} has no {instruction:?}"))
}

#[test]
fn a_fault_names_its_instruction_its_address_and_what_is_near() -> Result {
    // The kernel, the length of the memory that it gets, if any, and the offset in it; the instruction, the code, what is said.
    for (kernel, len, offset, instruction, code, said) in [
        ("store", 100, 100, "st.global.u32", codes::ILLEGAL_ADDRESS, "100 bytes at START, ended 0 bytes before"),
        ("store", 102, 100, "st.global.u32", codes::ILLEGAL_ADDRESS, "it leaves 102 bytes at START"),
        ("store", 0, 0, "st.global.u32", codes::ILLEGAL_ADDRESS, "a null pointer"),
        ("store", 0, 12, "st.global.u32", codes::ILLEGAL_ADDRESS, "12 bytes behind a null pointer"),
        ("store", 100, 2, "st.global.u32", codes::MISALIGNED_ADDRESS, "misaligned"),
        ("stop", 0, 0, "trap", codes::LAUNCH_FAILED, "trap"),
        ("stuck", 0, 0, "bar.sync", codes::LAUNCH_TIMEOUT, "deadlock"),
    ] {
        let Some(doomed) = Doomed::new()? else { return Ok(()) };
        let buffer = if len > 0 { Some(good(Buffer::new(len))?) } else { None };
        let start = buffer.as_ref().map_or(0, |buffer| buffer.0);
        let text = doomed.run(kernel, &[start + offset, 1], code)?;
        let said = said.replace("START", &format!("{start:#x}"));
        assert_says(&text, &[instruction, &line_of(kernel, instruction), &said]);
        if kernel == "store" {
            assert_says(&text, &[&format!("4 bytes at {:#x}", start + offset)]);
        }
    }
    Ok(())
}

#[test]
fn an_access_to_freed_memory_is_reported_with_its_allocation() -> Result {
    let Some(doomed) = Doomed::new()? else { return Ok(()) };
    let buffer = good(Buffer::new(4096))?;
    let address = buffer.0;
    drop(buffer);
    let text = doomed.run("add_one", &[address + 64, 1], codes::ILLEGAL_ADDRESS)?;
    let (start, line) = (format!("4096 bytes at {address:#x}"), line_of("add_one", "ld.global.u32"));
    assert_says(&text, &["ld.global.u32", &line, &start, "which were freed"]);
    Ok(())
}

#[test]
fn a_host_pointer_is_no_device_address() -> Result {
    let Some(doomed) = Doomed::new()? else { return Ok(()) };
    let vulkan = Vulkan::open(0)?;
    // Its drop reports the context's error.
    let memory = vulkan.memory(4096)?;
    let host = memory.words().as_ptr().expose_provenance();
    assert_ne!(host as u64, memory.address());
    doomed.run("store", &[host as u64, 1], codes::ILLEGAL_ADDRESS)?;
    Ok(())
}

#[test]
fn the_error_stays_with_the_context_and_goes_with_it() -> Result {
    let Some(doomed) = Doomed::new()? else { return Ok(()) };
    let sim = doomed.sim;
    let (before, buffer) = (sim.live_objects(), good(Buffer::new(16))?);
    doomed.run("stop", &[], codes::LAUNCH_FAILED)?;
    let refused = |call: Call| assert_eq!(call, Err(codes::LAUNCH_FAILED));
    refused(synchronize(0));
    refused(doomed.module.function("nothing").map(drop));
    refused(Module::load(KERNELS).map(drop));
    refused(Buffer::new(16).map(drop));
    refused(call!(cuMemsetD8_v2(buffer.0 => u64, 1 => u8, 16 => usize)));
    // Releases succeed nevertheless.
    refused(call!(cuMemFree_v2(buffer.0 => u64)));
    assert_eq!(sim.live_objects(), before);
    let Doomed { context, module, .. } = doomed;
    refused(module.unload());
    context.destroy();

    let context = Context::create(0);
    let module = good(Module::load(KERNELS))?;
    good(good(module.function("nothing"))?.launch(Shape::ONE, 0, &[]))?;
    good(synchronize(0))?;
    drop(module);
    context.destroy();
    Ok(())
}

#[test]
fn a_fault_ends_the_other_kernels_of_its_context() -> Result {
    let Some(doomed) = Doomed::new()? else { return Ok(()) };
    let (stream, flag) = (Stream::create(), good(Pinned::new(0))?);
    good(good(doomed.module.function("wait_for"))?.launch(Shape::ONE, handle(&stream), &[good(flag.device())?, 1]))?;
    let text = doomed.run("stop", &[], codes::LAUNCH_FAILED);
    // The stream is non-blocking: the legacy default stream does not wait for it.
    assert_eq!(synchronize(handle(&stream)), Err(codes::LAUNCH_FAILED));
    assert_says(&text?, &["trap"]);
    assert_eq!(doomed.sim.last_kernel_fault().as_deref().map(|text| text.contains("stop")), Some(true));
    // Each of these returns the context's error.
    drop((stream, flag));
    Ok(())
}

/// A free waits for kernels and not for copies.
#[test]
fn imported_memory_that_is_freed_under_a_copy_is_gone_for_it() -> Result {
    let Some(_doomed) = Doomed::new()? else { return Ok(()) };
    let (vulkan, stream, copy) = (Vulkan::open(0)?, Stream::create(), good(Buffer::new(4096))?);
    let memory = vulkan.memory(4096)?;
    let gate = stream.hold();
    cuda::copy_dtod_async(copy.0, memory.address(), 4096, &stream);
    drop(memory);
    gate.open();
    assert_eq!(synchronize(handle(&stream)), Err(codes::ILLEGAL_ADDRESS));
    Ok(())
}

#[test]
fn the_drivers_own_memory_stays_for_copies_that_were_queued_before_it_was_freed() -> Result {
    let Some(doomed) = Doomed::new()? else { return Ok(()) };
    let (stream, values, copy) = (Stream::create(), good(Buffer::new(400))?, good(Buffer::new(400))?);
    cuda::memcpy_htod(values.0, &bytes_of(&[7; 100]));
    let gate = stream.hold();
    cuda::copy_dtod_async(copy.0, values.0, 400, &stream);
    let (before, address) = (doomed.sim.live_objects_of("memory"), values.0);
    drop(values);
    assert_eq!(doomed.sim.live_objects_of("memory"), before - 1);
    // The address is not reused while queued work uses it.
    let others: Vec<Buffer> =
        (0..50).map(|_| Buffer::new(400)).collect::<Call<_>>().map_err(|code| code.to_string())?;
    assert!(others.iter().all(|other| other.0 != address));
    gate.open();
    stream.synchronize();
    assert_eq!(device_words(copy.0, 100), [7; 100]);
    assert_says(&doomed.run("add_one", &[address, 1], codes::ILLEGAL_ADDRESS)?, &["which were freed"]);
    Ok(())
}

#[test]
fn registered_memory_may_be_unmapped_as_soon_as_it_is_unregistered() -> Result {
    let Some(_doomed) = Doomed::new()? else { return Ok(()) };
    let (len, stream, copy) = (4096_usize, Stream::create(), good(Buffer::new(4096))?);
    let (read_write, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, anywhere.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), len, read_write, private, -1, 0) }.expose_provenance();
    good(call!(cuMemHostRegister_v2(page => usize, len => usize, 0 => u32)))?;
    let gate = stream.hold();
    cuda::copy_dtod_async(copy.0, page as u64, len, &stream);
    good(call!(cuMemHostUnregister(page => usize)))?;
    // SAFETY: nothing uses the mapping: its registration has ended, also for the copy.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(page), len) };
    gate.open();
    // A reported fault, not a crash.
    assert_eq!(synchronize(handle(&stream)), Err(codes::ILLEGAL_ADDRESS));
    Ok(())
}

#[test]
fn clearing_the_faults_forgets_the_message() -> Result {
    let Some(doomed) = Doomed::new()? else { return Ok(()) };
    doomed.run("stop", &[], codes::LAUNCH_FAILED)?;
    doomed.sim.clear_faults();
    assert_eq!(doomed.sim.last_kernel_fault(), None);
    Ok(())
}
