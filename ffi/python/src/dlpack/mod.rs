//! DLPack: exports memory as tensors of bytes, and imports tensors of other libraries.
//!
//! The constants and structures are those of dlpack.h, version 1.1 (github.com/dmlc/dlpack).

mod abi;
mod export;
mod import;

pub(crate) use import::dlpack_import;
