//! Registration of the host view as pinned memory, and CUDA's copies of it.
#![forbid(unsafe_code)]

use std::time::Duration;

use vkgdr::{Memory, MemoryKind, Vkgdr};

use super::speed::meaning;
use super::{best_of, kind_named, rate, timed};
use crate::cuda::{self, Answer, Buffer, Kernel, Pinned, Registered, Stream};
use crate::host::Words;
use crate::{Probe, allocate};

const LEN: usize = 8 << 20;
/// A kind of memory and flags of a registration.
pub(super) const REGISTRATIONS: &[&str] =
    &["mapped, flags 0", "mapped, flags IOMEMORY", "host, flags 0", "host, flags IOMEMORY"];
/// The same with flags that are asked for less often.
pub(super) const MORE_REGISTRATIONS: &[&str] = &[
    "mapped, flags PORTABLE",
    "mapped, flags DEVICEMAP",
    "mapped, flags DEVICEMAP|IOMEMORY",
    "host, flags PORTABLE",
    "host, flags DEVICEMAP",
    "host, flags DEVICEMAP|IOMEMORY",
];
/// `CU_MEMHOSTREGISTER_*` flags of cuda.h.
const FLAGS: [(u32, &str); 5] =
    [(0, "0"), (1, "PORTABLE"), (2, "DEVICEMAP"), (4, "IOMEMORY"), (6, "DEVICEMAP|IOMEMORY")];

pub(super) fn register(probe: &Probe, part: &str) -> Answer<String> {
    let (kind, name) = part.split_once(", flags ").unwrap_or((part, "0"));
    let flags = FLAGS.iter().find(|(_, known)| *known == name).map_or(0, |(flags, _)| *flags);
    let memory = allocate(&probe.vkgdr()?, LEN, kind_named(kind))?;
    Ok(try_register(&memory, flags)
        .map_or_else(|refusal| format!("no ({refusal})"), |outcome| format!("yes, {outcome}")))
}

fn try_register(memory: &Memory, flags: u32) -> Answer<String> {
    let host = memory.host_ptr().ok_or("no host view")?.as_ptr();
    let registered = Registered::new(host, memory.len(), flags)?;
    let second = match registered.device_pointer() {
        Ok(pointer) if pointer == host as u64 => "a device pointer equal to host_ptr".to_owned(),
        Ok(pointer) if pointer == memory.device_ptr() => "the same device pointer".to_owned(),
        Ok(pointer) => format!("another device pointer ({pointer:#x})"),
        Err(refusal) => refusal,
    };
    let memory_type = cuda::pointer_attribute(2, host as u64);
    Ok(format!("it has {second}; its memory type is {memory_type:?} (1 host, 2 device)"))
}

/// The host memory of asynchronous copies.
pub(super) const HOST_MEMORY: &[&str] = &["mapped", "host", "pageable", "pinned"];

pub(super) fn async_copy(probe: &Probe, part: &str) -> Answer<String> {
    let device = Buffer::new(LEN)?;
    let stream = Stream::new()?;
    let spin = Kernel::load("spin");
    if let Err(refusal) = &spin {
        println!("whether calls return early is unknown, since no kernel can block the stream: {refusal}");
    }
    let copies = Copies { device: &device, stream: &stream, spin: spin.ok() };

    let answer = match part {
        "pageable" => copies.both_ways(vec![0_u32; LEN / 4].as_mut_ptr().cast())?,
        "pinned" => copies.both_ways(Pinned::new(LEN)?.0)?,
        kind => copies.of_kind(&probe.vkgdr()?, kind_named(kind))?,
    };
    probe.cuda.synchronize()?;
    Ok(format!("{}{answer}", meaning(probe)))
}

struct Copies<'a> {
    device: &'a Buffer,
    stream: &'a Stream,
    spin: Option<Kernel>,
}

impl Copies<'_> {
    /// Copies from the host view to the device and back, and checks the data.
    fn of_kind(&self, vkgdr: &Vkgdr, kind: MemoryKind) -> Answer<String> {
        let memory = allocate(vkgdr, LEN, kind)?;
        let words = Words::of(&memory)?;
        let pattern: Vec<u32> = (0..).step_by(7).take(LEN / 4).collect();
        words.write(&pattern);
        memory.flush(..).map_err(|error| error.to_string())?;

        self.stream.copy_from_host(self.device.0, words.as_ptr(), LEN)?;
        self.stream.synchronize()?;
        let mut seen = vec![0_u32; LEN / 4];
        cuda::copy_to_host(&mut seen, self.device.0)?;
        let from = if seen == pattern { "right" } else { "WRONG DATA" };

        words.write(&vec![0; LEN / 4]);
        memory.flush(..).map_err(|error| error.to_string())?;
        self.stream.copy_to_host(words.as_ptr(), self.device.0, LEN)?;
        self.stream.synchronize()?;
        memory.invalidate(..).map_err(|error| error.to_string())?;
        words.read(&mut seen);
        let to = if seen == pattern { "right" } else { "WRONG DATA" };

        Ok(format!("from it {from}, to it {to}, {}", self.both_ways(words.as_ptr())?))
    }

    /// The speed of copies, and whether a call returns while the stream is busy.
    fn both_ways(&self, host: *mut u8) -> Answer<String> {
        let to_device = self.one_way(|| self.stream.copy_from_host(self.device.0, host, LEN))?;
        let to_host = self.one_way(|| self.stream.copy_to_host(host, self.device.0, LEN))?;
        Ok(format!("host to device {to_device}, device to host {to_host}"))
    }

    fn one_way(&self, copy: impl Fn() -> Answer<()>) -> Answer<String> {
        let whole = best_of(5, || {
            copy()?;
            self.stream.synchronize()
        })?;
        let Some(spin) = &self.spin else { return Ok(rate(LEN, whole)) };
        let busy = Duration::from_millis(100);
        self.stream.launch(spin, &[100_000_000])?;
        let (result, call) = timed(copy);
        result?;
        self.stream.synchronize()?;
        let returns = if call < busy / 2 { "asynchronous" } else { "WAITS for the stream" };
        Ok(format!("{} ({returns}: the call took {call:.1?})", rate(LEN, whole)))
    }
}
