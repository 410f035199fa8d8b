//! Libraries: PTX that is independent of contexts, with a module in each context that uses it.

use std::ffi::CString;
use std::sync::{Arc, Mutex, Weak};

use cudarc::driver::sys::CUlibraryOption;

use super::function::{FUNCTIONS, Function, Settings};
use super::image::{self, Refusal};
use super::loaded::{self, Module};
use super::options::Options;
use super::{exports as modules, table};

use crate::boundary::exports;
use crate::code::{Code, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Outcome};
use crate::context::{self, Context};
use crate::device;
use crate::ffi::{In, Out, Text};
use crate::handle::{self, Handles};
use crate::owner::Owner;
use crate::sync::lock;

// Options: a table of host functions, which only the CUDA runtime passes, and a promise to keep the code alive.
const HOST_TABLE: u32 = CUlibraryOption::CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE as u32;
const IS_PRESERVED: u32 = CUlibraryOption::CU_LIBRARY_BINARY_IS_PRESERVED as u32;

/// A kernel of a library.
pub(crate) struct Kernel {
    pub(crate) handle: usize,
    pub(crate) library: usize,
    pub(crate) kernel: Arc<ptx::Kernel>,
    pub(crate) name: CString,
    /// By device, shared by its functions in all contexts of the device.
    settings: Vec<Arc<Settings>>,
    owner: Weak<Library>,
}

impl Kernel {
    /// Its function in a context.
    pub(crate) fn function(&self, context: &Context) -> Result<Arc<Function>, Code> {
        let module = self.owner.upgrade().ok_or(INVALID_HANDLE)?.module(context)?;
        module.function(self.kernel.name()).cloned().ok_or(NOT_FOUND)
    }

    /// Its settings on a device.
    pub(crate) fn settings(&self, device: i32) -> Result<&Arc<Settings>, Code> {
        usize::try_from(device).ok().and_then(|device| self.settings.get(device)).ok_or(INVALID_DEVICE)
    }
}

struct Library {
    handle: usize,
    text: String,
    kernels: Vec<Arc<Kernel>>,
    /// None is loaded once there is no list: the library was unloaded.
    modules: Mutex<Option<Vec<Arc<Module>>>>,
}

static LIBRARIES: Handles<Arc<Library>> = Handles::new(INVALID_HANDLE);
static KERNELS: Handles<Arc<Kernel>> = Handles::new(INVALID_HANDLE);

/// The number of live libraries.
pub(crate) fn count() -> usize {
    LIBRARIES.count()
}

/// The kernel of that handle.
pub(crate) fn kernel(handle: usize) -> Result<Arc<Kernel>, Code> {
    KERNELS.get(handle)
}

/// The function of a handle. The handle of a library's kernel denotes its function in the current context.
pub(crate) fn function(handle: usize) -> Result<Arc<Function>, Code> {
    FUNCTIONS.find(handle).map_or_else(|| kernel(handle)?.function(&*context::usable()?), Ok)
}

/// As `function`, where the handle of a library's kernel denotes its function in that context.
pub(crate) fn function_in(handle: usize, context: &Context) -> Result<Arc<Function>, Code> {
    FUNCTIONS.find(handle).map_or_else(|| kernel(handle)?.function(context), Ok)
}

/// Removes the libraries' modules in a destroyed context.
pub(crate) fn release_all_of(owner: Owner) {
    let libraries: Vec<Arc<Library>> = LIBRARIES.lock().values().cloned().collect();
    for library in libraries {
        lock(&library.modules).iter_mut().for_each(|modules| modules.retain(|module| module.owner != owner));
    }
}

impl Library {
    fn new(text: String) -> Result<Arc<Library>, Refusal> {
        let module = loaded::check(&text)?;
        // Only for the properties of its kernels: the code that runs is linked in a context.
        let nowhere = vec![0; module.variables().len()];
        let program = module.link(&nowhere);
        let handle = handle::next();
        Ok(Arc::new_cyclic(|owner| {
            let kernel = |kernel: Arc<ptx::Kernel>| Kernel {
                handle: handle::next(),
                library: handle,
                name: CString::new(kernel.name()).unwrap_or_default(),
                settings: (0..device::how_many()).map(|_| Settings::of(&kernel)).collect(),
                kernel,
                owner: owner.clone(),
            };
            let kernels = program.kernels().map(|found| Arc::new(kernel(found))).collect();
            Library { handle, text, kernels, modules: Mutex::new(Some(Vec::new())) }
        }))
    }

    fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().map(Arc::as_ref).find(|kernel| kernel.kernel.name() == name)
    }

    // Its module in a context, loaded on first use.
    fn module(&self, context: &Context) -> Result<Arc<Module>, Code> {
        let loaded = |modules: &[Arc<Module>]| modules.iter().find(|module| module.owner == context.owner()).cloned();
        if let Some(module) = loaded(lock(&self.modules).as_ref().ok_or(INVALID_HANDLE)?) {
            return Ok(module);
        }
        context.streams.wait_for_kernels();
        let mut guard = lock(&self.modules);
        let modules = guard.as_mut().ok_or(INVALID_HANDLE)?;
        if let Some(module) = loaded(modules) {
            return Ok(module);
        }
        let device = context.owner().device;
        let settings = |name: &str| self.kernel(name)?.settings(device).ok().cloned();
        let module = Module::load(&self.text, context, Some(self.handle), settings, modules.first());
        let module = match module {
            Ok(module) => module,
            Err(refusal) => {
                // Unlocked first: stderr may be a full pipe, whose reader calls the driver.
                drop(guard);
                return Err(modules::report(&Options::default(), refusal));
            }
        };
        table::insert(&module);
        modules.push(Arc::clone(&module));
        Ok(module)
    }
}

