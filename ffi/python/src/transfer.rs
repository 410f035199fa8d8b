//! Copies and fills on CUDA streams: every range is checked here, before the driver call.
#![expect(unsafe_code, reason = "passes addresses to the driver")]

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use vkgdr::{CopyPtr, Extent, PitchedPtr, StreamRef};

use crate::error::{Failure, Result, in_bytes};
use crate::event::{Event, leak};
use crate::host_buffer::HostBuffer;
use crate::memory_view::MemoryView;
use crate::raw_stream::Stream;
use crate::storage::Storage;

/// Offset of a copy within a side, row pitch and slice pitch, in bytes.
type Layout = (usize, usize, usize);

/// Bytes per row, rows per slice, number of slices.
type Sizes = (usize, usize, usize);

/// One side of a copy.
enum Side<'a, 'py> {
    Device(&'a Bound<'py, MemoryView>),
    Host(&'a Bound<'py, HostBuffer>),
}

impl<'a, 'py> Side<'a, 'py> {
    fn of(object: &'a Bound<'py, PyAny>) -> Result<Self> {
        if let Ok(view) = object.cast::<MemoryView>() {
            return Ok(Self::Device(view));
        }
        match object.cast::<HostBuffer>() {
            Ok(buffer) => Ok(Self::Host(buffer)),
            Err(_) => Err(PyTypeError::new_err("both sides of a copy must be a MemoryView or a HostBuffer").into()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Device(view) => view.get().len(),
            Self::Host(buffer) => buffer.get().len(),
        }
    }

    fn view(&self) -> Option<&'a MemoryView> {
        match self {
            Self::Device(view) => Some(view.get()),
            Self::Host(_) => None,
        }
    }

    fn host(&self) -> Option<Py<PyAny>> {
        match self {
            Self::Device(_) => None,
            Self::Host(buffer) => Some((*buffer).clone().into_any().unbind()),
        }
    }

    fn check_writable(&self) -> Result<()> {
        let readonly = match self {
            Self::Device(view) => view.get().is_readonly(),
            Self::Host(buffer) => !buffer.get().is_writable(),
        };
        if readonly { Err(Failure::Invalid("the destination is read-only".into())) } else { Ok(()) }
    }

    fn pitched(&self, (offset, row_pitch, slice_pitch): Layout) -> Result<PitchedPtr> {
        let ptr = match self {
            Self::Device(view) => CopyPtr::Device(view.get().device_address()? + offset as u64),
            Self::Host(buffer) => CopyPtr::Host(buffer.get().address().wrapping_add(offset)),
        };
        Ok(PitchedPtr { ptr, row_pitch, slice_pitch })
    }
}

/// The distance from the first byte of a layout to the end of its last one; None on overflow.
fn span((_, row_pitch, slice_pitch): Layout, (width, height, depth): Sizes) -> Option<usize> {
    if width == 0 || height == 0 || depth == 0 {
        return Some(0);
    }
    let slices = slice_pitch.checked_mul(depth - 1)?;
    let rows = row_pitch.checked_mul(height - 1)?;
    slices.checked_add(rows)?.checked_add(width)
}

fn check_layout(what: &str, side: &Side<'_, '_>, layout: Layout, extent: Sizes) -> Result<()> {
    let (offset, row_pitch, slice_pitch) = layout;
    let (width, height, depth) = extent;
    if height > 1 && row_pitch < width {
        return Err(Failure::Invalid(format!(
            "the {what}'s row pitch {row_pitch} is less than the {} of a row",
            in_bytes(width)
        )));
    }
    if depth > 1 && slice_pitch < row_pitch.saturating_mul(height) {
        let least = row_pitch.saturating_mul(height);
        return Err(Failure::Invalid(format!(
            "the {what}'s slice pitch {slice_pitch} is less than {height} rows: {}",
            in_bytes(least)
        )));
    }
    let (size, len) = (side.len(), span(layout, extent).unwrap_or(usize::MAX));
    if offset <= size && len <= size - offset {
        Ok(())
    } else {
        Err(vkgdr::Error::OutOfRange { offset, len, size }.into())
    }
}

/// Whether two layouts in the same memory overlap, by the rules of OpenCL's appendix "CL_MEM_COPY_OVERLAP".
fn overlaps(to: Layout, from: Layout, extent: Sizes) -> bool {
    let (width, height, _) = extent;
    let (Some(to_span), Some(from_span)) = (span(to, extent), span(from, extent)) else { return true };
    let apart = |a: usize, a_len: usize, b: usize, b_len: usize, pitch: usize| {
        (b >= a + a_len && b + b_len <= a + pitch) || (a >= b + b_len && a + a_len <= b + pitch)
    };
    if to_span == 0 || to.0 >= from.0 + from_span || from.0 >= to.0 + to_span {
        return false;
    }
    if (to.1, to.2) != (from.1, from.2) || to.1 == 0 {
        return true;
    }
    if apart(to.0 % to.1, width, from.0 % to.1, width, to.1) {
        return false;
    }
    let slice = (height - 1) * to.1 + width;
    to.2 == 0 || !apart(to.0 % to.2, slice, from.0 % to.2, slice, to.2)
}

