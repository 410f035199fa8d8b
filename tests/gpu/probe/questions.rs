//! The questions, in order: the most valuable first, since time may run out, and those that fill memory last. Each prints its
//! details and returns its answer in one line. What else is assumed of a driver, the tests find out on a GPU.
#![expect(unsafe_code, reason = "frees memory that no work uses")]

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags, Vkgdr};

use crate::cuda::{self, Answer, Buffer, Spinner};
use crate::host::MappedFile;

pub(crate) struct Question {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// Asked in a process each, so that a crash loses one answer. One without a name for a question that has none.
    pub(crate) parts: &'static [&'static str],
    pub(crate) ask: fn(&str) -> Answer<String>,
    /// Variables that the process has from its start.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

const fn question(
    id: &'static str,
    title: &'static str,
    parts: &'static [&'static str],
    ask: fn(&str) -> Answer<String>,
) -> Question {
    Question { id, title, parts, ask, environment: &[] }
}

/// The prefix of a refusal that is right on this machine.
pub(crate) const SKIPPED: &str = "skipped: ";

const ONCE: &[&str] = &[""];
/// The Vulkan loader finds no driver, so that the library calls `libEGL_nvidia.so.0` without it. Loaders before 1.3.207 know
/// the second variable only. No such file can exist.
const WITHOUT_LOADER: &[(&str, &str)] =
    &[("VK_DRIVER_FILES", "/dev/null/icd.json"), ("VK_ICD_FILENAMES", "/dev/null/icd.json")];

pub(crate) const ALL: [Question; 9] = [
    question("M10", "UUIDs of CUDA and Vulkan", ONCE, uuids),
    question("M5", "import of each kind", &["mapped", "host", "device"], import),
    Question {
        environment: WITHOUT_LOADER,
        ..question("M5e", "import without the Vulkan loader", &["mapped"], import)
    },
    question("M1", "pointer attributes", &["mapped", "host", "device", "cuMemAlloc"], attributes),
    question(
        "B1",
        "the CPU's mapping of a dma-buf",
        &["cuMemAlloc, flags 0", "cuMemAlloc, flags PCIE", "imported, flags 0", "imported, flags PCIE"],
        mapping,
    ),
    question("C2", "a primary context after a reset", ONCE, reset),
    question(
        "O2",
        "does it wait behind a running kernel",
        &[
            "an allocation, mapped",
            "an allocation, host",
            "an allocation, device",
            "a free, mapped",
            "a free, host",
            "a free, device",
            "the first copy by the engine, mapped",
            "cuCtxSynchronize",
        ],
        waits,
    ),
    question("L1", "mapped memory in one allocation", ONCE, largest_mapped),
    question("L3", "mapped memory in all", ONCE, total_mapped),
];

/// Opens the GPU through the library under test.
pub(crate) fn open() -> Answer<Vkgdr> {
    Vkgdr::open_primary_context(cuda::DEVICE, OpenFlags::empty()).map_err(|error| error.to_string())
}

fn allocate(vkgdr: &Vkgdr, len: usize, kind: MemoryKind) -> Answer<Memory> {
    Memory::allocate(vkgdr, len, kind).map_err(|error| error.to_string())
}

fn kind_named(name: &str) -> MemoryKind {
    MemoryKind::ALL.into_iter().find(|kind| kind.to_string() == name).unwrap_or_default()
}

/// "yes", or "no" with the reason.
fn yes_no<T>(answer: &Answer<T>) -> String {
    answer.as_ref().map_or_else(|refusal| format!("no ({refusal})"), |_| "yes".to_owned())
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "NO" }
}

/// The result and duration of a call.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed())
}

fn uuids(_: &str) -> Answer<String> {
    let [v2, v1] = cuda::uuids();
    println!("cuDeviceGetUuid_v2: {v2:?}");
    println!("cuDeviceGetUuid:    {v1:?}");
    let vulkan = open()?.vulkan_handles().map(|_| "Vulkan has a device with the UUID of cuDeviceGetUuid_v2".to_owned());
    let same = if v1 == v2 { "both CUDA calls agree" } else { "the CUDA calls DIFFER" };
    Ok(format!("{}; {same}", vulkan.unwrap_or_else(|refusal| format!("NO MATCH ({refusal})"))))
}

