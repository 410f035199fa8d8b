//! A CUDA driver in host memory: `libcuda.so.1` for machines without a GPU.
//!
//! Programs load it like the real driver. Its device is the machine's first CPU-type Vulkan device (lavapipe,
//! normally): same UUID, and memory that Vulkan exports is imported through Vulkan, so that host and device see
//! the same bytes at two addresses. Streams order work as CUDA's do. Kernels in PTX are run (by the crate `ptx`);
//! compiled ones are not. Every function that is not simulated returns `CUDA_ERROR_NOT_SUPPORTED`,
//! and its first call says so on stderr.
//!
//! # Modules
//! | file | contents |
//! |---|---|
//! | `boundary`, `call`, `ffi`, `layout` | the entry to every function, the call of a thread, the caller's pointers, the structures of the API |
//! | `control`, `ledger`, `test_controls` | counting, injected failures, live objects |
//! | `settings` | what the environment says |
//! | `init`, `errors`, `proc_address`, `profiler`, `stubs` | start, names of codes, names of functions, profiling, unsupported functions |
//! | `profile` | what a profile changes in CUDA |
//! | `vulkan`, `device`, `external` | the Vulkan device underneath, the device's properties, imported memory |
//! | `semaphore` | imported semaphores |
//! | `owner`, `health`, `context`, `lifecycle` | ownership, and the life of contexts |
//! | `queue`, `own_streams`, `stream`, `worker`, `interrupt` | the order of work: streams, events, their threads; signals during a wait |
//! | `graph` | graphs and captures |
//! | `ipc` | memory and events of other processes |
//! | `heap`, `pages`, `memory`, `pool`, `copy`, `memset`, `pointer` | address ranges, pools of memory, and work on them |
//! | `virtual_memory` | allocations without an address, reserved addresses, mappings |
//! | `module`, `kernel` | PTX that was loaded, and launches of its kernels |
//!
//! # Environment
//! README.md lists the variables, most of which `settings` reads. Beside them, `SIMCUDA_FAIL=function:nth:code,…`
//! injects failures from process start, and `VKLAYER_PROFILE` names the profile, as for the Vulkan layer.
//!
//! # Test controls
//! Exported beside the driver API; look them up in the loaded library. A function's name, with or without a version
//! suffix (`cuMemFree` or `cuMemFree_v2`), denotes all of its versions.
//!
//! ```c
//! // Live objects: of all nouns together, or of one of "memory", "pool", "graph", "executable", "host" (allocated and registered), "external",
//! // "semaphore", "allocation" (handles of cuMemCreate), "reservation" (of addresses), "mapped", "stream", "event", "module" (without those of libraries), "library", "linker", "context" (of
//! // cuCtxCreate) and "primary" (retains).
//! size_t simcuda_live_objects(void);
//! size_t simcuda_live_objects_of(const char *noun);           // SIZE_MAX: no such noun
//!
//! // Calls since the library was loaded; NULL: of all driver functions that count for "*" (see below).
//! uint64_t simcuda_calls(const char *function);
//!
//! // Make the nth call from now fail, once (1: the next; "*": of any function). Several may be pending. Returns 0,
//! // or 1 if there is no such function or nth or code is 0.
//! int32_t simcuda_fail(const char *function, uint64_t nth, int32_t code);
//! void simcuda_clear_faults(void);
//!
//! // The function that last failed by injection, without version suffix. Returns its length, 0 if there is none.
//! size_t simcuda_last_fault(char *buffer, size_t capacity);
//!
//! // The kernel that failed last: what happened, line and instruction, address and what is allocated near it, block
//! // and thread. The same line is on stderr. Returns its length, 0 if there is none. Forgotten with the faults.
//! size_t simcuda_last_kernel_fault(char *buffer, size_t capacity);
//! ```
//!
//! `cuGetErrorName`, `cuGetErrorString` and `cuGetProcAddress` never count for `*`. A function that fails by
//! injection does nothing, except for those that release or pop something: they do their work and then return the
//! code, as CUDA's may return the error of earlier work.
//!
//! # Differences from a GPU
//! Those of README.md ("What is refused", "Limits"), and these:
//!
//! * Memory that the driver allocated itself stays alive for copies and fills that were queued before it was
//!   freed, since CUDA's functions may wait for them and programs rely on that.
//! * Driver calls from a host function are `NOT_PERMITTED`. A fault also ends the other running kernels of its context.
//! * `cp.async` copies at once, so that a missing wait does not show.
//! * Tensor cores round each sum once, from 53 bits. A GPU may round in between, and differ in the last bits.
//! * Copies reach memory that a kernel allocated with `malloc`; CUDA's runtime refuses them. Kernels may use more local
//!   memory than `CU_LIMIT_STACK_SIZE`, 512 KiB a thread.
//! * A module's variables stay alive for launches that were queued before it was unloaded.
//! * Kernels of another context in a graph run in that one. Copies of pageable memory can be captured.
//! * Kernels have 32 registers a thread and are loaded eagerly, whatever the program asks for.
//! * Stale handles are recognised: a handle is never issued twice, except the primary context's. `SIMCUDA_STALE_CONTEXT`
//!   changes that for contexts.
//! * `cuMemcpyAsync` from pinned to pinned memory does not wait, as CUDA does between any two places of the host.
//! * `cuCtxSetLimit` sets the heap of `malloc` also after kernels that used it. A stream's writes and waits of words take managed
//!   memory.
//! * Copies between device addresses and memsets may return before they are done, as in CUDA. That shows behind a
//!   kernel, and with `SIMCUDA_ASYNC=1` or `SIMCUDA_LATE=1`; that synchronous copies from pageable memory may, shows with
//!   either of these settings only. A program that frees imported memory right afterwards must synchronise first.
//! * The host's view of imported memory cannot be registered, except where the profile layer gives the host pages of its own
//!   (memory that is not coherent).
//! * `cuMemUnmap` waits for copies and kernels' accesses that are under way. Queued work that comes later fails. Mapped memory
//!   is exported as a dma-buf by ranges that start with an allocation and lie in it.
//! * The per-thread default-stream variants of functions (`_ptds`, `_ptsz`) are the plain functions; the stream
//!   handle `CU_STREAM_PER_THREAD` works.
// eprintln panics where stderr is full or a closed pipe, and a call would fail with another code.
#![deny(clippy::print_stderr)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("device pointers are host addresses here: 64-bit targets only");

mod boundary;
mod call;
mod code;
mod context;
mod control;
mod copy;
mod device;
mod errors;
mod external;
mod fd;
mod ffi;
mod graph;
mod handle;
mod health;
mod heap;
mod init;
mod interrupt;
mod ipc;
mod kernel;
mod layout;
mod ledger;
mod lifecycle;
mod memory;
mod memset;
mod module;
mod own_streams;
mod owner;
mod pages;
mod pointer;
mod pool;
mod proc_address;
mod profile;
mod profiler;
mod queue;
mod semaphore;
mod settings;
mod stream;
mod stubs;
mod sync;
mod test_controls;
mod virtual_memory;
mod vulkan;
mod worker;
