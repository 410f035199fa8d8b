//! C and C++ programs (`tests/fixtures`) against the header and the library, compiled here and run on whatever driver
//! the environment selects.
//!
//! | file | subject |
//! |---|---|
//! | `header` | the header compiles in every dialect, with and without `cuda.h` |
//! | `clients` | programs that call every function: shared, static, under AddressSanitizer and Valgrind |
//! | `compatibility` | a program written for vkgdr 0.1 |
//! | `gdrapi` | a program written for gdrcopy |
//! | `symbols` | the library's exports, soname and dependencies |
//! | `boundary` | every export in the sources goes through the boundary |
//! | `workshop` | compilers, temporary folders, and running the programs |
//!
//! A missing tool is a skip that names it. The library is the one that cargo built with this test, or
//! `VKGDR_C_LIBRARY`.
#![forbid(unsafe_code)]

mod boundary;
mod clients;
mod compatibility;
mod gdrapi;
mod header;
mod symbols;
mod workshop;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
