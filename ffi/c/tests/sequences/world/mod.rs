//! Sequences of C library calls, decoded from bytes: opens, allocations, regions, pools, copies and flushes with any
//! numbers, work on streams, null handles, frees in any order; never undefined uses.
//!
//! Each call must return the status documented in the header, memory must contain the written bytes, and after all
//! frees no allocation is left in either driver.

mod access;
mod input;

use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::time::Duration;

use access::is_inside;
use input::Input;
use support::cuda::{self, Stream};
use vkgdr_c::*;

const SUCCESS: i32 = 0;
const INVALID_ARGUMENT: i32 = 1;
const OUT_OF_RANGE: i32 = 2;
const NOT_SUPPORTED: i32 = 3;
/// The largest number of items.
const MOST: usize = 12;
/// The largest length, smaller than a block of the pools.
const LARGEST: usize = 40_000;
const STREAMS: usize = 3;

/// Runs the sequence that the bytes encode, in the current context, and returns the number of its steps. `is_alone`: no other
/// thread uses the driver, so that at the end no allocation is left.
pub(crate) fn run(bytes: &[u8], is_alone: bool) -> usize {
    let streams = [(); STREAMS].map(|()| Stream::create());
    // Whatever the bytes open and close, with the current context.
    let first = vkgdr_open(0, 0);
    let mut world =
        World { input: Input(bytes), streams, is_alone, gpus: vec![first], pools: Vec::new(), items: Vec::new() };
    world.create_pool();
    let mut steps = 0;
    while !world.input.0.is_empty() {
        world.step();
        steps += 1;
    }
    world.end();
    steps
}

struct Item {
    handle: vkgdr_memory_t,
    len: usize,
    kind: u32,
    /// The expected bytes; unknown for regions and for memory with regions.
    bytes: Option<Vec<u8>>,
    /// Whether other items share the bytes.
    shared: bool,
    /// The stream whose work may use the bytes.
    stream: Option<usize>,
}

struct World<'a> {
    input: Input<'a>,
    streams: [Stream; STREAMS],
    is_alone: bool,
    gpus: Vec<vkgdr_t>,
    pools: Vec<vkgdr_pool_t>,
    items: Vec<Item>,
}

