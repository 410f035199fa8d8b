//! A file travels through memory that the CPU and the GPU share.
//!
//! The CPU writes the file into GPU memory through a plain pointer, the GPU copies it to a second allocation and
//! fills a third, and the CPU reads both back through plain pointers and compares checksums.
//!
//! ```text
//! cargo run --release --example share_file [FILE]
//!
//! $ cargo run --release --example share_file photo.raw
//! file        photo.raw (2.00 MiB)
//! GPU         Simulated CUDA device (llvmpipe (LLVM 15.0.6, 256 bits))
//! memory      mapped, coherent, atom 1
//! heap        2.00 GiB, 2.00 GiB free (by heap size)
//! CPU's view  0x7f0ea7113000
//! GPU's view  0x7f0ea6225000
//!
//! step                            time        rate
//! open the GPU               51.213 ms           -
//! allocate 3 buffers          0.216 ms           -
//! CPU: file to GPU memory     1.514 ms  1.385 GB/s
//! GPU: copy to the second     0.412 ms  5.090 GB/s
//! GPU: fill the third         0.387 ms  5.419 GB/s
//! CPU: read the second        0.953 ms  2.201 GB/s
//! CPU: read the third         0.941 ms  2.229 GB/s
//!
//! The driver is simulated: times say nothing about hardware.
//!
//! copied by the GPU: checksum 451b7596, as it should be
//! filled by the GPU: checksum b7396ace, as it should be
//! ```
//!
//! Without FILE it sends its own program file. On failure it prints one line and exits with 1.
#![expect(unsafe_code, reason = "the GPU fills memory by a raw driver call")]

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, result};
use vkgdr::{MapMode, Memory, MemoryKind, OpenFlags, Vkgdr};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The byte with which the GPU fills the third allocation.
const FILL: u8 = 0xa5;
/// Bytes that the CPU copies at a time.
const CHUNK: usize = 1 << 20;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe: a normal end.
        Err(error) if is_broken_pipe(&*error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("share_file: {error}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

fn run() -> Result<()> {
    let path = file_argument()?;
    let (mut file, len) = open_file(&path)?;

    let mut steps = Steps::default();
    let gpu = steps.time("open the GPU", 0, || Ok(Vkgdr::open_primary_context(0, OpenFlags::empty())?))?;
    let stream = CudaContext::new(0)?.default_stream();
    // A GPU without Vulkan, or without a BAR that maps its memory, still has host memory, which it accesses over PCIe.
    let kind = if gpu.supports(MemoryKind::Mapped) { MemoryKind::Mapped } else { MemoryKind::Host };
    check_room(&gpu, kind, &path, len)?;
    let memory = || Memory::allocate(&gpu, len, kind);
    let [source, mut copy, filled] = steps.time("allocate 3 buffers", 0, || Ok([memory()?, memory()?, memory()?]))?;
    describe(&gpu, &path, &source)?;

    let written = steps.time("CPU: file to GPU memory", len, || write_file(&mut file, &source))?;
    steps.time("GPU: copy to the second", len, || {
        stream.memcpy_dtod(&source.view::<u8>(&stream)?, &mut copy.view_mut(&stream)?)?;
        Ok(stream.synchronize()?)
    })?;
    steps.time("GPU: fill the third", len, || {
        // SAFETY: the pointer is valid for `len` bytes while `filled` lives, which is until after `synchronize`.
        unsafe { result::memset_d8_async(filled.device_ptr(), FILL, len, stream.cu_stream()) }?;
        Ok(stream.synchronize()?)
    })?;
    let copied = steps.time("CPU: read the second", len, || checksum(&copy))?;
    let fill = steps.time("CPU: read the third", len, || checksum(&filled))?;

    steps.print()?;
    if gpu.name().starts_with("Simulated") {
        writeln!(stdout(), "\nThe driver is simulated: times say nothing about hardware.")?;
    }
    writeln!(stdout())?;
    compare("copied by the GPU", written, copied)?;
    compare("filled by the GPU", checksum_of_fill(len), fill)
}

/// The file named on the command line, else this program's own.
fn file_argument() -> Result<PathBuf> {
    let mut arguments = std::env::args_os().skip(1);
    let path = match arguments.next() {
        Some(argument) if argument == "-h" || argument == "--help" => {
            println!(
                "usage: share_file [FILE]\n\nSends FILE (default: this program) through memory that CPU and GPU share."
            );
            std::process::exit(0);
        }
        Some(argument) => PathBuf::from(argument),
        None => std::env::current_exe()?,
    };
    match arguments.next() {
        Some(extra) => Err(format!("one FILE is enough, what is {}?", extra.display()).into()),
        None => Ok(path),
    }
}

fn open_file(path: &Path) -> Result<(File, usize)> {
    let explain = |error: io::Error| format!("{}: {error}", path.display());
    let file = File::open(path).map_err(explain)?;
    let metadata = file.metadata().map_err(explain)?;
    if !metadata.is_file() {
        return Err(format!("{}: not a regular file", path.display()).into());
    }
    if metadata.len() == 0 {
        return Err(format!("{}: the file is empty", path.display()).into());
    }
    Ok((file, usize::try_from(metadata.len())?))
}

/// Fails if three buffers of `len` bytes cannot fit, which the drivers might report after a long time only.
fn check_room(gpu: &Vkgdr, kind: MemoryKind, path: &Path, len: usize) -> Result<()> {
    let info = gpu.memory_info(kind)?;
    let needed = (len as u64).saturating_mul(3);
    if needed <= info.available {
        return Ok(());
    }
    let (path, needed, available) = (path.display(), Size(needed), Size(info.available));
    Err(format!("{path}: needs {needed} of {kind} memory (3 buffers), {available} are available").into())
}

fn describe(gpu: &Vkgdr, path: &Path, memory: &Memory) -> Result<()> {
    let (info, mut out) = (gpu.memory_info(memory.kind())?, stdout());
    let coherence = if memory.is_coherent() { "coherent" } else { "not coherent" };
    let host = memory.host_ptr().map_or(0, |pointer| pointer.addr().get());
    writeln!(out, "file        {} ({})", path.display(), Size(memory.len() as u64))?;
    writeln!(out, "GPU         {}", gpu.name())?;
    writeln!(out, "memory      {}, {coherence}, atom {}", memory.kind(), memory.non_coherent_atom_size())?;
    writeln!(out, "heap        {}, {} free (by {})", Size(info.total), Size(info.available), info.source)?;
    writeln!(out, "CPU's view  {host:#x}")?;
    writeln!(out, "GPU's view  {:#x}\n", memory.device_ptr())?;
    Ok(())
}

/// Copies the file to the memory through its host pointer. Returns its checksum.
fn write_file(file: &mut File, memory: &Memory) -> Result<u32> {
    let mut guard = memory.map(MapMode::Discard, ..)?;
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), vec![0; CHUNK]);
    for offset in (0..memory.len()).step_by(CHUNK) {
        let chunk = &mut buffer[..CHUNK.min(memory.len() - offset)];
        file.read_exact(chunk).map_err(|error| format!("the file shrank while it was read: {error}"))?;
        hasher.update(chunk);
        guard.write(offset, chunk)?;
    }
    guard.finish()?;
    Ok(hasher.finalize())
}

