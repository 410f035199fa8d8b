//! DLPack: exports memory as tensors of bytes or of arrays, and imports tensors of other libraries.
//!
//! The constants and structures are those of dlpack.h, version 1.1 (github.com/dmlc/dlpack).

mod abi;
mod export;
mod import;
mod order;

pub(crate) use export::dlpack_export;
pub(crate) use import::dlpack_import;
pub(crate) use order::dlpack_order;
