//! A program loaded into a context.

use std::sync::Arc;

use super::function::{Function, Settings};
use super::image::Refusal;
use super::variables::Variables;
use crate::code::{INVALID_PTX, UNSUPPORTED_PTX_VERSION};
use crate::context::Context;
use crate::device::COMPUTE_CAPABILITY;
use crate::handle;
use crate::memory::bytes;
use crate::owner::Owner;

// The newest known PTX version, that of CUDA 13.5.
const NEWEST: (u32, u32) = (9, 5);

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
    /// Loads PTX into a context. `settings` returns a kernel's settings if it already has some. The managed variables are
    /// those of `sibling`, a module of the same text, if there is one.
    pub(super) fn load(
        text: &str,
        context: &Context,
        library: Option<usize>,
        settings: impl Fn(&str) -> Option<Arc<Settings>>,
        sibling: Option<&Arc<Module>>,
    ) -> Result<Arc<Module>, Refusal> {
        let (handle, owner) = (handle::next(), context.owner());
        let module = check(text)?;
        let full = |code| (code, "the device has no memory left for the module's variables".to_owned());
        let managed = sibling.map(|sibling| Arc::clone(sibling.variables.managed()));
        let variables = Arc::new(Variables::place(module.variables(), owner, managed).map_err(full)?);
        let initialised = |variable: &ptx::Variable| sibling.is_some() && variable.is_managed;
        let initialised: Vec<bool> = module.variables().iter().map(initialised).collect();
        let program = module.link(&variables.addresses());
        for ((address, initial), initialised) in program.initial().into_iter().zip(initialised) {
            if let Ok(address) = usize::try_from(address)
                && !initialised
            {
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
        self.variables.find(name)
    }

    /// As [`variable`](Module::variable), of a managed variable.
    pub(crate) fn managed(&self, name: &str) -> Option<(usize, usize)> {
        self.variable(name).filter(|(address, _)| self.variables.managed().has(*address))
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