/// Reads memory through its host pointer. Returns its checksum.
fn checksum(memory: &Memory) -> Result<u32> {
    let guard = memory.map(MapMode::Read, ..)?;
    let (mut hasher, mut buffer) = (crc32fast::Hasher::new(), vec![0; CHUNK]);
    for offset in (0..memory.len()).step_by(CHUNK) {
        let chunk = &mut buffer[..CHUNK.min(memory.len() - offset)];
        guard.read(offset, chunk)?;
        hasher.update(chunk);
    }
    Ok(hasher.finalize())
}

fn checksum_of_fill(len: usize) -> u32 {
    let (mut hasher, chunk) = (crc32fast::Hasher::new(), vec![FILL; CHUNK]);
    for offset in (0..len).step_by(CHUNK) {
        hasher.update(&chunk[..CHUNK.min(len - offset)]);
    }
    hasher.finalize()
}

fn compare(what: &str, expected: u32, seen: u32) -> Result<()> {
    if expected == seen {
        Ok(writeln!(stdout(), "{what}: checksum {seen:08x}, as it should be")?)
    } else {
        Err(format!("{what}: checksum {seen:08x}, but {expected:08x} was expected").into())
    }
}

/// The completed steps, with times and rates.
#[derive(Default)]
struct Steps(Vec<(&'static str, usize, Duration)>);

impl Steps {
    fn time<T>(&mut self, name: &'static str, bytes: usize, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = Instant::now();
        let value = step()?;
        self.0.push((name, bytes, start.elapsed()));
        Ok(value)
    }

    fn print(&self) -> io::Result<()> {
        writeln!(stdout(), "{:<24} {:>11} {:>11}", "step", "time", "rate")?;
        for &(name, bytes, time) in &self.0 {
            let milliseconds = time.as_secs_f64() * 1e3;
            let rate = if bytes < CHUNK { "-".to_owned() } else { rate(bytes, time) };
            writeln!(stdout(), "{name:<24} {milliseconds:>8.3} ms {rate:>11}")?;
        }
        Ok(())
    }
}

fn rate(bytes: usize, time: Duration) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a rate to three digits")]
    let gigabytes = bytes as f64 / 1e9;
    format!("{:.3} GB/s", gigabytes / time.as_secs_f64())
}

/// Bytes in binary units.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let power = self.0.checked_ilog2().unwrap_or(0) / 10;
        let Some(unit) = power.checked_sub(1).map(|index| &"KMGTPE"[index as usize..=index as usize]) else {
            return write!(f, "{} B", self.0);
        };
        #[expect(clippy::cast_precision_loss, reason = "a size to two digits")]
        let amount = self.0 as f64 / (1_u64 << (10 * power)) as f64;
        write!(f, "{amount:.2} {unit}iB")
    }
}
