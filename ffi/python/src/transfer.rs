//! Copies and fills on CUDA streams: every range is checked here, before the driver call.
#![expect(unsafe_code, reason = "passes addresses to the driver")]

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use pyo3::prelude::*;
use vkgdr::{CopyPtr, Extent, FillPattern, Memory, PitchedPtr, StreamRef};

use crate::allocation::Allocation;
use crate::base::HostBuffer;
use crate::error::{Failure, Result};
use crate::memory_view::{MemoryView, stream_of};
use crate::stream::{Event, LEGACY_STREAM, NULL_STREAM, PER_THREAD_STREAM, Stream, as_address, complete};

/// Offset of a copy within a side, row pitch and slice pitch, in bytes.
type Pitches = (usize, usize, usize);

/// Bytes per row, rows per slice, number of slices.
type Sizes = (usize, usize, usize);

/// One side of a copy.
#[derive(FromPyObject)]
pub(crate) enum Side<'py> {
    Device(Bound<'py, MemoryView>),
    Host(Bound<'py, HostBuffer>),
}

/// Where one side of a copy begins, its pitches, and the distance from its first byte to the end of the last one.
#[derive(Clone, Copy)]
struct Place {
    is_host: bool,
    address: u64,
    row_pitch: usize,
    slice_pitch: usize,
    len: usize,
}

impl Side<'_> {
    fn place(&self, pitches: Pitches, (width, height, depth): Sizes) -> Result<Place> {
        // The pitches were checked by `vkgdr.compat.pyopencl`; where rows overlap, the driver refuses the copy.
        let (offset, row_pitch, slice_pitch) = pitches;
        let (is_host, address, size) = match self {
            Self::Device(view) => (false, view.get().device_address()?, view.get().len),
            Self::Host(buffer) => (true, buffer.get().address().expose_provenance() as u64, buffer.get().nbytes),
        };
        let last = |count: usize, pitch: usize| (count - 1).checked_mul(pitch);
        let span = || last(depth, slice_pitch)?.checked_add(last(height, row_pitch)?)?.checked_add(width);
        let len = if [width, height, depth].contains(&0) { 0 } else { span().unwrap_or(usize::MAX) };
        if offset > size || len > size - offset {
            return Err(vkgdr::Error::OutOfRange { offset, len, size }.into());
        }
        Ok(Place { is_host, address: address + offset as u64, row_pitch, slice_pitch, len })
    }
}

/// Whether two layouts in device memory overlap, by the rules of OpenCL's appendix "CL_MEM_COPY_OVERLAP".
fn overlaps(to: Place, from: Place, (width, height, _): Sizes) -> bool {
    let first = if to.address < from.address { to } else { from };
    let distance = as_address(to.address.abs_diff(from.address));
    let is_alike = (to.row_pitch, to.slice_pitch) == (from.row_pitch, from.slice_pitch);
    // Whether parts of `len` bytes that repeat with a pitch never meet.
    let apart = |len: usize, pitch: usize| pitch != 0 && distance % pitch >= len && distance % pitch + len <= pitch;
    let is_apart = || apart(width, to.row_pitch) || apart((height - 1) * to.row_pitch + width, to.slice_pitch);
    distance < first.len && !(is_alike && is_apart())
}

/// What an operation is ordered by, and whether to wait for it. Its stream is by default the first side's bound one, or the null
/// stream. Others are streams on which sides are ready, beside their bound ones, and events to come after.
type Order = (Option<Stream>, Vec<(Py<MemoryView>, Stream)>, Vec<Py<Event>>, bool);

/// Copies the `len` bytes of one side to another, and waits.
pub(crate) fn copy_all(py: Python<'_>, to: Side<'_>, from: Side<'_>, len: usize, stream: Option<Stream>) -> Result<()> {
    copy(py, to, (0, 0, 0), from, (0, 0, 0), (len, 1, 1), (stream, Vec::new(), Vec::new(), true)).map(drop)
}

