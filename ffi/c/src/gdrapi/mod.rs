//! The interface of gdrcopy 2.6, for programs that were written for it: they find it as `libgdrapi.so.2`, an empty library that
//! depends on this one.
//!
//! | file | contents |
//! |---|---|
//! | `boundary` | the boundary around every export: failures as error numbers, panics |
//! | `pin` | the memory that is pinned, and copies of it |
//! | `handles` | handles and the `gdr_t` that they belong to |
//!
//! Memory of this library is found by its address; other CUDA memory is mapped where the driver can
//! ([`vkgdr_rs::Memory::map_existing`]). No kernel module is needed. `include/gdrapi.h`, which is written by hand, declares the functions.
#![expect(unsafe_code, reason = "exports C symbols")]

mod boundary;
mod handles;
mod pin;

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use boundary::{Outcome, Refusal, invalid, status};
use pin::PAGE;

use crate::access::{bytes, bytes_mut};
use crate::boundary::{put, set_errno};

/// The version of gdrcopy whose interface this is.
const VERSION: (c_int, c_int) = (2, 6);
/// `gdr_pin_flags_t`: by the PCIe BAR, also where the CPU could cache the memory.
const FORCE_PCIE: u32 = 1;
/// `gdr_mapping_type_t`.
const NONE: u8 = 0;
const WC: u8 = 1;
const CACHING: u8 = 2;

/// A connection, as a number: never an address.
pub type gdr_t = *mut c_void;

/// A handle of pinned memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct gdr_mh_t {
    /// A number; 0 is no handle.
    pub h: c_ulong,
}

/// What is known of pinned memory, in programs built with gdrcopy before 2.4.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct gdr_info_v1_t {
    /// The pinned device address.
    pub va: u64,
    /// The bytes from there to the end of the last page.
    pub mapped_size: u64,
    /// The size of a page in bytes.
    pub page_size: u32,
    /// 0: deprecated by gdrcopy.
    pub tm_cycles: u64,
    /// 0: deprecated by gdrcopy.
    pub cycles_per_ms: u32,
    /// Bit 0: mapped. Bit 1: mapped, and the CPU's stores are write-combined.
    pub bits: c_uint,
}

/// What is known of pinned memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct gdr_info_v2_t {
    /// The members of both versions, which come first.
    pub v1: gdr_info_v1_t,
    /// A `gdr_mapping_type_t`.
    pub mapping_type: c_uint,
}

/// Opens a connection. Initialises CUDA (`cuInit`), which rules CUDA out in children that are forked later.
///
/// NULL, and an error number in `errno`, where there is no CUDA driver. As gdrcopy does, it sets `ENOTSUP` where nothing can
/// be pinned: programs then do without.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_open() -> gdr_t {
    let mut g = 0;
    let code = status(|| {
        vkgdr_rs::device_count()?;
        if !pin::is_possible()? {
            let reason = "no GPU lets the CPU map CUDA's memory, and the program has not opened a GPU by libvkgdr; to pin memory of \
                          one that it opens later, set VKGDR_GDR_OPEN=always";
            return Err(Refusal::Told(libc::ENOTSUP, reason));
        }
        g = handles::open()?;
        Ok(())
    });
    if code != 0 {
        set_errno(code);
        return ptr::null_mut();
    }
    ptr::without_provenance_mut(usize::try_from(g).expect("64 bits"))
}

fn number(g: gdr_t) -> u64 {
    g.addr() as u64
}

/// Closes a connection and unpins all memory that is still pinned through it.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_close(g: gdr_t) -> c_int {
    status(|| handles::close(number(g)))
}

/// Pins `size` bytes at a device address, as whole pages. The token and the address space are ignored, as gdrcopy's own
/// programs pass 0.
///
/// # Safety
///
/// `handle` must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_pin_buffer(
    g: gdr_t,
    addr: c_ulong,
    size: usize,
    _p2p_token: u64,
    _va_space: u32,
    handle: *mut gdr_mh_t,
) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { gdr_pin_buffer_v2(g, addr, size, 0, handle) }
}

