//! Which calls wait behind a kernel that is still running.
#![forbid(unsafe_code)]

use std::thread::sleep;
use std::time::Duration;

use vkgdr::{CopyPolicy, MemoryKind};

use super::timed;
use crate::cuda::{Answer, Buffer, Imported, Kernel, Module, Pinned, Registered, Stream};
use crate::{Probe, allocate};

const KERNEL: Duration = Duration::from_millis(500);
const LEN: usize = 1 << 20;

/// The calls, each asked in a process of its own. The last one is known to wait.
pub(super) const CALLS: &[&str] = &[
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemHostAlloc",
    "cuMemAlloc",
    "cuStreamCreate",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuModuleUnload",
    "cuModuleUnload of the kernel's",
    "a first launch on another stream",
    "vkAllocateMemory",
    "cuImportExternalMemory",
    "cuExternalMemoryGetMappedBuffer",
    "the library's mapped allocation",
    "the library's host allocation",
    "the library's first copy by the engine",
    "cuCtxSynchronize",
];

/// Makes the call while a kernel runs on a non-blocking stream, which lasts [`KERNEL`].
pub(super) fn waits(probe: &Probe, call: &str) -> Answer<String> {
    let kernel = Kernel::load("spin").map_err(|refusal| format!("needs a kernel that runs for a while: {refusal}"))?;
    let stream = Stream::new()?;
    let mut pages = vec![0_u64; LEN / 8];
    let first: *mut u8 = pages.as_mut_ptr().cast();
    // Everything that the call needs is made before the kernel starts.
    match call {
        "cuMemHostRegister" => behind(&stream, &kernel, || Registered::new(first, LEN, 0)),
        "cuMemHostUnregister" => {
            let registered = Registered::new(first, LEN, 0)?;
            behind(&stream, &kernel, || {
                drop(registered);
                Ok(())
            })
        }
        "cuMemHostAlloc" => behind(&stream, &kernel, || Pinned::new(LEN)),
        "cuMemAlloc" => behind(&stream, &kernel, || Buffer::new(64 << 20)),
        "cuStreamCreate" => behind(&stream, &kernel, Stream::new),
        "cuModuleLoadData" => behind(&stream, &kernel, || Kernel::load("copy")),
        "cuModuleGetFunction" => {
            let module = Module::load()?;
            behind(&stream, &kernel, || module.function("copy"))
        }
        "cuModuleUnload" => {
            let module = Module::load()?;
            behind(&stream, &kernel, || module.unload())
        }
        "cuModuleUnload of the kernel's" => {
            let module = Module::load()?;
            behind(&stream, &module.function("spin")?, || module.unload())
        }
        "a first launch on another stream" => {
            let (first, other) = (Module::load()?.function("copy")?, Stream::new()?);
            let (source, target) = (Buffer::new(4)?, Buffer::new(4)?);
            println!("loading of kernels: {:?}", Module::loading());
            behind(&stream, &kernel, || {
                let (launched, time) = timed(|| other.launch(&first, &[source.0, target.0, 0]));
                println!("the launch returned after {time:.1?}");
                launched?;
                other.synchronize()
            })
        }
        "vkAllocateMemory" => {
            let vulkan = probe.vulkan()?;
            behind(&stream, &kernel, || vulkan.allocate(vulkan.device_local(), LEN as u64))
        }
        "cuImportExternalMemory" => {
            let vulkan = probe.vulkan()?;
            let fd = vulkan.allocate(vulkan.device_local(), LEN as u64)?.export()?;
            behind(&stream, &kernel, || Imported::new(fd, LEN as u64, false))
        }
        "cuExternalMemoryGetMappedBuffer" => {
            let vulkan = probe.vulkan()?;
            let memory = vulkan.allocate(vulkan.device_local(), LEN as u64)?;
            let imported = Imported::new(memory.export()?, LEN as u64, false)?;
            behind(&stream, &kernel, || imported.map(0, LEN as u64))
        }
        "the library's mapped allocation" | "the library's host allocation" => {
            let kind = if call.contains("host") { MemoryKind::Host } else { MemoryKind::Mapped };
            let gpu = probe.vkgdr()?;
            // The first one sets up the Vulkan device.
            drop(allocate(&gpu, LEN, kind)?);
            behind(&stream, &kernel, || allocate(&gpu, LEN, kind))
        }
        "the library's first copy by the engine" => {
            let gpu = probe.vkgdr()?;
            let memory = allocate(&gpu, LEN, MemoryKind::Mapped)?;
            let copy = || memory.write_with(CopyPolicy::Dma, 0, &pages).map_err(|error| error.to_string());
            behind(&stream, &kernel, copy)
        }
        _ => behind(&stream, &kernel, || probe.cuda.synchronize()),
    }
}

fn behind<T>(stream: &Stream, kernel: &Kernel, call: impl FnOnce() -> Answer<T>) -> Answer<String> {
    stream.launch(kernel, &[u64::try_from(KERNEL.as_nanos()).unwrap_or(u64::MAX)])?;
    // So that it runs.
    sleep(KERNEL / 10);
    let (result, time) = timed(call);
    stream.synchronize()?;
    // Dropped after the kernel has ended, so that only the call itself is timed.
    drop(result?);
    let answer = if time > KERNEL / 2 { "WAITS" } else { "does not wait" };
    Ok(format!("{answer} ({time:.1?}, the kernel runs {KERNEL:?})"))
}
