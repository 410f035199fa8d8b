//! Load and unload modules, and look up what is in them.

use std::sync::Arc;

use cudarc::driver::sys::CUmoduleLoadingMode;

use super::image::{self, Refusal};
use super::loaded::Module;
use super::options::Options;
use super::table::{self, MODULES};

use crate::boundary::exports;
use crate::code::{Code, FILE_NOT_FOUND, INVALID_VALUE, NOT_FOUND, NOT_PERMITTED, Outcome};
use crate::context;
use crate::ffi::{In, Out, Text};

// A load checks and prepares everything before it returns.
const EAGER_LOADING: u32 = CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING as u32;

/// Writes the reason to the log and to stderr; returns the code.
pub(super) fn report(options: &Options, (code, reason): Refusal) -> Code {
    let text = format!("simcuda: {reason}");
    options.report_failure(&text);
    simcommon::say!("{text}");
    code
}

fn load_text(out: Out<usize>, text: Result<String, Refusal>, options: &Options) -> Outcome {
    out.required()?;
    let context = context::usable()?;
    context.streams.wait_for_kernels();
    let module = text.and_then(|text| Module::load(&text, &context, None, |_| None, None));
    let module = module.map_err(|refusal| report(options, refusal))?;
    options.report_success();
    out.set(table::insert(&module))
}

/// The text of a file: PTX, or a fat binary with PTX.
pub(super) fn read_file(name: Text<'_>) -> Result<Vec<u8>, Code> {
    let name = name.read().ok_or(INVALID_VALUE)?;
    std::fs::read(name).map_err(|_| FILE_NOT_FOUND)
}

fn load_file(out: Out<usize>, name: Text<'_>) -> Outcome {
    out.required()?;
    context::usable()?;
    load_text(out, image::ptx_from_bytes(&read_file(name)?), &Options::default())
}

fn load(out: Out<usize>, data: In<u8>) -> Outcome {
    load_image(out, data, &Options::default())
}

fn load_with_options(out: Out<usize>, data: In<u8>, count: u32, keys: In<u32>, values: Out<usize>) -> Outcome {
    out.required()?;
    context::usable()?;
    load_image(out, data, &Options::read(count, keys, values)?)
}

fn load_image(out: Out<usize>, data: In<u8>, options: &Options) -> Outcome {
    if data.is_null() {
        return Err(INVALID_VALUE);
    }
    load_text(out, image::ptx(data), options)
}

fn unload(module: usize) -> Outcome {
    context::current()?;
    let found = MODULES.get(module)?;
    if found.library.is_some() {
        return Err(NOT_PERMITTED);
    }
    context::wait_for_kernels(found.owner);
    context::check_owner(table::remove(module)?.owner)
}

fn get_function(out: Out<usize>, module: usize, name: Text<'_>) -> Outcome {
    out.required()?;
    let name = name.read().ok_or(INVALID_VALUE)?;
    context::usable()?;
    let module = MODULES.get(module)?;
    out.set(module.function(name).ok_or(NOT_FOUND)?.handle)
}

fn function_count(out: Out<u32>, module: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    out.set(u32::try_from(MODULES.get(module)?.functions.len()).map_err(|_| INVALID_VALUE)?)
}

fn functions(out: Out<usize>, count: u32, module: usize) -> Outcome {
    out.required()?;
    context::usable()?;
    hand_out(out, count, MODULES.get(module)?.functions.iter().map(|function| function.handle))
}

/// Writes up to the requested number of handles.
pub(super) fn hand_out(out: Out<usize>, most: u32, handles: impl Iterator<Item = usize>) -> Outcome {
    let most = usize::try_from(most).map_err(|_| INVALID_VALUE)?;
    handles.take(most).enumerate().for_each(|(index, handle)| out.element(index).set_if_wanted(handle));
    Ok(())
}

/// Writes the address and the size of a variable, each unless its output is null.
pub(super) fn variable(module: &Arc<Module>, name: Text<'_>, out: Out<usize>, size: Out<usize>) -> Outcome {
    let name = name.read().ok_or(INVALID_VALUE)?;
    give(module.variable(name), out, size)
}

/// As [`variable`], of what was found.
pub(super) fn give(found: Option<(usize, usize)>, out: Out<usize>, size: Out<usize>) -> Outcome {
    let (address, len) = found.ok_or(NOT_FOUND)?;
    out.set_if_wanted(address);
    size.set_if_wanted(len);
    Ok(())
}

fn get_global(out: Out<usize>, size: Out<usize>, module: usize, name: Text<'_>) -> Outcome {
    context::usable()?;
    variable(&MODULES.get(module)?, name, out, size)
}

fn loading_mode(out: Out<u32>) -> Outcome {
    out.set(EAGER_LOADING)
}

exports! {
    cuModuleLoad => load_file(out: Out<usize>, name: Text<'_>);
    cuModuleLoadData, cuModuleLoadFatBinary => load(out: Out<usize>, data: In<u8>);
    cuModuleLoadDataEx =>
        load_with_options(out: Out<usize>, data: In<u8>, count: u32, keys: In<u32>, values: Out<usize>);
    cuModuleUnload => unload(module: usize), Release;
    cuModuleGetFunction => get_function(out: Out<usize>, module: usize, name: Text<'_>);
    cuModuleGetFunctionCount => function_count(out: Out<u32>, module: usize);
    cuModuleEnumerateFunctions => functions(out: Out<usize>, count: u32, module: usize);
    cuModuleGetGlobal_v2 => get_global(out: Out<usize>, size: Out<usize>, module: usize, name: Text<'_>);
    cuModuleGetLoadingMode => loading_mode(out: Out<u32>);
}
