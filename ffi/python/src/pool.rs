//! `Pool`: chunks of large blocks for small allocations.
#![expect(unsafe_code, reason = "uses streams that the caller owns")]

use pyo3::prelude::*;
use vkgdr::{Error, Memory, PoolOptions};

use crate::block::{Block, raw_stream};
use crate::error::{Result, Size};
use crate::handle;
use crate::shared::pools_give_back;

/// The native half of the Python class `Pool`.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct Pool {
    pool: vkgdr::Pool,
}

impl Pool {
    /// Wraps memory of the pool: a chunk, or a dedicated allocation if it is larger than the largest chunk.
    fn block(&self, memory: Memory) -> Block {
        if self.pool.piece_len(memory.len()).is_some() { Block::pooled(memory) } else { Block::unpooled(memory) }
    }
}

/// Replaces the name of a pool option in an error by that of `vkgdr.pool.Pool`'s parameter.
fn by_pythons_names(error: Error) -> Error {
    let Error::PoolOption { option, value, allowed } = error else { return error };
    let option = match option {
        "block_len" => "block_size",
        "leading_bits" => "leading_bits_in_bin_id",
        other => other,
    };
    Error::PoolOption { option, value, allowed }
}

#[pymethods]
impl Pool {
    /// Creates a pool in the primary context of `owner`, a `Vkgdr`, or in the current context if it has none.
    #[new]
    fn new(
        owner: &Bound<'_, PyAny>,
        kind: &str,
        block_size: Size,
        largest_piece: Size,
        leading_bits: u32,
        alignment: Size,
    ) -> Result<Self> {
        let (py, gpu) = (owner.py(), handle::gpu_of(owner)?);
        let options = PoolOptions::new(handle::kind(kind)?)
            .block_len(block_size.0)
            .largest_piece(largest_piece.0)
            .leading_bits(leading_bits)
            .alignment(alignment.0);
        Ok(Self { pool: py.detach(|| vkgdr::Pool::new(&gpu, options)).map_err(by_pythons_names)? })
    }

    /// Allocates `size` bytes, bound to a stream if one is given; the memory keeps the stream's object alive.
    fn allocate(&self, py: Python<'_>, size: Size, stream: Option<(u64, Py<PyAny>)>) -> Result<Block> {
        let Some((handle, keep)) = stream else {
            let memory = py.detach(|| self.pool.allocate(size.0))?;
            return Ok(self.block(memory.into()));
        };
        // SAFETY: the block keeps the stream's object alive; for a bare handle that is the caller's obligation.
        let memory = py.detach(|| unsafe { self.pool.allocate_on_raw(size.0, raw_stream(handle)) })?;
        let block = self.block(memory.into());
        block.live()?.keep(keep);
        Ok(block)
    }

    fn trim(&self, py: Python<'_>, keep: Size) -> usize {
        py.detach(|| self.pool.trim(keep.0))
    }

    fn free_held(&self, py: Python<'_>) {
        py.detach(|| self.pool.free_held());
    }

    fn stop_holding(&self, py: Python<'_>) {
        pools_give_back();
        py.detach(|| self.pool.stop_holding());
    }

    #[getter]
    fn held_blocks(&self) -> usize {
        self.pool.free_chunks()
    }

    #[getter]
    fn active_blocks(&self) -> usize {
        self.pool.used_chunks()
    }

    #[getter]
    fn managed_bytes(&self) -> usize {
        self.pool.managed_bytes()
    }

    #[getter]
    fn active_bytes(&self) -> usize {
        self.pool.active_bytes()
    }

    fn piece_size(&self, size: Size) -> Option<usize> {
        self.pool.piece_len(size.0)
    }
}
