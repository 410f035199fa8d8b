//! Names, parameters and origins of functions and of libraries' kernels.

use std::ffi::c_char;

use cudarc::driver::sys::CUfunctionLoadingState;

use crate::boundary::exports;
use crate::code::{INVALID_VALUE, Outcome};
use crate::context;
use crate::ffi::Out;
use crate::module::library;

const LOADED: u32 = CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED as u32;

fn name(out: Out<*const c_char>, function: usize) -> Outcome {
    out.required()?;
    // Valid while the function is loaded, as documented.
    out.set(library::function(function)?.name.as_ptr())
}

fn module(out: Out<usize>, function: usize) -> Outcome {
    out.required()?;
    out.set(library::function(function)?.module)
}

fn is_loaded(out: Out<u32>, function: usize) -> Outcome {
    out.required()?;
    library::function(function)?;
    out.set(LOADED)
}

fn load(function: usize) -> Outcome {
    context::usable()?;
    library::function(function).map(|_| ())
}

fn parameter(kernel: &ptx::Kernel, index: usize, offset: Out<usize>, size: Out<usize>) -> Outcome {
    offset.required()?;
    let parameter = kernel.parameters().get(index).ok_or(INVALID_VALUE)?;
    size.set_if_wanted(parameter.size);
    offset.set(parameter.offset)
}

fn parameter_info(function: usize, index: usize, offset: Out<usize>, size: Out<usize>) -> Outcome {
    parameter(&library::function(function)?.kernel, index, offset, size)
}

fn parameter_count(function: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    out.set(library::function(function)?.kernel.parameters().len())
}

fn kernel_function(out: Out<usize>, kernel: usize) -> Outcome {
    out.required()?;
    out.set(library::kernel(kernel)?.function(&*context::usable()?)?.handle)
}

fn kernel_name(out: Out<*const c_char>, kernel: usize) -> Outcome {
    out.required()?;
    out.set(library::kernel(kernel)?.name.as_ptr())
}

fn kernel_library(out: Out<usize>, kernel: usize) -> Outcome {
    out.required()?;
    out.set(library::kernel(kernel)?.library)
}

fn kernel_parameter_info(kernel: usize, index: usize, offset: Out<usize>, size: Out<usize>) -> Outcome {
    parameter(&library::kernel(kernel)?.kernel, index, offset, size)
}

fn kernel_parameter_count(kernel: usize, out: Out<usize>) -> Outcome {
    out.required()?;
    out.set(library::kernel(kernel)?.kernel.parameters().len())
}

exports! {
    cuFuncGetName => name(out: Out<*const c_char>, function: usize);
    cuFuncGetModule => module(out: Out<usize>, function: usize);
    cuFuncIsLoaded => is_loaded(out: Out<u32>, function: usize);
    cuFuncLoad => load(function: usize);
    cuFuncGetParamInfo => parameter_info(function: usize, index: usize, offset: Out<usize>, size: Out<usize>);
    cuFuncGetParamCount => parameter_count(function: usize, out: Out<usize>);
    cuKernelGetFunction => kernel_function(out: Out<usize>, kernel: usize);
    cuKernelGetName => kernel_name(out: Out<*const c_char>, kernel: usize);
    cuKernelGetLibrary => kernel_library(out: Out<usize>, kernel: usize);
    cuKernelGetParamInfo => kernel_parameter_info(kernel: usize, index: usize, offset: Out<usize>, size: Out<usize>);
    cuKernelGetParamCount => kernel_parameter_count(kernel: usize, out: Out<usize>);
}
