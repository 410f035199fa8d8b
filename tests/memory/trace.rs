//! Mapped memory makes vkgdr 0.1's driver calls: the same functions in the same order with the same arguments, since these
//! are known to work on GPUs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use support::{Result, child, free};
use vkgdr::{Memory, RawMemory, Vkgdr};

use crate::{MAPPED, NONE};

/// The calls of vkgdr 0.1's `vkgdr_open(0, 0)`, from its source (`vkgdr.c`), in the form of the simulator's trace, which has
/// no queries of properties.
const OPEN: &str = "\
vkCreateInstance
  apiVersion=1.1
vkEnumeratePhysicalDevices
vkEnumeratePhysicalDevices
vkCreateDevice
  extension=VK_KHR_external_memory_fd
  queueFamilyIndex=0 queueCount=1
";
/// Those of `vkgdr_memory_alloc(gpu, 4096, 0)`.
const ALLOCATE: &str = "\
vkAllocateMemory
  allocationSize=4096 memoryTypeIndex=0
  export handleTypes=0x1
vkMapMemory
  offset=0 size=0xffffffffffffffff flags=0
vkGetMemoryFdKHR
  handleType=0x1
cuImportExternalMemory
  type=1 size=4096 flags=0
cuExternalMemoryGetMappedBuffer
  offset=0 size=4096 flags=0
";
/// Those of `vkgdr_memory_free`, but for `vkUnmapMemory` before the last one: freeing unmaps (Vulkan specification,
/// vkFreeMemory).
const FREE: &str = "\
cuMemFree
cuDestroyExternalMemory
vkFreeMemory
";
/// Calls that vkgdr 0.1 does not make, which neither change memory nor how it is made.
const OTHERS: [&str; 19] = [
    // Its caller made these.
    "cuInit",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    // Facts about the GPU. vkgdr 0.1 asks for the UUID, too.
    "cuDeviceGetUuid",
    "cuDriverGetVersion",
    "cuDeviceGetName",
    "vkEnumerateDeviceExtensionProperties",
    "  extension=VK_EXT_memory_budget",
    // Of semaphores that programs may make.
    "  extension=VK_KHR_timeline_semaphore",
    "  extension=VK_KHR_external_semaphore_fd",
    // The memory's context, and the wait for the device's work.
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetId",
    "cuDevicePrimaryCtxGetState",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuCtxSynchronize",
    "cuPointerGetAttributes",
];
const STEP: &str = "== ";

/// The part of the trace between a step's mark and the next one, without the calls of [`OTHERS`]. Versions of a function
/// count as one.
fn calls(trace: &str, step: &str) -> String {
    let lines = trace.lines().skip_while(|line| line.strip_prefix(STEP) != Some(step)).skip(1);
    let lines = lines.take_while(|line| !line.starts_with(STEP));
    let names = lines.map(|line| ["_v2", "_v3"].iter().find_map(|suffix| line.strip_suffix(suffix)).unwrap_or(line));
    names.filter(|name| !OTHERS.contains(name)).fold(String::new(), |text, line| text + line + "\n")
}

/// The child: appends the name of each step to the trace before it takes it.
fn trace() -> Result {
    let path = PathBuf::from(std::env::var_os("SIMCUDA_TRACE").ok_or("no file for the trace")?);
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    let mut step = |name: &str| writeln!(file, "{STEP}{name}");
    step("open")?;
    let gpu = Vkgdr::open_primary_context(0, NONE)?;
    // The first allocation of a process may ask for more.
    Memory::allocate(&gpu, 4096, MAPPED)?.free()?;
    step("allocate raw memory")?;
    let mut raw = RawMemory::allocate(&gpu, 4096, MAPPED)?;
    step("free raw memory")?;
    free(&mut raw)?;
    step("allocate memory")?;
    let memory = Memory::allocate(&gpu, 4096, MAPPED)?;
    step("free memory")?;
    memory.free()?;
    step("end")?;
    child::say("traced");
    Ok(())
}

#[test]
fn mapped_memory_makes_the_driver_calls_of_vkgdr_0_1() -> Result {
    if child::role().is_some() {
        return trace();
    }
    let profiled = std::env::var_os("VKLAYER_PROFILE").is_some();
    if profiled || support::simcuda().is_none() || support::vklayer().is_none() {
        return support::skip(
            "needs the trace of the simulated driver and the faults layer, and lavapipe's memory types",
        );
    }
    let folder = support::tempdir()?;
    let path = folder.path().join("trace");
    let mut command = child::command("trace")?;
    command.env("SIMCUDA_TRACE", &path);
    child::run(command)?;
    let trace = fs::read_to_string(&path)?;
    // The first memory is made in the same step.
    assert_eq!(calls(&trace, "open"), [OPEN, ALLOCATE, FREE].concat(), "{trace}");
    for (step, expected) in [
        ("allocate raw memory", ALLOCATE),
        ("free raw memory", FREE),
        ("allocate memory", ALLOCATE),
        ("free memory", FREE),
    ] {
        assert_eq!(calls(&trace, step), expected, "{step}: {trace}");
    }
    Ok(())
}