fn import(kind: &str) -> Answer<String> {
    let memory = allocate(&open()?, 1 << 20, kind_named(kind));
    Ok(yes_no(&memory.and_then(|memory| cuda::memset(memory.device_ptr(), 1, 1 << 20))))
}

fn attributes(part: &str) -> Answer<String> {
    if part == "cuMemAlloc" {
        return cuda::pointer_attributes(Buffer::new(1 << 20)?.0);
    }
    let memory = allocate(&open()?, 1 << 20, kind_named(part))?;
    let of = |address| cuda::pointer_attributes(address).unwrap_or_else(|refusal| refusal);
    let device = format!("device_ptr: {}", of(memory.device_ptr()));
    Ok(match memory.host_ptr() {
        Some(host) => format!("{device}; host_ptr: {}", of(host.as_ptr() as u64)),
        None => device,
    })
}

// ---- dma-bufs -------------------------------------------------------------------------------------------------

const LEN: usize = 2 << 20;
/// Bytes of the pages of which each has a number as its bytes.
const PAGE: usize = 4096;

/// Each step prints its own line, since later ones may end the process.
fn mapping(part: &str) -> Answer<String> {
    // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED and _DMA_BUF_MMAP_SUPPORTED.
    println!("device attributes 124, 152: {:?}", [124, 152].map(cuda::attribute));
    println!("cuDriverGetVersion: {:?}", cuda::version());
    // CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE.
    let flags = u64::from(part.ends_with("PCIE"));
    let (memory, buffer);
    let address = if part.starts_with("imported") {
        (memory, buffer) = (Some(allocate(&open()?, LEN, MemoryKind::Mapped)?), None);
        memory.as_ref().map_or(0, Memory::device_ptr)
    } else {
        buffer = Some(Buffer::new(LEN)?);
        buffer.as_ref().map_or(0, |buffer| buffer.0)
    };
    println!("memory at {address:#x}");
    // Each of the first pages has its number, from 1 on.
    for page in 0..32_u8 {
        cuda::memset(address + u64::from(page) * PAGE as u64, page + 1, PAGE)?;
    }
    cuda::synchronize()?;
    let exported = cuda::dma_buf(address, LEN, flags);
    println!("exported: {}", exported.as_ref().map_or_else(Clone::clone, size_of_file));
    let fd = match exported {
        Ok(fd) => fd,
        Err(refusal) => return Ok(format!("not exported ({refusal})")),
    };
    for (offset, len) in [(0, PAGE), (PAGE, PAGE), (PAGE, 64 << 10), (64 << 10, 64 << 10)] {
        let first = cuda::dma_buf(address + offset as u64, len, flags).and_then(|fd| {
            println!("exported, {len} bytes at +{offset}: {}", size_of_file(&fd));
            MappedFile::new(fd.as_fd(), len).map(|mapped| mapped.get(0) & 0xff)
        });
        println!("{len} bytes from page {} on begin with that of page {first:?}", offset / PAGE + 1);
    }
    let mapped = match MappedFile::new(fd.as_fd(), LEN) {
        Ok(mapped) => mapped,
        Err(refusal) => return Ok(format!("exported, not mapped ({refusal})")),
    };
    println!("mapped at {:?}", mapped.start);
    let free = || buffer.map_or(Ok(()), Buffer::free);
    let meaning = if cuda::is_simulated() { "MEANINGLESS, simulated: " } else { "" };
    Ok(format!("{meaning}{}", shared(address, fd, &mapped, free)?))
}

fn size_of_file(fd: &OwnedFd) -> String {
    let size = fd.try_clone().and_then(|fd| File::from(fd).seek(SeekFrom::End(0)));
    size.map_or_else(|error| format!("yes, lseek says {error}"), |size| format!("yes, lseek says {size} bytes"))
}

