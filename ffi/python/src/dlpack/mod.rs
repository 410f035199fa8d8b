//! DLPack: memory as tensors of bytes, for other libraries and from them.
//!
//! The numbers and structures are those of dlpack.h, version 1.1 (github.com/dmlc/dlpack).

mod abi;
mod export;
mod import;

pub(crate) use import::dlpack_import;
