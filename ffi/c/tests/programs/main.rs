//! C and C++ programs (`tests/fixtures`) against the header and the library, compiled here and run on whatever driver
//! the environment selects.
//!
//! | file | subject |
//! |---|---|
//! | `header` | the header compiles in every dialect, with and without `cuda.h` |
//! | `clients` | programs that call every function: shared, static, under AddressSanitizer and Valgrind |
//! | `bad_input` | programs that misuse every function |
//! | `compatibility` | programs written for vkgdr 0.1, in C and through cffi |
//! | `gdrapi` | programs written for gdrcopy |
//! | `sharing` | a program that shares memory with this process |
//! | `install` | the files by which pkg-config and CMake find the library |
//! | `symbols` | the library's exports, soname and dependencies |
//! | `boundary` | every export in the sources goes through the boundary |
//! | `workshop` | compilers, temporary folders, and running the programs |
//!
//! A missing tool is a skip that names it. The library is the one that cargo built with this test, or
//! `VKGDR_C_LIBRARY`.
#![forbid(unsafe_code)]

mod bad_input;
mod boundary;
mod clients;
mod compatibility;
mod gdrapi;
mod header;
mod install;
mod sharing;
mod symbols;
mod workshop;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