/// As [`gdr_pin_buffer`], with flags.
///
/// # Safety
///
/// As of [`gdr_pin_buffer`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_pin_buffer_v2(
    g: gdr_t,
    addr: c_ulong,
    size: usize,
    flags: u32,
    handle: *mut gdr_mh_t,
) -> c_int {
    status(|| {
        handles::check(number(g))?;
        if handle.is_null() || flags & !FORCE_PCIE != 0 {
            return Err(invalid("the pointer to the handle is null, or a flag is unknown"));
        }
        if addr == 0 {
            return Err(invalid("address 0 is no memory's"));
        }
        let pin = pin::pin(addr, size as u64, flags & FORCE_PCIE != 0)?;
        let h = handles::add(number(g), pin)?;
        // SAFETY: by this function's contract.
        Ok(unsafe { put(handle, gdr_mh_t { h }) }?)
    })
}

/// Unpins memory, and ends its mapping if there is one.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_unpin_buffer(g: gdr_t, handle: gdr_mh_t) -> c_int {
    status(|| handles::unpin(number(g), handle.h))
}

/// Whether the memory was freed while it is pinned. Never that of vkgdr, which is kept alive.
///
/// # Safety
///
/// `flag` must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_callback_flag(g: gdr_t, handle: gdr_mh_t, flag: *mut c_int) -> c_int {
    status(|| {
        let freed = handles::pinned(number(g), handle.h)?.is_freed()?;
        // SAFETY: by this function's contract.
        Ok(unsafe { put(flag, freed.into()) }?)
    })
}

/// What is known of pinned memory.
///
/// # Safety
///
/// `info` must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_info_v2(g: gdr_t, handle: gdr_mh_t, info: *mut gdr_info_v2_t) -> c_int {
    status(|| {
        let known = known(g, handle)?;
        // SAFETY: by this function's contract.
        Ok(unsafe { put(info, known) }?)
    })
}

/// What is known of pinned memory, without the type of its mapping. Programs built with gdrcopy before 2.4 import this
/// symbol, and NCCL requires it. In `gdrapi.h` the name stands for [`gdr_get_info_v2`], as in gdrcopy's.
///
/// # Safety
///
/// `info` must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_info(g: gdr_t, handle: gdr_mh_t, info: *mut gdr_info_v1_t) -> c_int {
    status(|| {
        let known = known(g, handle)?;
        // SAFETY: by this function's contract.
        Ok(unsafe { put(info, known.v1) }?)
    })
}

fn known(g: gdr_t, handle: gdr_mh_t) -> Outcome<gdr_info_v2_t> {
    let pin = handles::pinned(number(g), handle.h)?;
    let mapping = pin.mapping.load(Relaxed);
    let v1 = gdr_info_v1_t {
        va: pin.va,
        mapped_size: pin.mapped_size,
        #[expect(clippy::cast_possible_truncation, reason = "64 KiB")]
        page_size: PAGE as u32,
        bits: c_uint::from(mapping != NONE) | c_uint::from(mapping == WC) << 1,
        ..Default::default()
    };
    Ok(gdr_info_v2_t { v1, mapping_type: mapping.into() })
}

/// Gives the host address of the pinned memory, whose device address is `gdr_info_v2_t::va`.
///
/// # Safety
///
/// `va` must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_map(g: gdr_t, handle: gdr_mh_t, va: *mut *mut c_void, size: usize) -> c_int {
    // SAFETY: by this function's contract.
    unsafe { gdr_map_v2(g, handle, va, size, 0) }
}

/// As [`gdr_map`], with the required type of mapping, of which pinned memory has one: `EINVAL` for any other.
///
/// # Safety
///
/// As of [`gdr_map`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_map_v2(
    g: gdr_t,
    handle: gdr_mh_t,
    va: *mut *mut c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    status(|| {
        let pin = handles::pinned(number(g), handle.h)?;
        let own = if pin.cached { CACHING } else { WC };
        let fits = (1..=pin.mapped_size).contains(&(size as u64));
        let allowed = if !pin.can_be_mapped {
            Err(invalid("the address is within a page of CUDA's memory: pin it from the start of the page"))
        } else if va.is_null() || !fits || ![0, own.into()].contains(&flags) {
            Err(invalid("va is null, the size 0 or beyond the pinned pages, or the type not the memory's"))
        } else if vkgdr_rs::is_forked() {
            Err(vkgdr_rs::Error::Forked.into())
        } else {
            Ok(())
        };
        let before = if allowed.is_ok() { pin.mapping.swap(own, Relaxed) } else { pin.mapping.load(Relaxed) };
        // gdrcopy reports that it is mapped already before anything else.
        if before != NONE {
            return Err(Refusal::Told(libc::EAGAIN, "the memory is mapped already"));
        }
        allowed?;
        // SAFETY: by this function's contract.
        Ok(unsafe { put(va, ptr::with_exposed_provenance_mut(pin.map)) }?)
    })
}

