//! The device's operations on memory, on streams of both contexts, and waits for them.
#![expect(unsafe_code, reason = "has streams copy and fill ranges of memory that the world keeps alive")]

use std::cell::OnceCell;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::cuda::{self, Stream};
use support::step::{Step, What};
use support::{Result, device_read, pattern};
use vkgdr::cudarc::driver::sys::CUstream;
use vkgdr::cudarc::driver::{CudaContext, CudaFunction, CudaStream};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::{CopyPtr, Extent, FillPattern, PitchedPtr, StreamRef};

use super::World;
use super::item::{Bytes, Item, Site, lock};

/// The delay of a stream, long enough for many calls by the CPU.
const MOMENT: Duration = Duration::from_micros(500);
const ECHO: &str = include_str!("../../../examples/ring_echo.ptx");

/// The primary context in cudarc's types, with a stream that memory can own.
///
/// cudarc may make it current in any call, so it is created before the world's own context and dropped after it.
pub(super) struct Primary {
    stream: Arc<CudaStream>,
    context: Arc<CudaContext>,
    /// The kernel of rings, loaded by the first use.
    echo: OnceCell<CudaFunction>,
}

impl Primary {
    pub(super) fn new() -> Result<Self> {
        let context = CudaContext::new(0)?;
        Ok(Self { stream: context.new_stream()?, context, echo: OnceCell::new() })
    }

    pub(super) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The kernel that echoes the messages of a ring. The context may become current.
    pub(super) fn echo(&self) -> Result<&CudaFunction> {
        if let Some(echo) = self.echo.get() {
            return Ok(echo);
        }
        let echo = self.context.load_module(Ptx::from_src(ECHO))?.load_function("echo")?;
        Ok(self.echo.get_or_init(|| echo))
    }
}

/// Streams, by number: two of the world's own context and two of the primary one, the last of which is cudarc's.
pub(super) struct Streams {
    streams: Vec<Known>,
    cudarc: Arc<CudaStream>,
    _own: [Stream; 3],
}

struct Known {
    stream: StreamRef,
    /// Buffers used by copies on the stream; destinations with their expected bytes.
    buffers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Streams {
    /// The world's own context must be current.
    pub(super) fn new(primary: &Primary) -> Result<Self> {
        let find = |raw| -> Result<Known> {
            // SAFETY: the world keeps the stream as long as the reference.
            Ok(Known { stream: unsafe { StreamRef::in_current_context(raw) }?, buffers: Vec::new() })
        };
        let own = [Stream::create(), Stream::create()];
        let mut streams = vec![find(own[0].raw())?, find(own[1].raw())?];
        let current = cuda::PrimaryContext::retain_and_push(0);
        let third = Stream::create();
        streams.extend([find(third.raw())?, find(primary.stream.cu_stream())?]);
        drop(current);
        let [first, second] = own;
        Ok(Self { streams, cudarc: Arc::clone(&primary.stream), _own: [first, second, third] })
    }

    /// A stream of a site's context.
    pub(super) fn of(&self, site: Site, choice: u8) -> usize {
        usize::from(choice % 2) + if site == Site::Plain { 0 } else { 2 }
    }

    pub(super) fn raw(&self, number: usize) -> CUstream {
        self.streams[number].stream.raw()
    }

    /// The stream's cudarc object, if it has one.
    pub(super) fn cudarc(&self, number: usize) -> Option<&Arc<CudaStream>> {
        (self.raw(number) == self.cudarc.cu_stream()).then_some(&self.cudarc)
    }

    pub(super) fn get(&self, number: usize) -> StreamRef {
        self.streams[number].stream
    }

    /// Waits for the stream and checks the bytes that it read.
    fn wait(&mut self, number: usize) -> Result {
        let known = &mut self.streams[number];
        known.stream.synchronize()?;
        for (seen, expected) in known.buffers.drain(..) {
            if expected.is_some_and(|expected| expected != seen) {
                return Err(format!("a copy of {} bytes to the host has wrong bytes", seen.len()).into());
            }
        }
        Ok(())
    }

    fn keep(&mut self, number: usize, buffer: Vec<u8>, expected: Option<Vec<u8>>) -> *mut u8 {
        let buffers = &mut self.streams[number].buffers;
        buffers.push((buffer, expected));
        buffers.last_mut().map_or(std::ptr::null_mut(), |(buffer, _)| buffer.as_mut_ptr())
    }
}

fn on_device(item: &Item, offset: usize) -> PitchedPtr {
    support::linear(CopyPtr::Device(item.owner.device_ptr() + offset as u64))
}

impl World {
    pub(super) fn wait_for_stream(&mut self, number: usize) -> Result {
        self.streams.wait(number)?;
        for item in &self.items {
            item.bytes().pending.remove(&number);
        }
        Ok(())
    }

