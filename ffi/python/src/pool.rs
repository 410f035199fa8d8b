//! `Pool`: small memory from blocks.
#![expect(unsafe_code, reason = "uses streams that belong to somebody else")]

use pyo3::prelude::*;
use vkgdr::{Error, Memory, PoolOptions};

use crate::block::{Block, raw_stream};
use crate::error::{Result, Size};
use crate::handle;
use crate::shared::pools_give_back;

/// A pool. The Python class of that name holds one.
#[pyclass(frozen, module = "vkgdr._vkgdr")]
pub(crate) struct Pool {
    pool: vkgdr::Pool,
}

impl Pool {
    /// A piece; or an allocation of its own, for what is larger than pieces are.
    fn block(&self, memory: Memory) -> Block {
        if self.pool.piece_len(memory.len()).is_some() { Block::pooled(memory) } else { Block::unpooled(memory) }
    }
}

/// The error, with the options called as `vkgdr.pool.Pool` calls them.
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
    /// Makes a pool in the primary context of the `Vkgdr` that `owner` is, or in the current one.
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

    /// Memory of `size` bytes, bound to a stream if one is given, which then lives as long as the memory.
    fn allocate(&self, py: Python<'_>, size: Size, stream: Option<(u64, Py<PyAny>)>) -> Result<Block> {
        let Some((handle, keep)) = stream else {
            let memory = py.detach(|| self.pool.allocate(size.0))?;
            return Ok(self.block(memory.into()));
        };
        // SAFETY: the block keeps the stream's object; for a bare handle the caller has promised to.
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