/// What both sides see, and what the CPU sees once the descriptor is closed and the memory freed.
fn shared(address: u64, fd: OwnedFd, mapped: &MappedFile, free: impl FnOnce() -> Answer<()>) -> Answer<String> {
    const WORD: u32 = 0x600d_f00d;
    let first_words = [0, 1, 16].map(|page| mapped.get(page * PAGE / 4));
    println!("the CPU sees at +0, +4 KiB and +64 KiB: {first_words:x?}");
    let seen_by_cpu = yes(first_words == [0x0101_0101, 0x0202_0202, 0x1111_1111]);
    let last = LEN / 4 - 1;
    mapped.set(last, WORD);
    let seen = cuda::read_word(address + (last * 4) as u64)?;
    println!("the device sees {seen:#x} where the CPU wrote {WORD:#x}");
    let mut buffer = vec![0x0a0a_0a0a_u32; (1 << 20) / 4];
    let write = rate(|| mapped.write(&buffer));
    let read = rate(|| mapped.read(&mut buffer));
    println!("1 MiB by the CPU: write {write}, read {read}");
    drop(fd);
    let closed = mapped.get(last);
    println!("after the descriptor was closed the CPU sees {closed:#x}");
    println!("cuMemFree: {}", yes_no(&free()));
    let after_free = mapped.get(last);
    println!("after it the CPU sees {after_free:#x}");
    cuda::synchronize()?;
    Ok(format!(
        "the CPU sees the device's bytes: {seen_by_cpu}, the device the CPU's: {}; 1 MiB write {write}, read {read}; the \
         same bytes after close: {}, after cuMemFree: {}",
        yes(seen == WORD),
        yes(closed == WORD),
        yes(after_free == WORD)
    ))
}

/// The rate of copies of 1 MiB, by the best of a few.
fn rate(mut copy: impl FnMut()) -> String {
    let best = (0..5).map(|_| timed(&mut copy).1).min().unwrap_or_default();
    format!("{:.2} GB/s", f64::from(1 << 20) / best.as_secs_f64() / 1e9)
}

// ---- contexts and kernels -------------------------------------------------------------------------------------

/// Whether a primary context has another id after a reset, and another address. No call names the context that is gone.
fn reset(_: &str) -> Answer<String> {
    let (address, id) = cuda::current_context()?;
    println!("before: {address:#x}, id {id}, active: {:?}", cuda::has_primary_context());
    cuda::leave_and_reset()?;
    let active = cuda::has_primary_context();
    cuda::open()?;
    let (new_address, new_id) = cuda::current_context()?;
    println!("retained again: {new_address:#x}, id {new_id}, active: {:?}", cuda::has_primary_context());
    let works = yes_no(&Buffer::new(4096));
    let same = |is_same| if is_same { "the same" } else { "another" };
    Ok(format!(
        "active after the reset: {active:?}; the next one has {} address, {} id, and allocates: {works}",
        same(address == new_address),
        same(id == new_id)
    ))
}

/// Makes a call of the library while a kernel runs on a non-blocking stream, which lasts [`KERNEL`].
fn waits(part: &str) -> Answer<String> {
    const KERNEL: Duration = Duration::from_millis(500);
    let spinner = Spinner::new().map_err(|refusal| format!("needs a kernel that runs for a while: {refusal}"))?;
    let (call, kind) = part.split_once(", ").unwrap_or((part, "mapped"));
    let (gpu, kind, bytes) = (open()?, kind_named(kind), vec![0_u8; 1 << 20]);
    // The first one sets up the Vulkan device. Everything that the call needs is made before the kernel starts.
    let mut memory = Some(allocate(&gpu, bytes.len(), kind)?);
    spinner.start(u64::try_from(KERNEL.as_nanos()).unwrap_or(u64::MAX))?;
    // So that it runs.
    sleep(KERNEL / 10);
    let (result, time) = timed(|| match (call, memory.take_if(|_| call == "a free"), &memory) {
        ("an allocation", ..) => allocate(&gpu, bytes.len(), kind).map(Some),
        // SAFETY: no work uses it. The library itself would wait for the context.
        (_, Some(memory), _) => unsafe { memory.free_unsynchronized() }.map(|()| None).map_err(|e| e.to_string()),
        ("cuCtxSynchronize", ..) => cuda::synchronize().map(|()| None),
        (.., Some(memory)) => memory.write_with(CopyPolicy::Dma, 0, &bytes).map(|()| None).map_err(|e| e.to_string()),
        _ => Err(format!("there is no {call}")),
    });
    spinner.finish()?;
    // Dropped after the kernel has ended, so that only the call itself is timed.
    drop(result?);
    let answer = if time > KERNEL / 2 { "WAITS" } else { "does not wait" };
    Ok(format!("{answer} ({time:.1?}, the kernel runs {KERNEL:?})"))
}