/// Ends a mapping. The host addresses stay valid until the memory is unpinned or freed. Like gdrcopy's, it does not look at the
/// address: DPDK passes the device's.
#[unsafe(no_mangle)]
pub extern "C" fn gdr_unmap(g: gdr_t, handle: gdr_mh_t, _va: *mut c_void, size: usize) -> c_int {
    status(|| {
        let pin = handles::pinned(number(g), handle.h)?;
        let was_mapped = size != 0 && pin.mapping.swap(NONE, Relaxed) != NONE;
        if was_mapped { Ok(()) } else { Err(invalid("nothing is mapped, or the size is 0")) }
    })
}

/// Copies from private memory to a mapping.
///
/// # Safety
///
/// `h_ptr` must be good for reading `size` bytes, and no other thread unpin the memory meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_copy_to_mapping(
    handle: gdr_mh_t,
    map_d_ptr: *mut c_void,
    h_ptr: *const c_void,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: no other thread unpins it meanwhile, by this function's contract.
        let pin = unsafe { handles::mapped(handle.h) }?;
        // As gdrcopy: wherever the pointers point.
        if size == 0 {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        let source = unsafe { bytes(h_ptr, size, "h_ptr") }?;
        pin.write(map_d_ptr.addr(), source)
    })
}

/// Copies from a mapping to private memory.
///
/// # Safety
///
/// `h_ptr` must be good for writing `size` bytes, and no other thread unpin the memory meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_copy_from_mapping(
    handle: gdr_mh_t,
    h_ptr: *mut c_void,
    map_d_ptr: *const c_void,
    size: usize,
) -> c_int {
    status(|| {
        // SAFETY: no other thread unpins it meanwhile, by this function's contract.
        let pin = unsafe { handles::mapped(handle.h) }?;
        if size == 0 {
            return Ok(());
        }
        // SAFETY: by this function's contract.
        let target = unsafe { bytes_mut(h_ptr, size, "h_ptr") }?;
        pin.read(map_d_ptr.addr(), target)
    })
}

/// The version of gdrcopy whose interface this is.
///
/// # Safety
///
/// Both pointers must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_runtime_get_version(major: *mut c_int, minor: *mut c_int) {
    // SAFETY: by this function's contract.
    let _ = unsafe { put(major, VERSION.0) };
    // SAFETY: by this function's contract.
    let _ = unsafe { put(minor, VERSION.1) };
}

/// The version of gdrcopy's kernel module with this interface. This library needs no kernel module.
///
/// # Safety
///
/// Both pointers must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_driver_get_version(g: gdr_t, major: *mut c_int, minor: *mut c_int) -> c_int {
    status(|| {
        handles::check(number(g))?;
        if minor.is_null() {
            return Err(invalid("the pointer to a result is null"));
        }
        // SAFETY: by this function's contract.
        unsafe { put(major, VERSION.0) }?;
        // SAFETY: by this function's contract.
        Ok(unsafe { put(minor, VERSION.1) }?)
    })
}

/// An attribute: 1, mappings outlive the memory; 2, pinning by PCIe can be asked for; 3, existing memory is mapped by a
/// dma-buf. Without the last, only memory of vkgdr is mapped. The value is 0 where the call fails, as gdrcopy's.
///
/// # Safety
///
/// `v` must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_attribute(g: gdr_t, attr: c_int, v: *mut c_int) -> c_int {
    status(|| {
        // SAFETY: by this function's contract.
        unsafe { put(v, 0) }?;
        handles::check(number(g))?;
        let value = match attr {
            1 | 2 => true,
            3 => pin::supports_existing()?,
            _ => return Err(invalid("the attribute is unknown")),
        };
        // SAFETY: by this function's contract.
        Ok(unsafe { put(v, value.into()) }?)
    })
}

/// The name of a type of mapping: a static string.
///
/// # Safety
///
/// `text` must be null or good for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gdr_get_mapping_type_string(mapping_type: c_int, text: *mut *const c_char) -> c_int {
    status(|| {
        let name = match mapping_type {
            0 => c"None",
            1 => c"Write Combining",
            2 => c"Caching",
            3 => c"Device",
            _ => return Err(invalid("the type of mapping is unknown")),
        };
        // SAFETY: by this function's contract.
        Ok(unsafe { put(text, name.as_ptr()) }?)
    })
}
