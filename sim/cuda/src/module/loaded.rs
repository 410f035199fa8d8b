//! A program loaded into a context: memory for its variables, handles for its kernels.

use std::sync::Arc;

use super::image::Refusal;
use crate::code::{Code, INVALID_PTX, OUT_OF_MEMORY, UNSUPPORTED_PTX_VERSION};
use crate::context::{Context, Owner};
use crate::device::COMPUTE_CAPABILITY;
use crate::handle;
use crate::kernel::Function;
use crate::kernel::function::Settings;
use crate::memory::table::{self, Window};
use crate::memory::{Block, bytes};

// The newest known PTX version, that of CUDA 13.5.
const NEWEST: (u32, u32) = (9, 5);

// A gap between variables, so that an overrun of one does not silently hit the next.
const GAP: usize = 16;

/// A module's variables, in device memory of their own that is freed on drop.
pub(crate) struct Variables {
    names: Vec<String>,
    windows: Vec<Window>,
    /// The size of the `.const` variables in bytes.
    pub(crate) constant_bytes: u64,
}

impl Variables {
    fn place(variables: &[ptx::Variable], owner: Owner) -> Result<Variables, Code> {
        let mut ranges = Vec::with_capacity(variables.len());
        let mut end = 0_usize;
        for variable in variables {
            let align = usize::try_from(variable.align).map_err(|_| OUT_OF_MEMORY)?.max(GAP);
            let size = usize::try_from(variable.size).map_err(|_| OUT_OF_MEMORY)?;
            let next = if end == 0 { 0 } else { end.checked_add(1).ok_or(OUT_OF_MEMORY)? };
            let start = next.checked_next_multiple_of(align).ok_or(OUT_OF_MEMORY)?;
            end = start.checked_add(size).ok_or(OUT_OF_MEMORY)?;
            ranges.push(start..end);
        }
        let constant = variables.iter().filter(|variable| variable.space == ptx::Space::Const);
        let constant_bytes = constant.map(|variable| variable.size).sum();
        let names = variables.iter().map(|variable| variable.name.clone()).collect();
        let windows = if ranges.is_empty() {
            Vec::new()
        } else {
            let block = Block::device(end.max(1)).ok_or(OUT_OF_MEMORY)?;
            table::insert_variables(block, end.max(1), &ranges, owner)
        };
        Ok(Variables { names, windows, constant_bytes })
    }

    fn addresses(&self) -> Vec<u64> {
        self.windows.iter().map(|window| window.address as u64).collect()
    }
}

impl Drop for Variables {
    fn drop(&mut self) {
        table::remove_variables(&self.windows);
    }
}

/// A loaded module.
pub(crate) struct Module {
    pub(crate) handle: usize,
    pub(crate) owner: Owner,
    /// The library that the module belongs to; `None` for a module of `cuModuleLoad`.
    pub(crate) library: Option<usize>,
    pub(crate) functions: Vec<Arc<Function>>,
    variables: Arc<Variables>,
}

impl Module {
    /// Loads PTX into a context. `settings` returns a kernel's settings if it already has some.
    pub(super) fn load(
        text: &str,
        context: &Context,
        library: Option<usize>,
        settings: impl Fn(&str) -> Option<Arc<Settings>>,
    ) -> Result<Arc<Module>, Refusal> {
        let (handle, owner) = (handle::next(), context.owner());
        let module = check(text)?;
        let full = |code| (code, "the device has no memory left for the module's variables".to_owned());
        let variables = Arc::new(Variables::place(module.variables(), owner).map_err(full)?);
        let program = module.link(&variables.addresses());
        for (address, initial) in program.initial() {
            if let Ok(address) = usize::try_from(address) {
                bytes::copy(address, initial.as_ptr().expose_provenance(), initial.len());
            }
        }
        let function = |kernel: Arc<ptx::Kernel>| {
            let settings = settings(kernel.name()).unwrap_or_else(|| Settings::of(&kernel));
            Function::new(kernel, handle, owner, Arc::clone(&variables), settings)
        };
        let functions = program.kernels().map(function).collect();
        Ok(Arc::new(Module { handle, owner, library, functions, variables }))
    }

    /// Address and size of a variable.
    pub(crate) fn variable(&self, name: &str) -> Option<(usize, usize)> {
        let index = self.variables.names.iter().position(|known| known == name)?;
        self.variables.windows.get(index).map(|window| (window.address, window.size))
    }

    /// The kernel of that name.
    pub(crate) fn function(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.iter().find(|function| function.kernel.name() == name)
    }
}

/// Parses a module, and refuses one that this device could not run.
pub(super) fn check(text: &str) -> Result<ptx::Module, Refusal> {
    let (major, minor) = version(text);
    if (major, minor) > NEWEST {
        let reason = format!("PTX {major}.{minor} is newer than this driver, which knows {}.{}", NEWEST.0, NEWEST.1);
        return Err((UNSUPPORTED_PTX_VERSION, reason));
    }
    let target = numbers_after(text, ".target", "sm_").next().unwrap_or_default();
    let device = u32::try_from(COMPUTE_CAPABILITY.0 * 10 + COMPUTE_CAPABILITY.1).unwrap_or_default();
    if target > device {
        let reason = format!(
            "the PTX is for sm_{target}, but the device is sm_{device}: compile with -arch=compute_{device} or lower"
        );
        return Err((INVALID_PTX, reason));
    }
    ptx::Module::load(text).map_err(|error| (INVALID_PTX, error.to_string()))
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = numbers_after(text, ".version", "");
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

// The numbers on the first line with that directive, behind `before`.
fn numbers_after<'a>(text: &'a str, directive: &str, before: &str) -> impl Iterator<Item = u32> + 'a {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(directive)).unwrap_or_default();
    let start = line.find(before).map_or(line.len(), |start| start + before.len());
    line[start..].split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok())
}
