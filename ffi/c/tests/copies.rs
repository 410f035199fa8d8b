//! Two copies of the crate in one process, this program's and that of `libvkgdr.so.1`, find each other's memory.
#![expect(unsafe_code, reason = "loads the C library")]

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use libloading::Library;
use vkgdr_rs::{Error, Memory, MemoryKind, OpenFlags, Vkgdr, memory_of, other_memory_of};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const LEN: usize = 70_001;
const NOT_SUPPORTED: i32 = 3;
const NOT_FOUND: i32 = 13;

/// The functions of the C library that the tests call.
struct Functions {
    open: unsafe extern "C" fn(c_int, u32, *mut *mut c_void) -> i32,
    close: unsafe extern "C" fn(*mut c_void),
    alloc: unsafe extern "C" fn(*mut c_void, usize, u32) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    host_ptr: unsafe extern "C" fn(*mut c_void) -> *mut u8,
    device_ptr: unsafe extern "C" fn(*mut c_void) -> u64,
    find: unsafe extern "C" fn(*const c_void, *mut *mut c_void, *mut usize) -> i32,
    free_at: unsafe extern "C" fn(u64) -> i32,
}

fn functions() -> Result<Functions> {
    let named = std::env::var_os("VKGDR_C_LIBRARY").map(PathBuf::from);
    let built = || Ok::<_, Box<dyn std::error::Error>>(std::env::current_exe()?.with_file_name("libvkgdr_c.so"));
    // SAFETY: the library may be loaded at any time.
    let library = unsafe { Library::new(named.map_or_else(built, Ok)?) }?;
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the function's prototype in vkgdr.h.
            *unsafe { library.get($name) }?
        };
    }
    Ok(Functions {
        open: function!(b"vkgdr_open_primary_context"),
        close: function!(b"vkgdr_close"),
        alloc: function!(b"vkgdr_memory_alloc"),
        free: function!(b"vkgdr_memory_free"),
        host_ptr: function!(b"vkgdr_memory_get_host_ptr"),
        device_ptr: function!(b"vkgdr_memory_get_device_ptr"),
        find: function!(b"vkgdr_find"),
        free_at: function!(b"vkgdr_memory_free_at"),
    })
}

#[test]
fn a_rust_program_uses_memory_of_the_c_library_that_it_loaded() -> Result {
    let c = functions()?;
    let mut handle = ptr::null_mut();
    // SAFETY: a place for the handle.
    assert_eq!(unsafe { (c.open)(0, 0, &raw mut handle) }, 0);
    // SAFETY: a live handle.
    let memory = unsafe { (c.alloc)(handle, LEN, 0) };
    assert!(!memory.is_null());
    // SAFETY: live memory.
    let (host, device) = (unsafe { (c.host_ptr)(memory) }, unsafe { (c.device_ptr)(memory) });
    for (address, offset) in [(device, 0), (device + 5, 5), (host.addr() as u64 + LEN as u64 - 1, LEN - 1)] {
        assert!(memory_of(address).is_none(), "it is not this copy's");
        let (found, at) = other_memory_of(address).ok_or("not found")?;
        assert_eq!((at, found.len(), found.kind(), found.device()), (offset, LEN, MemoryKind::Mapped, 0));
        assert_eq!(
            (found.device_ptr(), found.host_ptr().map_or(ptr::null_mut(), |host| host.as_ptr())),
            (device, host)
        );
    }
    let (found, _) = other_memory_of(device).ok_or("not found")?;
    let bytes: Vec<u8> = (0..251).cycle().take(LEN).collect();
    found.write(0, &bytes)?;
    found.flush(0, LEN)?;
    // SAFETY: not used again by its handle; the lookup's reference keeps it.
    unsafe { (c.free)(memory) };
    let mut read = vec![0_u8; LEN];
    found.invalidate(0, LEN)?;
    found.read(0, &mut read)?;
    assert!(read == bytes);
    assert!(matches!(found.write(1, &bytes), Err(Error::OutOfRange { .. })));
    drop(found);
    assert!(other_memory_of(device).is_none());
    // SAFETY: a live handle.
    unsafe { (c.close)(handle) };
    Ok(())
}

#[test]
fn the_c_library_says_that_memory_is_the_programs() -> Result {
    let c = functions()?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    let find = |address: u64| -> Result<i32> {
        let (mut found, mut offset) = (ptr::null_mut(), 0);
        let address = ptr::without_provenance(usize::try_from(address)?);
        // SAFETY: places for the results.
        Ok(unsafe { (c.find)(address, &raw mut found, &raw mut offset) })
    };
    assert_eq!(find(memory.device_ptr())?, NOT_SUPPORTED);
    // SAFETY: refused.
    assert_eq!(unsafe { (c.free_at)(memory.device_ptr()) }, NOT_SUPPORTED);
    memory.write(0, &[1_u8])?;
    let address = memory.device_ptr();
    drop(memory);
    assert_eq!(find(address)?, NOT_FOUND);
    Ok(())
}