impl World<'_> {
    fn step(&mut self) {
        match self.input.below(32) {
            0 => self.open(),
            1 => self.close(),
            2..5 => self.allocate(),
            5 => self.create_pool(),
            6 => self.close_pool(),
            7..10 => self.allocate_from_pool(),
            10 => self.use_pool(),
            11 => self.region(),
            12..16 => self.free(),
            16..19 => self.write(),
            19 | 20 => self.read(),
            21 => self.fill(),
            22 => self.synchronise(),
            23 => self.ask(),
            24 => self.ask_gpu(),
            25 => self.copy(),
            26..29 => self.copy_on_stream(),
            _ => self.delay(),
        }
    }

    fn delay(&mut self) {
        let stream = self.streams[self.input.below(STREAMS)].raw();
        // SAFETY: live.
        unsafe { Stream::delay_by(stream, Duration::from_micros(100)) };
    }

    /// Waits for the device's work on an item, after which the CPU may use it.
    fn wait(&mut self, index: usize) {
        let Some(stream) = self.items[index].stream.take() else { return };
        self.streams[stream].synchronize();
        let item = &self.items[index];
        if item.kind != 2 {
            // SAFETY: live.
            assert_eq!(unsafe { vkgdr_memory_invalidate_checked(item.handle, 0, item.len) }, SUCCESS);
        }
    }

    /// Whether an item's bytes can be used by a stream from now on, to which it is then bound. The CPU's writes come first.
    fn move_to(&mut self, index: usize, stream: usize) -> bool {
        let item = &self.items[index];
        if item.shared {
            return false;
        }
        if item.stream != Some(stream) {
            self.wait(index);
        }
        let item = &mut self.items[index];
        // SAFETY: live, and the world's streams outlive it.
        let bound = unsafe { vkgdr_memory_bind_stream(item.handle, self.streams[stream].raw().cast()) };
        // Memory of another context has streams of its own.
        assert!([SUCCESS, INVALID_ARGUMENT].contains(&bound), "{bound}");
        if bound == SUCCESS && item.stream.is_none() && item.kind != 2 {
            // SAFETY: live.
            assert_eq!(unsafe { vkgdr_memory_flush_checked(item.handle, 0, item.len) }, SUCCESS);
        }
        bound == SUCCESS
    }

    fn copy_on_stream(&mut self) {
        let (Some(to), Some(from), stream) = (self.choose(), self.choose(), self.input.below(STREAMS)) else { return };
        let size = self.items[to].len.min(self.items[from].len);
        let is_known = |index: usize| self.items[index].bytes.is_some();
        if to == from || !is_known(from) || !(is_known(to) || size == self.items[to].len) {
            return;
        }
        if !self.move_to(to, stream) || !self.move_to(from, stream) {
            return;
        }
        // SAFETY: live, here and below.
        let target = unsafe { vkgdr_memory_get_device_ptr(self.items[to].handle) };
        // SAFETY: as above.
        let source = unsafe { vkgdr_memory_get_device_ptr(self.items[from].handle) };
        cuda::copy_dtod_async(target, source, size, &self.streams[stream]);
        let new = self.items[from].bytes.as_ref().map_or_else(Vec::new, |bytes| bytes[..size].to_vec());
        self.items[to].wrote(0, &new);
        self.items[to].stream = Some(stream);
        self.items[from].stream = Some(stream);
    }

    fn gpu(&mut self) -> vkgdr_t {
        let index = self.input.below(self.gpus.len() + 1);
        self.gpus.get(index).copied().unwrap_or(null_mut())
    }

    fn pool(&mut self) -> vkgdr_pool_t {
        let index = self.input.below(self.pools.len() + 1);
        self.pools.get(index).copied().unwrap_or(null_mut())
    }

    fn open(&mut self) {
        if self.gpus.len() >= 4 {
            return;
        }
        let optional = vkgdr_open_flags::VKGDR_OPEN_MAPPED_OPTIONAL_BIT as u32;
        let (known, device) = (u32::from(self.input.byte() % 12), i32::from(self.input.byte() % 3) - 1);
        let flags = if self.input.byte().is_multiple_of(2) { known } else { known | optional };
        let mut gpu = null_mut();
        if self.input.byte().is_multiple_of(2) {
            gpu = vkgdr_open(device, flags);
        } else {
            // SAFETY: a valid output.
            let status = unsafe { vkgdr_open_primary_context(device, flags, &raw mut gpu) };
            assert_eq!(status == SUCCESS, !gpu.is_null());
        }
        check_last_error(gpu.is_null());
        if known & !7 != 0 {
            assert!(gpu.is_null(), "flags {flags:#x} were taken");
        }
        if !gpu.is_null() {
            self.gpus.push(gpu);
        }
    }

    fn close(&mut self) {
        if self.gpus.is_empty() {
            return;
        }
        let index = self.input.below(self.gpus.len());
        // SAFETY: live, and not used again.
        unsafe { vkgdr_close(self.gpus.swap_remove(index)) };
    }

    fn allocate(&mut self) {
        if self.items.len() >= MOST {
            return;
        }
        let gpu = self.gpu();
        let (len, kind) = (self.input.number(LARGEST), u32::from(self.input.byte() % 5));
        // Sizes that may succeed are bounded by the machine's memory.
        let len = if (LARGEST..1 << 60).contains(&len) { LARGEST } else { len };
        // SAFETY: null or live.
        let handle = unsafe { vkgdr_memory_alloc(gpu, len, kind) };
        check_last_error(handle.is_null());
        if gpu.is_null() || len == 0 || len > LARGEST || kind > 2 {
            assert!(handle.is_null(), "{len} bytes of kind {kind}");
        }
        self.keep(handle, len, kind, None);
    }

    /// Keeps new memory with known bytes, unless earlier work of the stream may still use it.
    fn keep(&mut self, handle: vkgdr_memory_t, len: usize, kind: u32, stream: Option<usize>) {
        if handle.is_null() {
            return;
        }
        let (mut bytes, value) = (None, self.input.byte());
        if stream.is_none() && kind != 2 {
            // SAFETY: live.
            assert_eq!(unsafe { vkgdr_memory_fill(handle, 0, len, (&raw const value).cast(), 1) }, SUCCESS);
            bytes = Some(vec![value; len]);
        }
        self.items.push(Item { handle, len, kind, bytes, shared: false, stream });
    }

    fn create_pool(&mut self) {
        if self.pools.len() >= 3 {
            return;
        }
        let gpu = self.gpu();
        let options = vkgdr_pool_options {
            size: match self.input.byte() % 4 {
                0 => self.input.below(2 * size_of::<vkgdr_pool_options>()).min(size_of::<vkgdr_pool_options>()),
                _ => size_of::<vkgdr_pool_options>(),
            },
            block_len: [0, 64 << 10, 256 << 10, 1, usize::MAX][self.input.below(5)],
            largest_chunk: [0, 256, 32 << 10, 1, usize::MAX][self.input.below(5)],
            alignment: [0, 64, 4096, 3, usize::MAX][self.input.below(5)],
            kind: u32::from(self.input.byte() % 4),
            classes_per_doubling: u32::from(self.input.byte() % 8),
        };
        let mut pool = null_mut();
        let pointer = if self.input.byte().is_multiple_of(4) { null() } else { &raw const options };
        // SAFETY: the options have their stated size, and the output is valid.
        let status = unsafe { vkgdr_pool_create(gpu, pointer, &raw mut pool) };
        assert_eq!(status == SUCCESS, !pool.is_null());
        check_last_error(pool.is_null());
        if !pool.is_null() {
            self.pools.push(pool);
        }
    }

    fn close_pool(&mut self) {
        if self.pools.is_empty() {
            return;
        }
        let index = self.input.below(self.pools.len());
        // SAFETY: live, and not used again.
        unsafe { vkgdr_pool_close(self.pools.swap_remove(index)) };
    }

    fn allocate_from_pool(&mut self) {
        if self.items.len() >= MOST {
            return;
        }
        let (pool, len) = (self.pool(), self.input.word() % LARGEST);
        let stream = Some(self.input.below(4 * STREAMS)).filter(|stream| *stream < STREAMS);
        let handle = match stream {
            // SAFETY: null or live, and the world's streams outlive the memory.
            Some(stream) => unsafe { vkgdr_pool_alloc_on(pool, len, self.streams[stream].raw().cast()) },
            // SAFETY: as above.
            None => unsafe { vkgdr_pool_alloc(pool, len) },
        };
        check_last_error(handle.is_null());
        let mut kind = 0;
        // SAFETY: null or live, and a valid output.
        let status = unsafe { vkgdr_memory_get_kind(handle, &raw mut kind) };
        assert_eq!(status, if handle.is_null() { INVALID_ARGUMENT } else { SUCCESS });
        self.keep(handle, len, kind, stream);
    }

    fn use_pool(&mut self) {
        let (pool, mut freed, mut stats) =
            (self.pool(), 0, vkgdr_pool_stats { free_chunks: 0, used_chunks: 0, managed_bytes: 0, active_bytes: 0 });
        let keep = self.input.number(1 << 20);
        // SAFETY: null or live, and valid outputs.
        let status = unsafe {
            match self.input.byte() % 4 {
                0 => vkgdr_pool_trim(pool, keep, &raw mut freed),
                1 => vkgdr_pool_free_held(pool),
                2 => vkgdr_pool_stop_holding(pool),
                _ => vkgdr_pool_get_stats(pool, &raw mut stats),
            }
        };
        assert_eq!(status, if pool.is_null() { INVALID_ARGUMENT } else { SUCCESS });
        assert!(stats.managed_bytes >= stats.active_bytes && stats.used_chunks <= MOST);
    }

    fn region(&mut self) {
        if self.items.is_empty() || self.items.len() >= MOST {
            return;
        }
        let index = self.input.below(self.items.len());
        self.wait(index);
        let (len, kind) = (self.items[index].len, self.items[index].kind);
        let (offset, size) = (self.input.number(len), self.input.number(len));
        let mut handle = null_mut();
        // SAFETY: live, and a valid output.
        let status = unsafe { vkgdr_memory_create_region(self.items[index].handle, offset, size, &raw mut handle) };
        assert_eq!(status == SUCCESS, is_inside(offset, size, len), "{size} at {offset} of {len}: {status}");
        if status != SUCCESS {
            assert_eq!((status, handle.is_null()), (OUT_OF_RANGE, true));
            return;
        }
        self.items[index].shared = true;
        self.items.push(Item { handle, len: size, kind, bytes: None, shared: true, stream: None });
    }

    fn free(&mut self) {
        if self.items.is_empty() {
            return;
        }
        let index = self.input.below(self.items.len());
        let item = self.items.swap_remove(index);
        match self.input.byte() % 3 {
            // SAFETY: live, not used again, and bound to the stream that may use it.
            0 => unsafe { vkgdr_memory_free(item.handle) },
            // SAFETY: as above.
            1 => assert_eq!(unsafe { vkgdr_memory_free_checked(item.handle) }, SUCCESS),
            _ => {
                let stream = item.stream.map_or(null_mut(), |stream| self.streams[stream].raw().cast());
                // SAFETY: as above; the legacy default stream is always valid. After an error the memory is still live.
                let status = unsafe { vkgdr_memory_free_on_stream(item.handle, stream) };
                if status != SUCCESS {
                    assert_eq!(status, INVALID_ARGUMENT, "only a region is refused");
                    // SAFETY: as above.
                    unsafe { vkgdr_memory_free(item.handle) };
                }
            }
        }
    }

    fn ask(&mut self) {
        let Some(index) = self.choose() else { return };
        self.wait(index);
        let Item { handle, len, kind, .. } = self.items[index];
        // SAFETY: live, in all of these.
        unsafe {
            assert_eq!(vkgdr_memory_get_size(handle), len);
            assert_eq!(vkgdr_memory_get_host_ptr(handle).is_null(), kind == 2);
            assert_ne!(vkgdr_memory_get_device_ptr(handle), 0);
            assert!(vkgdr_memory_non_coherent_atom_size(handle).is_power_of_two());
            vkgdr_memory_is_coherent(handle);
            let bound = vkgdr_memory_bind_stream(handle, null_mut());
            assert!([SUCCESS, INVALID_ARGUMENT].contains(&bound), "{bound}");
        }
    }

    fn ask_gpu(&mut self) {
        let gpu = self.gpu();
        let expected = if gpu.is_null() { INVALID_ARGUMENT } else { SUCCESS };
        let (mut name, mut uuid, mut number, mut yes, mut count) = ([1; 16], [0; 16], 0, false, 0);
        let (kind, capacity) = (u32::from(self.input.byte() % 3), self.input.below(17));
        let mut info = vkgdr_memory_info { total: 0, available: 0, from_budget: false };
        // SAFETY: null or live, and valid outputs, in all of these.
        unsafe {
            assert_eq!(vkgdr_device_get_number(gpu, &raw mut number), expected);
            assert_eq!(vkgdr_device_get_uuid(gpu, uuid.as_mut_ptr()), expected);
            assert_eq!(vkgdr_device_supports(gpu, kind, &raw mut yes), expected);
            assert_eq!(vkgdr_device_collect(gpu, &raw mut count), expected);
            let status = vkgdr_device_get_memory_info(gpu, kind, &raw mut info);
            assert!(status == expected || !yes && status == NOT_SUPPORTED);
            let status = vkgdr_device_get_name(gpu, name.as_mut_ptr(), capacity);
            if status == SUCCESS {
                assert!(name[..capacity].contains(&0), "the name has no end");
            }
            assert!(name[capacity..].iter().all(|byte| *byte == 1), "written beyond the buffer");
        }
    }

    fn end(mut self) {
        for item in std::mem::take(&mut self.items) {
            // SAFETY: live, not used again, and bound to the stream that may use it.
            unsafe { vkgdr_memory_free(item.handle) };
        }
        for pool in std::mem::take(&mut self.pools) {
            // SAFETY: live, and not used again.
            unsafe { vkgdr_pool_close(pool) };
        }
        self.streams.iter().for_each(Stream::synchronize);
        // Any handle collects for the GPU.
        self.gpus.push(vkgdr_open(0, 0));
        for gpu in std::mem::take(&mut self.gpus) {
            // SAFETY: as above.
            unsafe { vkgdr_device_collect(gpu, null_mut()) };
            // SAFETY: as above.
            unsafe { vkgdr_close(gpu) };
        }
        if self.is_alone {
            assert_nothing_lives();
        }
    }
}

/// Fails unless all memory is freed.
pub(crate) fn assert_nothing_lives() {
    if let Some(sim) = support::simcuda() {
        assert_eq!([sim.live_objects_of("external"), sim.live_objects_of("mapped")], [0, 0], "left behind");
    }
}

/// Checks that the last error is set if and only if a call failed.
fn check_last_error(failed: bool) {
    let (mut status, text) = (0, vkgdr_last_error());
    // SAFETY: a valid output; null is skipped.
    assert_eq!(unsafe { vkgdr_last_error_codes(&raw mut status, null_mut(), null_mut()) }, SUCCESS);
    assert_eq!((!text.is_null(), status != SUCCESS), (failed, failed));
    if !text.is_null() {
        // SAFETY: a terminated string.
        let words = unsafe { CStr::from_ptr(text) };
        assert!(!words.to_bytes().contains(&b'\n'), "{words:?}");
        // SAFETY: the caller owns the string.
        unsafe { libc::free(text.cast()) };
    }
}
