//! What a call through the C library costs beside the same call in Rust, and beside the same function of vkgdr 0.1; and a copy by
//! gdrcopy's functions beside one by [`Memory`].
//!
//! The library is loaded as a program would load it. The peer is the extension module in vkgdr 0.1's wheel on PyPI, which
//! exports its C functions beside those for Python. It needs an interpreter only when Python calls it: the functions of Python
//! that it names are looked up when they are called, which nothing here does.
#![expect(unsafe_code, reason = "calls C functions")]

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::{null, null_mut};
use std::time::Duration;
use std::{env, slice};

use libloading::Library;
use libloading::os::unix::{Library as UnixLibrary, RTLD_LAZY, RTLD_LOCAL, Symbol};
use support::cuda::Context;
use vkgdr::{Memory, MemoryKind, OpenFlags, Pool, PoolOptions, Vkgdr};
use vkgdr_c::{
    gdr_close, gdr_copy_from_mapping, gdr_copy_to_mapping, gdr_get_info_v2, gdr_info_v2_t, gdr_map, gdr_mh_t, gdr_open,
    gdr_pin_buffer, vkgdr_open_primary_context,
};

use crate::contest::pairs;
use crate::report::{Goal, Report};
use crate::{Result, must, size};

const LEN: usize = 4096;
const SECOND: Duration = Duration::from_secs(1);

/// A handle of the C library.
type Handle = *mut c_void;