/// Copies a rectangle on a stream; with one row and one slice, a range. Returns an event, which is complete if it was waited for.
/// Both sides live until the copy is done.
#[pyfunction]
pub(crate) fn copy(
    py: Python<'_>,
    to: Side<'_>,
    to_pitches: Pitches,
    from_: Side<'_>,
    from_pitches: Pitches,
    extent: Sizes,
    order: Order,
) -> Result<Event> {
    match &to {
        Side::Device(view) => view.get().writable()?,
        Side::Host(buffer) => assert!(!buffer.get().readonly, "asked for by the caller"),
    }
    let target = to.place(to_pitches, extent)?;
    let source = from_.place(from_pitches, extent)?;
    let mut crossing = None;
    if let (Side::Device(to), Side::Device(from)) = (&to, &from_) {
        let (to, from) = (to.get(), from.get());
        if overlaps(target, source, extent) {
            let base = to.device_address()?.min(from.device_address()?);
            let (from, to) = (source.address - base, target.address - base);
            let text = format!("the source, from byte {from} on, and the destination, from byte {to} on, overlap");
            return Err(Failure::Invalid(text));
        }
        let own = to.live()?.context()?;
        crossing = from.live()?.context()?.filter(|&context| own.is_some_and(|own| own != context));
        if crossing.is_some() {
            // A destroyed context must not reach the driver.
            from.check_context()?;
        }
    }
    let pitched = |Place { is_host, address, row_pitch, slice_pitch, .. }| {
        let host = || CopyPtr::Host(with_exposed_provenance_mut(as_address(address)));
        PitchedPtr { ptr: if is_host { host() } else { CopyPtr::Device(address) }, row_pitch, slice_pitch }
    };
    let extent = Extent { width: extent.0, height: extent.1, depth: extent.2 };
    submit(py, &[to, from_], order, move |queue| match crossing.map(with_exposed_provenance_mut) {
        // SAFETY: both ranges were checked against their sides, and `submit` keeps both sides until the copy is done.
        None => Ok(unsafe { queue.copy(pitched(target), pitched(source), extent) }?),
        Some(_) if (extent.height, extent.depth) != (1, 1) => {
            Err(Failure::Invalid("rectangles can only be copied within one CUDA context".into()))
        }
        // SAFETY: as above, both on a device; the source's context lives.
        Some(of) => Ok(unsafe { queue.copy_between_contexts(target.address, source.address, of, extent.width) }?),
    })
}