    pub(super) fn wait_for_all(&mut self) -> Result {
        (0..4).try_for_each(|number| self.wait_for_stream(number))
    }

    /// Waits for every stream with pending work on the bytes.
    pub(super) fn wait_for_bytes(&mut self, bytes: &Mutex<Bytes>) -> Result {
        let pending = std::mem::take(&mut lock(bytes).pending);
        pending.into_iter().try_for_each(|number| self.wait_for_stream(number))
    }

    pub(super) fn wait_for(&mut self, index: usize) -> Result {
        self.wait_for_bytes(&Arc::clone(&self.items[index].bytes))
    }

    /// Prepares an item for work on a stream: waits for other streams and flushes CPU writes.
    pub(super) fn ready_for(&mut self, number: usize, index: usize) -> Result {
        self.items[index].flush()?;
        let others: Vec<_> =
            self.items[index].bytes().pending.iter().copied().filter(|&other| other != number).collect();
        for other in others {
            if self.items[index].len().is_multiple_of(2) {
                let event = self.streams.get(other).record()?;
                self.streams.get(number).wait(&event)?;
            } else {
                self.wait_for_stream(other)?;
            }
        }
        let item = &self.items[index];
        let bound = item.terms().bound;
        if bound.is_some_and(|bound| bound != number) {
            item.owner.record_use(self.streams.get(number))?;
            item.terms().recorded = true;
        }
        Ok(())
    }

    /// Records that a stream has work on an item.
    pub(super) fn began(&self, number: usize, index: usize) {
        self.items[index].bytes().pending.insert(number);
    }

    pub(super) fn apply_to_streams(&mut self, step: Step) -> Result<bool> {
        let (first, second) = (usize::from(step.first % 4), usize::from(step.second % 4));
        match step.what {
            What::WaitForStream => return self.wait_for_stream(first).map(|()| true),
            What::Delay => {
                let stream = self.streams.get(first);
                let site = if stream.context() == self.context.raw() { Site::Plain } else { Site::Primary };
                // SAFETY: the world's streams live as long as it.
                self.inside(site, || unsafe { Stream::delay(stream.raw(), MOMENT) });
                return Ok(true);
            }
            _ => {}
        }
        let event = self.streams.get(first).record()?;
        self.streams.get(second).wait(&event)?;
        match step.choice % 4 {
            0 => event.synchronize()?,
            1 => drop(event.is_complete()?),
            _ => {}
        }
        Ok(true)
    }

    /// The bytes of a range as the device sees them; the item's streams must have been waited for.
    pub(super) fn device_sees(&self, range: Range<usize>, index: usize) -> Vec<u8> {
        let item = &self.items[index];
        let address = item.owner.device_ptr() + range.start as u64;
        self.inside(item.site, || device_read(address, range.len()))
    }

    fn upload_to(&mut self, number: usize, start: usize, new: &[u8], index: usize) -> Result {
        self.ready_for(number, index)?;
        let host = self.streams.keep(number, new.to_vec(), None);
        let item = &self.items[index];
        let (to, from) = (on_device(item, start), support::linear(CopyPtr::Host(host)));
        // SAFETY: the buffer is kept until the stream has been waited for, the memory's release waits, and earlier uses
        // of the range precede the copy in the stream's order.
        unsafe { self.streams.get(number).copy(to, from, support::row(new.len())) }?;
        item.note(&(start..start + new.len()), new);
        self.began(number, index);
        Ok(())
    }

    pub(super) fn upload_whole(&mut self, new: &[u8], step: Step, index: usize) -> Result {
        let number = self.streams.of(self.items[index].site, step.choice);
        self.upload_to(number, 0, new, index)
    }

    pub(super) fn upload(&mut self, step: Step, index: usize) -> Result<bool> {
        let item = &self.items[index];
        let (range, number) = (step.span.within(item.len()), self.streams.of(item.site, step.second));
        self.upload_to(number, range.start, &pattern(range.len(), step.seed.into()), index)?;
        Ok(true)
    }

    pub(super) fn download(&mut self, step: Step, index: usize) -> Result<bool> {
        let number = self.streams.of(self.items[index].site, step.second);
        self.ready_for(number, index)?;
        let item = &self.items[index];
        let range = step.span.within(item.len());
        let host = self.streams.keep(number, vec![0; range.len()], Some(item.expected(&range)));
        let (to, from) = (support::linear(CopyPtr::Host(host)), on_device(item, range.start));
        // SAFETY: as for an upload.
        unsafe { self.streams.get(number).copy(to, from, support::row(range.len())) }?;
        self.began(number, index);
        Ok(true)
    }