fn load_text(out: Out<usize>, text: Result<String, Refusal>, options: &Options) -> Outcome {
    let library = text.and_then(Library::new).map_err(|refusal| modules::report(options, refusal))?;
    options.report_success();
    KERNELS.lock().extend(library.kernels.iter().map(|kernel| (kernel.handle, Arc::clone(kernel))));
    let handle = library.handle;
    LIBRARIES.insert_at(handle, library);
    out.set(handle)
}

fn check_options(keys: In<u32>, count: u32) -> Outcome {
    for index in 0..usize::try_from(count).map_err(|_| INVALID_VALUE)? {
        match keys.element(index)? {
            HOST_TABLE => return Err(NOT_SUPPORTED),
            IS_PRESERVED => {}
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "as many as the function has in C")]
fn load(
    out: Out<usize>,
    code: In<u8>,
    jit_keys: In<u32>,
    jit_values: Out<usize>,
    jit_count: u32,
    keys: In<u32>,
    _values: In<usize>,
    count: u32,
) -> Outcome {
    out.required()?;
    if code.is_null() {
        return Err(INVALID_VALUE);
    }
    let options = Options::read(jit_count, jit_keys, jit_values)?;
    check_options(keys, count)?;
    load_text(out, image::ptx(code), &options)
}

#[expect(clippy::too_many_arguments, reason = "as many as the function has in C")]
fn load_file(
    out: Out<usize>,
    name: Text<'_>,
    jit_keys: In<u32>,
    jit_values: Out<usize>,
    jit_count: u32,
    keys: In<u32>,
    _values: In<usize>,
    count: u32,
) -> Outcome {
    out.required()?;
    let options = Options::read(jit_count, jit_keys, jit_values)?;
    check_options(keys, count)?;
    load_text(out, super::image::ptx_from_bytes(&modules::read_file(name)?), &options)
}

fn unload(library: usize) -> Outcome {
    let library = LIBRARIES.remove(library)?;
    KERNELS.remove_where(|kernel| kernel.library == library.handle);
    let modules = lock(&library.modules).take();
    for module in modules.into_iter().flatten() {
        context::wait_for_kernels(module.owner);
        // The destruction of its context may have removed it already.
        let _ = table::remove(module.handle);
    }
    Ok(())
}

fn get_kernel(out: Out<usize>, library: usize, name: Text<'_>) -> Outcome {
    out.required()?;
    let name = name.read().ok_or(INVALID_VALUE)?;
    out.set(LIBRARIES.get(library)?.kernel(name).ok_or(NOT_FOUND)?.handle)
}

fn kernel_count(out: Out<u32>, library: usize) -> Outcome {
    out.required()?;
    out.set(u32::try_from(LIBRARIES.get(library)?.kernels.len()).map_err(|_| INVALID_VALUE)?)
}

fn kernels(out: Out<usize>, count: u32, library: usize) -> Outcome {
    out.required()?;
    modules::hand_out(out, count, LIBRARIES.get(library)?.kernels.iter().map(|kernel| kernel.handle))
}

fn get_module(out: Out<usize>, library: usize) -> Outcome {
    out.required()?;
    out.set(LIBRARIES.get(library)?.module(&*context::usable()?)?.handle)
}

fn get_global(out: Out<usize>, size: Out<usize>, library: usize, name: Text<'_>) -> Outcome {
    modules::variable(&LIBRARIES.get(library)?.module(&*context::usable()?)?, name, out, size)
}

// One for all contexts, in memory of the first that loaded the library.
fn get_managed(out: Out<usize>, size: Out<usize>, library: usize, name: Text<'_>) -> Outcome {
    let module = LIBRARIES.get(library)?.module(&*context::usable()?)?;
    modules::give(module.managed(name.read().ok_or(INVALID_VALUE)?), out, size)
}

exports! {
    cuLibraryLoadData =>
        load(out: Out<usize>, code: In<u8>, jit_keys: In<u32>, jit_values: Out<usize>, jit_count: u32,
             keys: In<u32>, values: In<usize>, count: u32);
    cuLibraryLoadFromFile =>
        load_file(out: Out<usize>, name: Text<'_>, jit_keys: In<u32>, jit_values: Out<usize>, jit_count: u32,
                  keys: In<u32>, values: In<usize>, count: u32);
    cuLibraryUnload => unload(library: usize), Release;
    cuLibraryGetKernel => get_kernel(out: Out<usize>, library: usize, name: Text<'_>);
    cuLibraryGetKernelCount => kernel_count(out: Out<u32>, library: usize);
    cuLibraryEnumerateKernels => kernels(out: Out<usize>, count: u32, library: usize);
    cuLibraryGetModule => get_module(out: Out<usize>, library: usize);
    cuLibraryGetGlobal => get_global(out: Out<usize>, size: Out<usize>, library: usize, name: Text<'_>);
    cuLibraryGetManaged => get_managed(out: Out<usize>, size: Out<usize>, library: usize, name: Text<'_>);
}
