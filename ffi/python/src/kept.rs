//! `Kept`: the Python objects that memory needs, among them those of the streams that it is bound to.
//!
//! The memory knows its streams as handles. The object that keeps a stream alive is added before the memory is bound to it, and
//! removed after it is no more, when no operation is under way that may have read the handle. That of another stream that uses the
//! memory stays until the memory is freed.
#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};
use vkgdr::Memory;

use crate::logging;
use crate::raw_stream::Stream;
use crate::stream_handle::StreamHandle;

/// Python objects that must live as long as the memory, such as a context or the owner of foreign memory, or as long as it is
/// bound to them: streams.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    objects: Vec<KeptObject>,
    /// The number of [`KeptStreams`]: while there are any, no stream's object is removed.
    operations: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// Lives as long as the memory, such as a context.
    Owner,
    /// The stream of this handle, as long as the memory is bound to it.
    Bound(u64),
    /// A stream that uses the memory.
    Used,
}

struct KeptObject {
    role: Role,
    object: Py<PyAny>,
    /// Whether the garbage collector is told of it.
    reported: bool,
}

/// An operation that uses streams that the memory is bound to. Their objects stay until it ends, also where another thread
/// binds the memory to another stream. To be dropped attached to the interpreter.
pub(crate) struct KeptStreams<'a> {
    kept: &'a Kept,
    memory: &'a Memory,
}

/// The handle of the stream that memory is bound to. Only for use while its objects are kept: under the lock of the [`Kept`], or
/// within `MemoryView::with_streams`.
pub(crate) fn bound_handle(memory: &Memory) -> Option<u64> {
    memory.bound_stream().map(|stream| stream.addr() as u64)
}

impl Kept {
    pub(crate) fn add(&self, object: Py<PyAny>) {
        self.add_once(KeptObject { role: Role::Owner, object, reported: true });
    }

    /// Keeps the objects of a stream until the memory is not bound to it.
    pub(crate) fn add_stream(&self, py: Python<'_>, stream: &Stream) {
        self.add_objects(py, Role::Bound(stream.handle), stream);
    }

    /// Keeps the objects of a stream that uses the memory until that is freed.
    pub(crate) fn add_used(&self, stream: &Stream) {
        if !stream.objects.is_empty() {
            // At the interpreter's end nothing of it is dropped any more.
            Python::try_attach(|py| self.add_objects(py, Role::Used, stream));
        }
    }

    fn add_objects(&self, py: Python<'_>, role: Role, stream: &Stream) {
        for object in &stream.objects {
            let reported = object.bind(py).cast::<StreamHandle>().is_ok_and(|ours| ours.get().is_owned());
            self.add_once(KeptObject { role, object: object.clone_ref(py), reported });
        }
    }

    fn add_once(&self, new: KeptObject) {
        let mut kept = self.lock();
        if !kept.objects.iter().any(|kept| kept.object.is(&new.object) && kept.role == new.role) {
            kept.objects.push(new);
        }
    }

    /// Keeps the objects of all streams that the memory is bound to until the returned value is dropped.
    pub(crate) fn keep_streams<'a>(&'a self, memory: &'a Memory) -> KeptStreams<'a> {
        self.lock().operations += 1;
        KeptStreams { kept: self, memory }
    }

    /// The handle of the bound stream, and the objects that keep it alive.
    pub(crate) fn bound_stream(&self, py: Python<'_>, memory: &Memory) -> Option<(u64, Vec<Py<PyAny>>)> {
        // The handle is read under the lock under which objects are removed, so that its own are there.
        let kept = self.lock();
        let handle = bound_handle(memory)?;
        let own = kept.objects.iter().filter(|kept| kept.role == Role::Bound(handle));
        Some((handle, own.map(|kept| kept.object.clone_ref(py)).collect()))
    }

    /// Whether there is an object that lives as long as the memory.
    pub(crate) fn has_owner(&self) -> bool {
        self.lock().objects.iter().any(|kept| kept.role == Role::Owner)
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the objects to the garbage collector, except those of other libraries' streams. Not for forked children, where a
    /// thread that does not exist may hold the lock.
    ///
    /// A stream must outlive the memory that is bound to it, whose release names the stream. The collector runs the finalizers
    /// of all garbage before it drops any of it, and a stream of another library may end in its finalizer, unlike this
    /// package's own. A reference that is not reported keeps the stream out of the garbage until the memory is released. The
    /// price: a cycle through the object of such a stream itself is never collected.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let kept = self.lock();
        let mut reported = kept.objects.iter().filter(|kept| kept.reported);
        reported.try_for_each(|kept| visit.call(&kept.object))
    }
}

impl Drop for KeptStreams<'_> {
    fn drop(&mut self) {
        let mut kept = self.kept.lock();
        kept.operations -= 1;
        if kept.operations > 0 {
            return;
        }
        let bound = bound_handle(self.memory);
        let is_over = |kept: &mut KeptObject| matches!(kept.role, Role::Bound(handle) if Some(handle) != bound);
        let over: Vec<_> = kept.objects.extract_if(.., is_over).collect();
        // Not under the lock: dropping an object may run Python code.
        drop(kept);
        drop(over);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let kept = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let objects = std::mem::take(&mut kept.objects);
        if !objects.is_empty() {
            // At once if this thread is attached; otherwise PyO3 defers the decrements to the next attached thread.
            logging::attached(|_| drop(objects));
        }
    }
}