fn check_overlap(
    to: &Side<'_, '_>,
    to_layout: Layout,
    from: &Side<'_, '_>,
    layout: Layout,
    extent: Sizes,
) -> Result<()> {
    let (Some(a), Some(b)) = (to.view(), from.view()) else { return Ok(()) };
    let base = a.device_address()?.min(b.device_address()?);
    let at = |view: &MemoryView, layout: Layout| -> Result<Layout> {
        let distance = usize::try_from(view.device_address()? - base).unwrap_or(usize::MAX / 2);
        Ok((distance + layout.0, layout.1, layout.2))
    };
    let (to_layout, layout) = (at(a, to_layout)?, at(b, layout)?);
    if !overlaps(to_layout, layout, extent) {
        return Ok(());
    }
    let (from, to) = (layout.0, to_layout.0);
    Err(Failure::Invalid(format!("the source, from byte {from} on, and the destination, from byte {to} on, overlap")))
}

/// Copies a rectangle on a stream; with one row and one slice, a range. Returns an event, which is complete with `wait`.
///
/// Both sides live until the copy is done.
#[pyfunction]
#[pyo3(signature = (to, to_layout, from_, from_layout, extent, stream, wait = false))]
#[expect(clippy::too_many_arguments, reason = "two parameters for each side")]
pub(crate) fn copy(
    py: Python<'_>,
    to: &Bound<'_, PyAny>,
    to_layout: Layout,
    from_: &Bound<'_, PyAny>,
    from_layout: Layout,
    extent: Sizes,
    stream: Stream,
    wait: bool,
) -> Result<Event> {
    let (to, from) = (Side::of(to)?, Side::of(from_)?);
    to.check_writable()?;
    check_layout("destination", &to, to_layout, extent)?;
    check_layout("source", &from, from_layout, extent)?;
    check_overlap(&to, to_layout, &from, from_layout, extent)?;
    let views: Vec<&MemoryView> = [to.view(), from.view()].into_iter().flatten().collect();
    // Keeps the memory, even from a forced free, until the copy is submitted; its release then waits for the copy.
    let held: Vec<Storage> = views.iter().map(|view| view.live()?.storage()).collect::<Result<_>>()?;
    let (target, source) = (to.pitched(to_layout)?, from.pitched(from_layout)?);
    let crossing = other_context(to.view(), from.view())?;
    if let (Some(_), Some(source)) = (crossing, from.view()) {
        // A destroyed context must not reach the driver.
        source.check_context()?;
    }
    let Some(&lead) = views.iter().find(|view| matches!(view.context_address(), Ok(Some(_)))).or(views.first()) else {
        return Err(PyTypeError::new_err("neither side is device memory").into());
    };
    let extent = Extent { width: extent.0, height: extent.1, depth: extent.2 };
    let (target, source) = (Sent(target), Sent(source));
    let mut lent = lent(py, lead, &views, wait)?;
    lent.extend([&to, &from].into_iter().filter_map(Side::host));
    submit(py, lead, stream, held, lent, wait, move |queue| {
        let (Sent(target), Sent(source)) = ({ target }, { source });
        match crossing {
            Some(context) => between_contexts(queue, target, source, context, extent),
            // SAFETY: both ranges were checked against their sides, and `submit` keeps both sides until the copy is done.
            None => unsafe { queue.copy(target, source, extent) }.map_err(Into::into),
        }
    })
}

/// Further views of the memory whose release does not wait for the operation: other libraries'. Without `wait` also those of other contexts' memory, so that its free need not wait, and those with an owner beside.
fn lent(py: Python<'_>, lead: &MemoryView, views: &[&MemoryView], wait: bool) -> Result<Vec<Py<PyAny>>> {
    let context = lead.context_address()?;
    let mut lent = Vec::new();
    for view in views {
        let own = view.context_address()?;
        if own.is_none() || !wait && (own != context || view.keeps_an_owner()) {
            // A use of its own, which outlives a free of the object.
            lent.push(Py::new(py, view.again(py)?)?.into_any());
        }
    }
    Ok(lent)
}

