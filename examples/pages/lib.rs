//! The programs in Rust of README and of the guide's pages, which `cargo test --doc` compiles and, unless they are marked `no_run`, runs.
#![forbid(unsafe_code)]
#![cfg(doctest)]

#[doc = include_str!("../../README.md")]
struct Readme;

#[doc = include_str!("../../docs/copies.md")]
struct Copies;

#[doc = include_str!("../../docs/existing.md")]
struct Existing;

#[doc = include_str!("../../docs/memory.md")]
struct MemoryKinds;

#[doc = include_str!("../../docs/pools.md")]
struct Pools;

#[doc = include_str!("../../docs/ring.md")]
struct Ring;

#[doc = include_str!("../../docs/sharing.md")]
struct Sharing;

#[doc = include_str!("../../docs/streams.md")]
struct Streams;

#[doc = include_str!("../../docs/vulkan.md")]
struct Vulkan;