/// Finds functions, whose types are those in the header.
macro_rules! functions {
    ($(#[$about:meta])* $name:ident { $($field:ident: $symbol:literal fn($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$about])*
        struct $name {
            $($field: Symbol<unsafe extern "C" fn($($argument),*) $(-> $result)?>,)*
        }

        impl $name {
            fn find(library: &UnixLibrary) -> Result<Self> {
                // SAFETY: the type is that of the function in the header.
                Ok(Self { $($field: unsafe { library.get($symbol) }?,)* })
            }
        }
    };
}

functions! {
    /// The functions that vkgdr 0.1 has, too.
    Functions {
        open: b"vkgdr_open\0" fn(i32, u32) -> Handle;
        close: b"vkgdr_close\0" fn(Handle);
        alloc: b"vkgdr_memory_alloc\0" fn(Handle, usize, u32) -> Handle;
        free: b"vkgdr_memory_free\0" fn(Handle);
        device_ptr: b"vkgdr_memory_get_device_ptr\0" fn(Handle) -> u64;
    }
}

functions! {
    PoolFunctions {
        create: b"vkgdr_pool_create\0" fn(Handle, *const c_void, *mut Handle) -> i32;
        alloc: b"vkgdr_pool_alloc\0" fn(Handle, usize) -> Handle;
        close: b"vkgdr_pool_close\0" fn(Handle);
    }
}

impl Functions {
    /// Opens the first GPU.
    fn open(&self) -> Result<Handle> {
        // SAFETY: any arguments are allowed.
        let handle = unsafe { (self.open)(0, 0) };
        if handle.is_null() { Err("vkgdr_open failed".into()) } else { Ok(handle) }
    }

    fn allocate(&self, handle: Handle, len: usize) -> Handle {
        // SAFETY: the handle is live.
        let memory = black_box(unsafe { (self.alloc)(handle, len, 0) });
        assert!(!memory.is_null(), "vkgdr_memory_alloc failed");
        memory
    }

    fn free(&self, memory: Handle) {
        // SAFETY: nothing uses the memory.
        unsafe { (self.free)(memory) };
    }

    fn cycle(&self, handle: Handle, len: usize) {
        self.free(self.allocate(handle, len));
    }
}

/// The library that cargo built beside this program, or that is in its folder.
fn load() -> Result<UnixLibrary> {
    let program = env::current_exe()?;
    let folder = program.parent().ok_or("the program has no folder")?;
    let files = ["deps/libvkgdr_c.so", "libvkgdr_c.so"].map(|name| folder.join(name));
    let file = files.iter().find(|file| file.exists()).ok_or("there is no libvkgdr_c.so")?;
    // SAFETY: loading this library runs no code of its own.
    Ok(unsafe { Library::new(file) }?.into())
}

/// Python's `None`. The dynamic loader looks up data when it loads a module, other than functions, and this is all that the module
/// refers to: nothing reads it. `build.rs` has the linker export it.
#[unsafe(no_mangle)]
#[used]
static _Py_NoneStruct: [usize; 4] = [0; 4];

/// Loads vkgdr 0.1's module, whose functions have the names of ours: they are found by this handle only.
fn load_peer() -> Result<UnixLibrary> {
    let path = env::var("VKGDR_PEER_LIBRARY").map_err(|_| "VKGDR_PEER_LIBRARY does not name vkgdr 0.1's module")?;
    black_box(&raw const _Py_NoneStruct);
    // SAFETY: loading the module runs no code of its own.
    Ok(unsafe { UnixLibrary::open(Some(&path), RTLD_LAZY | RTLD_LOCAL) }?)
}

pub(crate) fn calls() -> Result {
    let _context = Context::create(0);
    let library = load()?;
    let c = Functions::find(&library)?;
    let gpu = Vkgdr::open(0, OpenFlags::empty())?;
    let handle = c.open()?;
    let mut report = Report::new("c_calls", gpu.name(), false)?;
    if let Err(reason) = compare_with_peer(&mut report, &c, handle) {
        report.skip("C functions beside those of 0.1", &reason);
    }
    // What the C functions do: nothing is waited for.
    let cycle_in_rust = || {
        let memory = black_box(must(Memory::allocate(&gpu, LEN, MemoryKind::Mapped)));
        // SAFETY: nothing uses the memory.
        must(unsafe { memory.free_unsynchronized() });
    };
    let cycles = pairs(6 * SECOND, || c.cycle(handle, LEN), cycle_in_rust);
    report.add("vkgdr_memory_alloc + free, 4 KiB", "Rust", &cycles, Goal::Ratio(1.02));
    compare_pools(&mut report, &PoolFunctions::find(&library)?, &c, handle, &gpu)?;
    // SAFETY: nothing uses the handle any more.
    unsafe { (c.close)(handle) };
    Ok(())
}

/// Compares functions of vkgdr 0.1 with ours of the same name.
fn compare_with_peer(report: &mut Report, c: &Functions, handle: Handle) -> Result {
    let library = load_peer()?;
    let old = Functions::find(&library)?;
    let old_handle = old.open()?;
    for len in [LEN, 1 << 20] {
        let cycles = pairs(6 * SECOND, || c.cycle(handle, len), || old.cycle(old_handle, len));
        report.add(
            format!("vkgdr_memory_alloc + free and those of 0.1, {}", size(len)),
            "0.1",
            &cycles,
            Goal::Ratio(1.0),
        );
    }
    let (mem, old_mem) = (c.allocate(handle, LEN), old.allocate(old_handle, LEN));
    // SAFETY: the memory is live.
    let getter = || unsafe { (c.device_ptr)(black_box(mem)) };
    // SAFETY: as above.
    let old_getter = || unsafe { (old.device_ptr)(black_box(old_mem)) };
    let times = pairs(SECOND, getter, old_getter);
    report.add("vkgdr_memory_get_device_ptr and that of 0.1", "0.1", &times, Goal::Ratio(1.3));
    old.free(old_mem);
    c.free(mem);
    // SAFETY: nothing uses the handle any more.
    unsafe { (old.close)(old_handle) };
    Ok(())
}

/// An allocation and a free, also of memory whose address on the device was asked for.
fn compare_pools(report: &mut Report, pools: &PoolFunctions, c: &Functions, handle: Handle, gpu: &Vkgdr) -> Result {
    let rust = Pool::new(gpu, PoolOptions::default())?;
    let mut pool = null_mut();
    // SAFETY: the handle is live, and the pool can be written.
    let status = unsafe { (pools.create)(handle, null(), &raw mut pool) };
    assert_eq!(status, 0, "vkgdr_pool_create failed");
    for (case, is_shown) in [("", false), (" with get_device_ptr", true)] {
        let in_c = || {
            // SAFETY: the pool is live.
            let memory = black_box(unsafe { (pools.alloc)(pool, LEN) });
            assert!(!memory.is_null(), "vkgdr_pool_alloc failed");
            if is_shown {
                // SAFETY: the memory is live.
                black_box(unsafe { (c.device_ptr)(memory) });
            }
            c.free(memory);
        };
        let in_rust = || {
            let memory = black_box(must(rust.allocate(LEN)));
            if is_shown {
                black_box(memory.device_ptr());
            }
            // SAFETY: nothing uses the memory.
            must(unsafe { memory.free_unsynchronized() });
        };
        let times = pairs(SECOND, in_c, in_rust);
        report.add(format!("vkgdr_pool_alloc + free, 4 KiB{case}"), "Rust", &times, Goal::Ratio(1.3));
    }
    // SAFETY: nothing uses the pool any more.
    unsafe { (pools.close)(pool) };
    Ok(())
}

/// With the library that is a part of this program, which knows this program's memory.
pub(crate) fn gdr_copies() -> Result {
    const LEN: usize = 1 << 20;
    // `gdr_open` asks whether this library was used.
    let mut opened = null_mut();
    // SAFETY: a place for the handle, which lasts as long as the process.
    assert_eq!(unsafe { vkgdr_open_primary_context(0, 0, &raw mut opened) }, 0);
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    let (mut handle, mut va, mut known) = (gdr_mh_t { h: 0 }, null_mut(), gdr_info_v2_t::default());
    let g = gdr_open();
    // SAFETY: places for the results, here and below.
    let pinned = unsafe { gdr_pin_buffer(g, memory.device_ptr(), LEN, 0, 0, &raw mut handle) };
    // SAFETY: as above.
    let asked = unsafe { gdr_get_info_v2(g, handle, &raw mut known) };
    // SAFETY: as above.
    let mapped = unsafe { gdr_map(g, handle, &raw mut va, LEN) };
    assert_eq!((pinned, asked, mapped), (0, 0, 0));
    let bytes = va.wrapping_byte_add(usize::try_from(memory.device_ptr() - known.v1.va)?);

    let mut report = Report::new("gdr_copies", gpu.name(), false)?;
    for len in [8, 64, 512, 4096, 16 << 10, 128 << 10, LEN] {
        let goal = if len < 4096 { Goal::Nanoseconds(5.0) } else { Goal::Ratio(1.05) };
        // Both sides use the same private bytes, whose place in a page changes the time of a copy.
        let mut private = vec![7_u8; len];
        let place = private.as_mut_ptr();
        // SAFETY: private memory of `len` bytes.
        let ours = || unsafe { gdr_copy_to_mapping(black_box(handle), bytes, place.cast(), black_box(len)) };
        // SAFETY: as above, which only this side uses meanwhile.
        let source = || unsafe { slice::from_raw_parts(black_box(place), len) };
        let times = pairs(SECOND, ours, || must(memory.write(black_box(0), source())));
        report.add(format!("gdr_copy_to_mapping, {}", size(len)), "Memory::write", &times, goal);
        // SAFETY: private memory of `len` bytes.
        let ours = || unsafe { gdr_copy_from_mapping(black_box(handle), place.cast(), bytes, black_box(len)) };
        // SAFETY: as above, which only this side uses meanwhile.
        let target = || unsafe { slice::from_raw_parts_mut(black_box(place), len) };
        let times = pairs(SECOND, ours, || must(memory.read(black_box(0), target())));
        report.add(format!("gdr_copy_from_mapping, {}", size(len)), "Memory::read", &times, goal);
    }
    assert_eq!(gdr_close(g), 0);
    Ok(())
}
