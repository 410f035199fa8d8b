//! Heap allocations of a size that the caller chose; failure is Python's `MemoryError` instead of an abort.
#![forbid(unsafe_code)]

use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;

/// A vector of `count` zeros.
pub(crate) fn zeroes<T: Clone + Default>(count: usize) -> PyResult<Vec<T>> {
    let mut zeroes = Vec::new();
    zeroes.try_reserve_exact(count).map_err(|_| {
        let len = count.saturating_mul(size_of::<T>());
        PyMemoryError::new_err(format!("cannot allocate {len} bytes of host memory"))
    })?;
    zeroes.resize(count, T::default());
    Ok(zeroes)
}

/// A copy of `source`.
pub(crate) fn copied(source: &[u8]) -> PyResult<Vec<u8>> {
    let mut bytes = zeroes(source.len())?;
    bytes.copy_from_slice(source);
    Ok(bytes)
}