    pub(super) fn device_fill(&mut self, step: Step, index: usize) -> Result<bool> {
        let item = &self.items[index];
        let (number, address) = (self.streams.of(item.site, step.second), item.owner.device_ptr());
        let unit = [1, 2, 4][usize::from(step.choice) % 3];
        if !address.is_multiple_of(unit as u64) || item.len() < unit {
            return Ok(false);
        }
        let range = step.span.whole_units(item.len(), unit);
        self.ready_for(number, index)?;
        let (to, count, stream) = (address + range.start as u64, range.len() / unit, self.streams.get(number));
        let value = [step.choice, step.second, 7, 9];
        match unit {
            // SAFETY: as for an upload.
            1 => unsafe { stream.fill(to, FillPattern::One(value[0]), count) }?,
            // SAFETY: as for an upload.
            2 => unsafe { stream.fill(to, FillPattern::Two(u16::from_ne_bytes([value[0], value[1]])), count) }?,
            // SAFETY: as for an upload.
            _ => unsafe { stream.fill(to, FillPattern::Four(u32::from_ne_bytes(value)), count) }?,
        }
        self.items[index].note(&range, &value[..unit].repeat(count));
        self.began(number, index);
        Ok(true)
    }

    /// Copies from one memory to another, possibly of another context.
    pub(super) fn device_copy(&mut self, step: Step, index: usize) -> Result<bool> {
        let source = usize::from(step.second) % self.items.len();
        if Arc::ptr_eq(&self.items[index].bytes, &self.items[source].bytes) {
            return Ok(false);
        }
        let number = self.streams.of(self.items[index].site, step.choice);
        self.ready_for(number, index)?;
        self.ready_for(number, source)?;
        let (to, from) = (&self.items[index], &self.items[source]);
        let common = to.len().min(from.len());
        let range = step.span.within(common);
        let (start, stream) = (to.len() - common, self.streams.get(number));
        let foreign = to.site != from.site;
        let new = from.expected(&range);
        if foreign {
            let context = self.context_of(from.site);
            let (to, from) = (to.owner.device_ptr() + start as u64, from.owner.device_ptr() + range.start as u64);
            // SAFETY: as for an upload; the source is waited for below, since its release waits for its own context
            // only.
            unsafe { stream.copy_between_contexts(to, from, context, new.len()) }?;
        } else {
            // SAFETY: as for an upload, of both.
            unsafe { stream.copy(on_device(to, start), on_device(from, range.start), support::row(new.len())) }?;
        }
        to.note(&(start..start + new.len()), &new);
        self.began(number, index);
        self.began(number, source);
        if foreign {
            self.wait_for_stream(number)?;
        }
        Ok(true)
    }

    fn context_of(&self, site: Site) -> vkgdr::cudarc::driver::sys::CUcontext {
        let number = self.streams.of(site, 0);
        self.streams.get(number).context()
    }

    /// Copies rows from the host to device rows with a pitch.
    pub(super) fn device_rows(&mut self, step: Step, index: usize) -> Result<bool> {
        let item = &self.items[index];
        let number = self.streams.of(item.site, step.second);
        let height = 2 + usize::from(step.choice % 5);
        let pitch = item.len() / height;
        if pitch == 0 {
            return Ok(false);
        }
        let width = 1 + usize::from(step.seed) % pitch;
        self.ready_for(number, index)?;
        let rows = pattern(width * height, step.seed.into());
        let host = self.streams.keep(number, rows.clone(), None);
        let item = &self.items[index];
        let side = |ptr, row_pitch| PitchedPtr { ptr, row_pitch, slice_pitch: row_pitch * height };
        let (to, from) = (side(CopyPtr::Device(item.owner.device_ptr()), pitch), side(CopyPtr::Host(host), width));
        // SAFETY: as for an upload; the rows lie within the memory.
        unsafe { self.streams.get(number).copy(to, from, Extent { width, height, depth: 1 }) }?;
        for (row, new) in rows.chunks(width).enumerate() {
            item.note(&(row * pitch..row * pitch + width), new);
        }
        self.began(number, index);
        Ok(true)
    }

    /// Fills by a synchronous driver call, on the default stream.
    pub(super) fn driver_fill(&mut self, step: Step, index: usize) -> Result<bool> {
        self.wait_for(index)?;
        let item = &mut self.items[index];
        item.flush()?;
        let range = step.span.within(item.len());
        let (address, len, site) = (item.owner.device_ptr() + range.start as u64, range.len(), item.site);
        item.note(&range, &vec![step.choice; len]);
        self.inside(site, || {
            cuda::memset_d8(address, step.choice, len);
            cuda::synchronize();
        });
        Ok(true)
    }
}