/// Submits an operation on one or two sides to a stream, after what the order says and after the sides' bound streams. Their
/// later work comes after the operation. Waits for it if the order says so; otherwise host bytes are kept until the event.
///
/// One side at least is device memory. One call does all of that, so that neither a signal's handler nor another thread comes
/// between. It keeps the memory, even from a forced free, until the operation is submitted; its release then waits for it.
fn submit(
    py: Python<'_>,
    sides: &[Side<'_>],
    (stream, ready, after, wait): Order,
    operation: impl FnOnce(StreamRef) -> Result<()> + Send,
) -> Result<Event> {
    let (mut views, mut lent) = (Vec::new(), Vec::new());
    for side in sides {
        match side {
            Side::Device(view) => views.push(view.get()),
            Side::Host(buffer) => lent.push(buffer.clone().into_any().unbind()),
        }
    }
    // Dropped in this order: the release of the memory needs the streams that the allocation keeps.
    let hold = |view: &&MemoryView| view.live().and_then(|allocation| Ok((allocation.memory()?, allocation)));
    let held: Vec<(Option<Memory>, Arc<Allocation>)> = views.iter().map(hold).collect::<Result<_>>()?;
    // In the context of the first side that has one.
    let lead = held.iter().position(|(memory, _)| memory.is_some()).unwrap_or(0);
    let mut others: Vec<(&MemoryView, Stream)> = Vec::new();
    let mut chosen = stream;
    let context = |memory: &Option<Memory>| memory.as_ref().map(|memory| memory.context().addr());
    let of_lead = context(&held[lead].0);
    for (view, (memory, allocation)) in views.iter().zip(&held) {
        // Views, which outlive a free of the object, of memory whose release does not wait for the operation: other libraries'.
        // Without `wait` also of other contexts' memory, so that its free need not wait, and of that with an owner beside.
        let own = context(memory);
        if own.is_none() || !wait && (own != of_lead || view.keeps_an_owner()) {
            lent.push(Py::new(py, view.share()?)?.into_any());
        }
        let Some(bound) = allocation.bound(py)? else { continue };
        if chosen.is_none() && own == of_lead {
            chosen = Some(bound.clone_ref(py));
        }
        others.push((*view, bound));
    }
    let stream = chosen.unwrap_or(Stream::of(NULL_STREAM));
    others.extend(ready.iter().map(|(view, stream)| (view.get(), stream.clone_ref(py))));
    let lead_view = views[lead];
    let number = |handle| if handle == LEGACY_STREAM { NULL_STREAM } else { handle };
    let of_view = |view: &MemoryView| view.live().ok()?.context().ok()?;
    // Each context has default streams of its own under the same handles.
    let differs = |side: &MemoryView| stream.handle <= PER_THREAD_STREAM && of_view(side) != of_view(lead_view);
    others.retain(|(side, other)| number(other.handle) != number(stream.handle) || differs(side));
    let (queue, submitted) = py.detach(|| {
        let queue = stream_of(held[lead].0.as_ref(), stream.handle)?;
        for event in &after {
            event.get().precede(&queue)?;
        }
        for (side, other) in &others {
            // The context of another library's memory is unknown.
            let earlier = match side.live()?.context()? {
                Some(_) => vec![side.stream_of_any_context(other.handle)?],
                None => lead_view.streams_named(other.handle)?,
            };
            earlier.iter().try_for_each(|one| queue.wait(&one.record()?))?;
        }
        if !wait {
            // Before the operation is submitted: a call that fails may still have submitted work. Memory of other contexts is lent,
            // and a pool must not wait for a context that may end once the work is done.
            let mut own = held.iter().filter(|(memory, _)| context(memory) == Some(queue.context().addr()));
            own.try_for_each(|(memory, allocation)| allocation.note_use(memory.as_ref(), queue, &stream))?;
        }
        let done = operation(queue).and_then(|()| if wait { Ok(queue.synchronize()?) } else { Ok(()) });
        if wait && matches!(done, Err(Failure::Driver(_))) {
            // The operation may be under way; its error is the one to report.
            held.iter().for_each(|(memory, allocation)| drop(allocation.note_use(memory.as_ref(), queue, &stream)));
        }
        drop(held);
        Ok::<_, Failure>((queue, done))
    })?;
    if let Err(failure) = submitted {
        if !lent.is_empty() {
            // The device may use what was lent, although the call failed.
            let _ = Event::on(py, &queue, lent);
        }
        return Err(failure);
    }
    if wait {
        return Ok(complete());
    }
    let event = Event::on(py, &queue, lent)?;
    let follow = |(side, other): &(&MemoryView, Stream)| event.precede(&side.stream_of_any_context(other.handle)?);
    // Another library's stream cannot be named where no context is current.
    if py.detach(|| others.iter().try_for_each(follow)).is_err() {
        event.synchronize(py)?;
    }
    Ok(event)
}

/// Fills `len` bytes of memory on a stream with repetitions of a pattern. Returns an event as [`copy`], or `None` where CUDA has no
/// value of 1, 2 or 4 bytes for it. The memory lives until the fill is done.
#[pyfunction]
pub(crate) fn fill(
    view: Bound<'_, MemoryView>,
    offset: usize,
    pattern: &[u8],
    len: usize,
    order: Order,
) -> Result<Option<Event>> {
    let (py, own) = (view.py(), view.get());
    own.writable()?;
    own.range(offset, Some(len))?;
    let to = own.device_address()? + offset as u64;
    let Some(value) = FillPattern::of(pattern, to) else { return Ok(None) };
    // SAFETY: the range was checked, and `submit` keeps the memory until the fill is done.
    submit(py, &[Side::Device(view)], order, |queue| Ok(unsafe { queue.fill(to, value, len / value.size()) }?))
        .map(Some)
}
