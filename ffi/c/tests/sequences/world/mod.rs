//! Sequences of C library calls, decoded from bytes: opens, allocations, regions, pools, copies and flushes with any
//! numbers, work on streams, null handles, frees in any order; never undefined uses.
//!
//! Each call must return the status documented in the header, memory must contain the written bytes, and after all
//! frees no allocation is left in either driver.

mod access;

use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::time::Duration;

use access::is_inside;
use support::cuda::{self, Stream};
use support::step::{Engine, Numbers, Step, What};
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
    let gpus = vec![vkgdr_open(0, 0)];
    let mut world =
        World { numbers: Numbers::default(), streams, is_alone, gpus, pools: Vec::new(), items: Vec::new() };
    world.create_pool();
    let codes = bytes.as_chunks().0;
    codes.iter().for_each(|&code| world.apply(Step::decode(Engine::C, code)));
    world.end();
    codes.len()
}

struct Bytes {
    expected: Vec<u8>,
    /// From the first time on that all are written.
    known: bool,
}

struct Item {
    handle: vkgdr_memory_t,
    len: usize,
    kind: u32,
    /// The expected bytes, which regions share.
    bytes: Rc<RefCell<Bytes>>,
    /// The item's offset in the bytes.
    start: usize,
    /// The stream whose work may use the bytes.
    stream: Option<usize>,
}

struct World {
    /// The step's.
    numbers: Numbers,
    streams: [Stream; STREAMS],
    is_alone: bool,
    gpus: Vec<vkgdr_t>,
    pools: Vec<vkgdr_pool_t>,
    items: Vec<Item>,
}

/// One of the handles, or null.
fn one_of<T>(numbers: &mut Numbers, handles: &[*mut T]) -> *mut T {
    handles.get(numbers.below(handles.len() + 1)).copied().unwrap_or(null_mut())
}

fn remove<T>(numbers: &mut Numbers, list: &mut Vec<T>) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(numbers.below(list.len())))
}

impl World {
    fn apply(&mut self, step: Step) {
        self.numbers = step.numbers;
        match step.what {
            What::Allocate | What::PoolAllocate | What::Slice if self.items.len() >= MOST => {}
            What::Open if self.gpus.len() >= 4 => {}
            What::NewPool if self.pools.len() >= 3 => {}
            What::Open => self.open(),
            // SAFETY: null or live, and not used again, here and below.
            What::Close => unsafe { vkgdr_close(remove(&mut self.numbers, &mut self.gpus).unwrap_or(null_mut())) },
            What::Ask => self.ask_gpu(),
            What::Allocate => self.allocate(),
            What::NewPool => self.create_pool(),
            // SAFETY: as above.
            What::ClosePool => unsafe {
                vkgdr_pool_close(remove(&mut self.numbers, &mut self.pools).unwrap_or(null_mut()));
            },
            What::PoolAllocate => self.allocate_from_pool(),
            What::PoolTrim | What::PoolFreeHeld | What::PoolStopHolding => self.use_pool(step.what),
            What::Delay => self.delay(),
            _ if self.items.is_empty() => {}
            What::Free => self.free(),
            What::DeviceCopy => self.copy_on_stream(),
            what => {
                let index = self.numbers.below(self.items.len());
                self.wait(index);
                self.apply_to_item(what, index);
            }
        }
    }

    /// A step on memory that the CPU may use.
    fn apply_to_item(&mut self, what: What, index: usize) {
        match what {
            What::Slice => self.region(index),
            What::Bind => self.bind(index),
            What::Write => self.write(index),
            What::Read => self.read(index),
            What::Fill => self.fill(index),
            What::Sync => self.synchronise(index),
            what => unreachable!("{what:?} has no weight for C"),
        }
    }

