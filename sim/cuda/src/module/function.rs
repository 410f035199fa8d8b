//! Functions: kernels in a context, by handle.

use std::ffi::CString;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use super::variables::Variables;

use crate::code::INVALID_HANDLE;
use crate::device;
use crate::handle::{self, Handles};
use crate::owner::Owner;
use crate::sync::lock;

pub(crate) const MAX_THREADS: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
const MAX_SHARED_PER_BLOCK: Attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;

/// The settable attributes of a kernel.
pub(crate) struct Settings {
    pub(crate) values: Mutex<Values>,
}

/// The values of [`Settings`].
#[derive(Clone, Copy)]
pub(crate) struct Values {
    pub(crate) max_dynamic_shared: u64,
    /// The share of shared memory in the unified cache, in percent; -1 leaves it to the driver.
    pub(crate) carveout: i32,
    pub(crate) any_cluster_size: i32,
    pub(crate) cluster_policy: i32,
}

impl Settings {
    /// The initial values.
    pub(crate) fn of(kernel: &ptx::Kernel) -> Arc<Settings> {
        let max_dynamic_shared = usual_dynamic_shared(kernel);
        let values = Values { max_dynamic_shared, carveout: -1, any_cluster_size: 0, cluster_policy: 0 };
        Arc::new(Settings { values: Mutex::new(values) })
    }

    pub(crate) fn get(&self) -> Values {
        *lock(&self.values)
    }
}

/// The maximum number of threads in a block: the kernel's limit, or the device's.
pub(crate) fn most_threads(kernel: &ptx::Kernel) -> u64 {
    kernel.max_threads().map_or(device::limit(MAX_THREADS), u64::from)
}

/// The maximum dynamic shared memory of a block unless the program opted in to more.
pub(crate) fn usual_dynamic_shared(kernel: &ptx::Kernel) -> u64 {
    device::limit(MAX_SHARED_PER_BLOCK).saturating_sub(kernel.shared_bytes())
}

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) handle: usize,
    pub(crate) kernel: Arc<ptx::Kernel>,
    pub(crate) module: usize,
    pub(crate) owner: Owner,
    pub(crate) name: CString,
    pub(crate) settings: Arc<Settings>,
    /// Held, not read: launches that may use them keep them alive.
    _variables: Arc<Variables>,
}

impl Function {
    pub(crate) fn new(
        kernel: Arc<ptx::Kernel>,
        module: usize,
        owner: Owner,
        variables: Arc<Variables>,
        settings: Arc<Settings>,
    ) -> Arc<Function> {
        let name = CString::new(kernel.name()).unwrap_or_default();
        Arc::new(Function { handle: handle::next(), kernel, module, owner, name, settings, _variables: variables })
    }
}

pub(super) static FUNCTIONS: Handles<Arc<Function>> = Handles::new(INVALID_HANDLE);

/// Registers functions under their handles.
pub(super) fn insert(functions: &[Arc<Function>]) {
    FUNCTIONS.lock().extend(functions.iter().map(|function| (function.handle, Arc::clone(function))));
}

/// Removes functions.
pub(super) fn remove(functions: &[Arc<Function>]) {
    let mut known = FUNCTIONS.lock();
    functions.iter().for_each(|function| drop(known.remove(&function.handle)));
}
