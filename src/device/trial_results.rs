//! [`TrialResults`]: the remembered results of trial allocations, per kind and memory type.
#![forbid(unsafe_code)]

use super::memory_type::{MemoryType, Source};
use crate::lock::Lock;
use crate::{MemoryKind, Result};

/// The key of a trial's result: the kind, and the memory type with its index.
type Key = (MemoryKind, Source, u32);

/// The results of a GPU's trials.
#[derive(Default)]
pub(crate) struct TrialResults(Lock<Vec<(Key, Result<()>)>>);

impl TrialResults {
    /// The result of an earlier trial of a type, if any.
    pub(crate) fn result(&self, kind: MemoryKind, memory_type: &MemoryType) -> Option<Result<()>> {
        let key = key(kind, memory_type);
        self.0.lock().iter().find(|(of, _)| *of == key).map(|(_, result)| result.clone())
    }

    /// Remembers a result, unless there is one for the type.
    pub(crate) fn record(&self, kind: MemoryKind, memory_type: &MemoryType, result: Result<()>) {
        let key = key(kind, memory_type);
        let mut results = self.0.lock();
        if !results.iter().any(|(of, _)| *of == key) {
            results.push((key, result));
        }
    }
}

const fn key(kind: MemoryKind, memory_type: &MemoryType) -> Key {
    (kind, memory_type.source, memory_type.info.index)
}