    fn delay(&mut self) {
        let stream = self.streams[self.numbers.below(STREAMS)].raw();
        // SAFETY: live.
        unsafe { Stream::delay(stream, Duration::from_micros(100)) };
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
        // Regions are bound as a whole.
        if Rc::strong_count(&item.bytes) > 1 {
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
        let [to, from] = [(); 2].map(|()| self.numbers.below(self.items.len()));
        let (stream, size) = (self.numbers.below(STREAMS), self.items[to].len.min(self.items[from].len));
        let Some(new) = self.items[from].expected(0, size) else { return };
        if to == from || !self.move_to(to, stream) || !self.move_to(from, stream) {
            return;
        }
        // SAFETY: live, here and below.
        let target = unsafe { vkgdr_memory_get_device_ptr(self.items[to].handle) };
        // SAFETY: as above.
        let source = unsafe { vkgdr_memory_get_device_ptr(self.items[from].handle) };
        cuda::copy_dtod_async(target, source, size, &self.streams[stream]);
        self.items[to].wrote(0, &new);
        self.items[to].stream = Some(stream);
        self.items[from].stream = Some(stream);
    }

    fn open(&mut self) {
        let optional = vkgdr_open_flags::VKGDR_OPEN_MAPPED_OPTIONAL_BIT as u32;
        let (known, device) = (u32::from(self.numbers.byte() % 12), i32::from(self.numbers.byte() % 3) - 1);
        let flags = if self.numbers.below(2) == 0 { known } else { known | optional };
        let mut gpu = null_mut();
        if self.numbers.below(2) == 0 {
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

    fn allocate(&mut self) {
        let gpu = one_of(&mut self.numbers, &self.gpus);
        let (len, kind) = (self.numbers.edge(LARGEST), u32::from(self.numbers.byte() % 5));
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
        let bytes = Rc::new(RefCell::new(Bytes { expected: vec![0; len], known: false }));
        let item = Item { handle, len, kind, bytes, start: 0, stream };
        let value = self.numbers.byte();
        if stream.is_none() && kind != 2 {
            // SAFETY: live.
            assert_eq!(unsafe { vkgdr_memory_fill(handle, 0, len, (&raw const value).cast(), 1) }, SUCCESS);
            item.wrote(0, &vec![value; len]);
        }
        self.items.push(item);
    }

    fn create_pool(&mut self) {
        let gpu = one_of(&mut self.numbers, &self.gpus);
        let options = vkgdr_pool_options {
            size: match self.numbers.below(4) {
                0 => self.numbers.below(2 * size_of::<vkgdr_pool_options>()).min(size_of::<vkgdr_pool_options>()),
                _ => size_of::<vkgdr_pool_options>(),
            },
            block_len: [0, 64 << 10, 256 << 10, 1, usize::MAX][self.numbers.below(5)],
            largest_chunk: [0, 256, 32 << 10, 1, usize::MAX][self.numbers.below(5)],
            alignment: [0, 64, 4096, 3, usize::MAX][self.numbers.below(5)],
            kind: u32::from(self.numbers.byte() % 4),
            classes_per_doubling: u32::from(self.numbers.byte() % 8),
        };
        let mut pool = null_mut();
        let pointer = if self.numbers.below(4) == 0 { null() } else { &raw const options };
        // SAFETY: the options have their stated size, and the output is valid.
        let status = unsafe { vkgdr_pool_create(gpu, pointer, &raw mut pool) };
        assert_eq!(status == SUCCESS, !pool.is_null());
        check_last_error(pool.is_null());
        if !pool.is_null() {
            self.pools.push(pool);
        }
    }

    fn allocate_from_pool(&mut self) {
        let (pool, len) = (one_of(&mut self.numbers, &self.pools), self.numbers.below(LARGEST));
        let stream = Some(self.numbers.below(4 * STREAMS)).filter(|stream| *stream < STREAMS);
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

    fn use_pool(&mut self, what: What) {
        let (pool, mut freed) = (one_of(&mut self.numbers, &self.pools), 0);
        let mut stats = vkgdr_pool_stats { free_chunks: 0, used_chunks: 0, managed_bytes: 0, active_bytes: 0 };
        let keep = self.numbers.edge(1 << 20);
        // SAFETY: null or live, and valid outputs.
        let statuses = unsafe {
            let used = match what {
                What::PoolTrim => vkgdr_pool_trim(pool, keep, &raw mut freed),
                What::PoolFreeHeld => vkgdr_pool_free_held(pool),
                _ => vkgdr_pool_stop_holding(pool),
            };
            [used, vkgdr_pool_get_stats(pool, &raw mut stats)]
        };
        assert_eq!(statuses, [if pool.is_null() { INVALID_ARGUMENT } else { SUCCESS }; 2]);
        assert!(stats.managed_bytes >= stats.active_bytes && stats.used_chunks <= MOST);
    }

    fn region(&mut self, index: usize) {
        let Item { handle: whole, len, kind, start, .. } = self.items[index];
        let (offset, size, mut handle) = (self.numbers.edge(len), self.numbers.edge(len), null_mut());
        // SAFETY: live, and a valid output.
        let status = unsafe { vkgdr_memory_create_region(whole, offset, size, &raw mut handle) };
        let expected = if is_inside(offset, size, len) { SUCCESS } else { OUT_OF_RANGE };
        assert_eq!((status, handle.is_null()), (expected, expected != SUCCESS), "{size} at {offset} of {len}");
        if status != SUCCESS {
            return;
        }
        // SAFETY: live, both of them.
        let [first, part] = [whole, handle].map(|handle| unsafe { vkgdr_memory_get_device_ptr(handle) });
        assert_eq!(part, first + offset as u64);
        let bytes = Rc::clone(&self.items[index].bytes);
        self.items.push(Item { handle, len: size, kind, bytes, start: start + offset, stream: None });
    }

    fn free(&mut self) {
        let item = self.items.swap_remove(self.numbers.below(self.items.len()));
        match self.numbers.below(3) {
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

    /// Binds memory to the default stream, and asks what it is.
    fn bind(&mut self, index: usize) {
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
        let gpu = one_of(&mut self.numbers, &self.gpus);
        let expected = if gpu.is_null() { INVALID_ARGUMENT } else { SUCCESS };
        let (mut name, mut uuid, mut number, mut yes, mut count) = ([1; 16], [0; 16], 0, false, 0);
        let (kind, capacity) = (u32::from(self.numbers.byte() % 3), self.numbers.below(17));
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