// ---- limits ---------------------------------------------------------------------------------------------------

/// The GPU, and the bytes of its mapped memory. Fails for a small BAR: filling one was seen to freeze displays and to raise
/// Xid 31 and 154 (NVIDIA/open-gpu-kernel-modules issues 1134 and 1303).
fn large_bar() -> Answer<(Vkgdr, u64)> {
    const SMALLEST: u64 = 1 << 30;
    let gpu = open()?;
    let total = gpu.memory_info(MemoryKind::Mapped).map_err(|error| error.to_string())?.total;
    if total >= SMALLEST {
        return Ok((gpu, total));
    }
    Err(format!("{SKIPPED}the BAR has {} MiB, and filling one below 1 GiB can freeze a display", total >> 20))
}

/// Allocates, writes and reads both ends.
fn touched(gpu: &Vkgdr, size: u64) -> Answer<Memory> {
    let len = usize::try_from(size).map_err(|error| error.to_string())?;
    let memory = allocate(gpu, len, MemoryKind::Mapped)?;
    for offset in [0, len - 4] {
        let mut seen = [0_u32];
        let done = memory.write(offset, &[0x1234_5678_u32]).and_then(|()| memory.read(offset, &mut seen));
        done.map_err(|error| error.to_string())?;
        if seen != [0x1234_5678] {
            return Err(format!("the word at {offset} does not keep what was written"));
        }
    }
    Ok(memory)
}

/// Halves the size from the heap's on until an allocation succeeds.
fn largest_mapped(_: &str) -> Answer<String> {
    let (gpu, total) = large_bar()?;
    let mut refusal = "nothing refused".to_owned();
    let sizes = std::iter::successors(Some(total), |size| Some(size / 2)).take_while(|size| *size > 16 << 20);
    for size in sizes.map(|size| size.next_multiple_of(2 << 20)) {
        match touched(&gpu, size.min(total)) {
            Ok(_) => return Ok(format!("{} MiB of a heap of {} MiB, {refusal}", size >> 20, total >> 20)),
            Err(error) => refusal = format!("the double: {error}"),
        }
        println!("{} MiB: {refusal}", size >> 20);
    }
    Ok(refusal)
}

/// Allocates 1/64 of the heap at a time until an allocation fails.
fn total_mapped(_: &str) -> Answer<String> {
    /// Less than the time limit of the process, which also opens the GPU.
    const TIMEOUT: Duration = Duration::from_secs(9);
    let (gpu, total) = large_bar()?;
    let chunk = (total / 64).next_multiple_of(2 << 20);
    let (mut chunks, started) = (Vec::new(), Instant::now());
    let stopped = loop {
        // If the driver does not enforce the heap's size, no limit is found.
        if chunks.len() == 64 || started.elapsed() > TIMEOUT {
            break "no refusal up to the heap's size, or the end of the time".to_owned();
        }
        match touched(&gpu, chunk) {
            Ok(memory) => chunks.push(memory),
            Err(refusal) => break refusal,
        }
    };
    println!("memory_info says {:?}", gpu.memory_info(MemoryKind::Mapped));
    let taken = chunk * chunks.len() as u64;
    Ok(format!("{} MiB in {} allocations of {} MiB, then: {stopped}", taken >> 20, chunks.len(), chunk >> 20))
}
