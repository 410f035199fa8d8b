//! nvJitLink by the simulated driver's linker.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use crate::driver::Module;
use crate::{KERNELS, Result, assert_says, good, open};
use support::simulated;

/// `nvJitLinkResult` and `nvJitLinkInputType` of nvJitLink.h.
const SUCCESS: c_int = 0;
const MISSING_ARCH: c_int = 2;
const PTX_COMPILE: c_int = 4;
const UNRECOGNIZED_INPUT: c_int = 8;
const PTX: c_int = 2;
const LTOIR: c_int = 3;

struct Library(*mut c_void);

impl Library {
    fn load(name: &str) -> Result<Self> {
        let folder = std::env::var("VKGDR_SIM_DIR")?;
        let path = CString::new(format!("{folder}/{name}"))?;
        // SAFETY: the library has no initialisers.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() { Err(format!("{path:?} cannot be loaded").into()) } else { Ok(Self(library)) }
    }

    /// # Safety
    /// `F` must be the function's type.
    unsafe fn function<F: Copy>(&self, name: &CStr) -> Result<F> {
        // SAFETY: a loaded library.
        let function = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if function.is_null() {
            return Err(format!("no function {name:?}").into());
        }
        // SAFETY: by this method's contract; a function pointer has the size of a pointer.
        Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&function) })
    }
}

type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint, *const *const c_char) -> c_int;
type Add = unsafe extern "C" fn(*mut c_void, c_int, *const c_void, usize, *const c_char) -> c_int;
type Plain = unsafe extern "C" fn(*mut c_void) -> c_int;
type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Bytes = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type Destroy = unsafe extern "C" fn(*mut *mut c_void) -> c_int;

#[test]
fn nvjitlink_links_ptx_for_the_simulated_driver_and_says_what_it_cannot_link() -> Result {
    simulated!("a GPU has NVIDIA's nvJitLink");
    let _context = open();
    for (name, suffix) in [("libnvJitLink.so.12", "_12_9"), ("libnvJitLink.so.13", "_13_0")] {
        let library = Library::load(name)?;
        let symbol = |function: &str| CString::new(format!("__nvJitLink{function}{suffix}"));
        // SAFETY: the type is that of nvJitLink.h.
        let create = unsafe { library.function::<Create>(&symbol("Create")?) }?;
        // SAFETY: as above.
        let add = unsafe { library.function::<Add>(&symbol("AddData")?) }?;
        // SAFETY: as above.
        let complete = unsafe { library.function::<Plain>(&symbol("Complete")?) }?;
        // SAFETY: as above.
        let size_of = unsafe { library.function::<Size>(&symbol("GetLinkedCubinSize")?) }?;
        // SAFETY: as above.
        let cubin_of = unsafe { library.function::<Bytes>(&symbol("GetLinkedCubin")?) }?;
        // SAFETY: as above.
        let log_of = unsafe { library.function::<Bytes>(&symbol("GetErrorLog")?) }?;
        // SAFETY: as above.
        let destroy = unsafe { library.function::<Destroy>(&symbol("Destroy")?) }?;
        let log = |linker| -> Result<String> {
            let mut text = [0_u8; 4096];
            // SAFETY: the log has at most 4096 bytes.
            assert_eq!(unsafe { log_of(linker, text.as_mut_ptr().cast()) }, SUCCESS);
            Ok(CStr::from_bytes_until_nul(&text)?.to_string_lossy().into_owned())
        };

        let mut linker = null_mut();
        // SAFETY: no options.
        assert_eq!(unsafe { create(&raw mut linker, 0, null_mut()) }, MISSING_ARCH);
        let options = [c"-arch=sm_80".as_ptr(), c"-lto".as_ptr()];
        // SAFETY: two options.
        assert_eq!(unsafe { create(&raw mut linker, 2, options.as_ptr()) }, SUCCESS);
        // SAFETY: a live linker and a text.
        let added = unsafe { add(linker, LTOIR, KERNELS.as_ptr().cast(), KERNELS.len(), c"x".as_ptr()) };
        assert_eq!(added, UNRECOGNIZED_INPUT);
        assert_says(&log(linker)?, &["LTO-IR"]);
        // SAFETY: as above.
        let added = unsafe { add(linker, PTX, b"nonsense".as_ptr().cast(), 8, c"x".as_ptr()) };
        if added == SUCCESS {
            // SAFETY: a live linker.
            assert_ne!(unsafe { complete(linker) }, SUCCESS);
        } else {
            assert_eq!(added, PTX_COMPILE);
        }
        // SAFETY: a live linker.
        assert_eq!(unsafe { destroy(&raw mut linker) }, SUCCESS);

        // SAFETY: two options.
        assert_eq!(unsafe { create(&raw mut linker, 2, options.as_ptr()) }, SUCCESS);
        // SAFETY: a live linker and a text.
        assert_eq!(unsafe { add(linker, PTX, KERNELS.as_ptr().cast(), KERNELS.len(), c"x".as_ptr()) }, SUCCESS);
        // SAFETY: a live linker.
        assert_eq!(unsafe { complete(linker) }, SUCCESS);
        let mut size = 0;
        // SAFETY: a live linker.
        assert_eq!(unsafe { size_of(linker, &raw mut size) }, SUCCESS);
        let mut cubin = vec![0_u8; size];
        // SAFETY: room for the size.
        assert_eq!(unsafe { cubin_of(linker, cubin.as_mut_ptr().cast()) }, SUCCESS);
        // SAFETY: a live linker.
        assert_eq!(unsafe { destroy(&raw mut linker) }, SUCCESS);
        let module = good(Module::load_image(&cubin))?;
        good(module.function("add_one"))?;
    }
    Ok(())
}