/// Submits an operation to a stream and, with `wait`, waits for it. Otherwise `lent` is kept until the returned event.
///
/// One call does all of that, so that neither a signal's handler nor another thread comes between. It keeps the memory that is
/// `held`, even from a forced free, until the operation is submitted; the memory's release then waits for it.
fn submit(
    py: Python<'_>,
    lead: &MemoryView,
    stream: Stream,
    held: Vec<Storage>,
    lent: Vec<Py<PyAny>>,
    wait: bool,
    operation: impl FnOnce(StreamRef) -> Result<()> + Send,
) -> Result<Event> {
    let (queue, submitted) = py.detach(|| {
        let queue = lead.stream(stream.handle)?;
        if !wait {
            // Before the operation is submitted: a call that fails may still have submitted work. Memory of other contexts is lent,
            // and a pool must not wait for a context that may end once the work is done.
            let is_own =
                |storage: &&Storage| storage.memory().is_some_and(|memory| memory.context() == queue.context());
            held.iter().filter(is_own).try_for_each(|storage| storage.note_use(queue, &stream))?;
        }
        let done = operation(queue).and_then(|()| if wait { Ok(queue.synchronize()?) } else { Ok(()) });
        if wait && matches!(done, Err(Failure::Driver(_))) {
            // The operation may be under way; its error is the one to report.
            held.iter().for_each(|storage| drop(storage.note_use(queue, &stream)));
        }
        drop(held);
        Ok::<_, Failure>((queue, done))
    })?;
    let (failure, is_kept) = match submitted {
        Ok(()) if wait => return Ok(Event::complete()),
        Ok(()) => match Event::on(py, &queue, clones(py, &lent)) {
            Ok(event) => return Ok(event),
            Err(failure) => (failure, false),
        },
        // The device may use what was lent, although the call failed.
        Err(failure) => (failure, lent.is_empty() || Event::on(py, &queue, clones(py, &lent)).is_ok()),
    };
    if !is_kept && !py.detach(|| is_idle(queue)) {
        leak(lent);
    }
    Err(failure)
}

fn clones(py: Python<'_>, objects: &[Py<PyAny>]) -> Vec<Py<PyAny>> {
    objects.iter().map(|object| object.clone_ref(py)).collect()
}

/// Waits for a stream after a failure, and returns whether no work of it is left. False where it cannot be waited for, such as
/// during a stream capture: what was lent to its work must not be given back.
pub(crate) fn is_idle(queue: StreamRef) -> bool {
    queue.synchronize().map_or_else(|error| error.ends_all_work(), |()| true)
}

/// One side of a copy, moved into a closure that runs detached from the interpreter.
struct Sent(PitchedPtr);

// SAFETY: holds addresses only, which are valid on every thread.
unsafe impl Send for Sent {}

/// The source's context, if it differs from the destination's.
fn other_context(to: Option<&MemoryView>, from: Option<&MemoryView>) -> Result<Option<usize>> {
    let (Some(to), Some(from)) = (to, from) else { return Ok(None) };
    let (to, from) = (to.context_address()?, from.context_address()?);
    Ok(from.filter(|from| to.is_some_and(|to| to != *from)))
}

fn between_contexts(queue: StreamRef, to: PitchedPtr, from: PitchedPtr, context: usize, extent: Extent) -> Result<()> {
    let (CopyPtr::Device(to), CopyPtr::Device(from), 1, 1) = (to.ptr, from.ptr, extent.height, extent.depth) else {
        return Err(Failure::Invalid("rectangles can only be copied within one CUDA context".into()));
    };
    let context = std::ptr::with_exposed_provenance_mut(context);
    // SAFETY: the caller checked both ranges and keeps both sides; it also checked that the source's context lives.
    Ok(unsafe { queue.copy_between_contexts(to, from, context, extent.width) }?)
}

/// Fills memory on a stream with `count` repetitions of a value of 1, 2 or 4 bytes. Returns an event, which is complete with
/// `wait`. The memory lives until the fill is done.
#[pyfunction]
#[pyo3(signature = (view, offset, pattern, count, stream, wait = false))]
pub(crate) fn fill(
    py: Python<'_>,
    view: &MemoryView,
    offset: usize,
    pattern: &[u8],
    count: usize,
    stream: Stream,
    wait: bool,
) -> Result<Event> {
    if view.is_readonly() {
        return Err(Failure::Invalid("the destination is read-only".into()));
    }
    let len = count.saturating_mul(pattern.len());
    view.range(offset, Some(len))?;
    let to = view.device_address()? + offset as u64;
    let width = pattern.len() as u64;
    if width > 0 && !to.is_multiple_of(width) {
        return Err(Failure::Invalid(format!(
            "the address {to:#x} is not a multiple of the pattern's {}",
            in_bytes(pattern.len())
        )));
    }
    let held = vec![view.live()?.storage()?];
    submit(py, view, stream, held, lent(py, view, &[view], wait)?, wait, |queue| match *pattern {
        // SAFETY: the range was checked, and `submit` keeps the memory until the fill is done.
        [a] => Ok(unsafe { queue.fill_u8(to, a, count) }?),
        // SAFETY: as above, and aligned.
        [a, b] => Ok(unsafe { queue.fill_u16(to, u16::from_ne_bytes([a, b]), count) }?),
        // SAFETY: as above.
        [a, b, c, d] => Ok(unsafe { queue.fill_u32(to, u32::from_ne_bytes([a, b, c, d]), count) }?),
        _ => Err(Failure::Invalid(format!("the pattern has {}: CUDA fills with 1, 2 or 4", in_bytes(pattern.len())))),
    })
}
