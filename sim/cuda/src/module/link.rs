//! The driver calls of the linker, which joins PTX texts. The "cubin" that it returns is PTX, too.

use std::ffi::CString;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::CUjitInputType;

use super::join::join;
use super::options::Options;
use super::{exports as modules, image, loaded};
use crate::boundary::exports;
use crate::code::{INVALID_HANDLE, INVALID_VALUE, NO_BINARY_FOR_GPU, Outcome};
use crate::context;
use crate::ffi::{In, Out, Text};
use crate::handle::Handles;
use crate::sync::lock;

const PTX: u32 = CUjitInputType::CU_JIT_INPUT_PTX as u32;
const LIBRARY: u32 = CUjitInputType::CU_JIT_INPUT_LIBRARY as u32;
const FAT_BINARY: u32 = CUjitInputType::CU_JIT_INPUT_FATBINARY as u32;
const KNOWN: u32 = CUjitInputType::CU_JIT_NUM_INPUT_TYPES as u32;

struct Linker {
    options: Options,
    inputs: Mutex<Vec<String>>,
    // The outputs, which live as long as the linker.
    outputs: Mutex<Vec<CString>>,
}

static LINKERS: Handles<Arc<Linker>> = Handles::new(INVALID_HANDLE);

/// The number of live linkers.
pub(crate) fn count() -> usize {
    LINKERS.count()
}

fn create(count: u32, keys: In<u32>, values: Out<usize>, out: Out<usize>) -> Outcome {
    out.required()?;
    context::usable()?;
    let options = Options::read(count, keys, values)?;
    let linker = Linker { options, inputs: Mutex::default(), outputs: Mutex::default() };
    out.set(LINKERS.insert(Arc::new(linker)))
}

fn add(linker: &Linker, kind: u32, bytes: &[u8]) -> Outcome {
    let text = match kind {
        PTX | FAT_BINARY => image::ptx_from_bytes(bytes),
        LIBRARY => image::library(bytes),
        0..KNOWN => {
            let reason = "the simulator links PTX only, not cubins, objects or intermediate code";
            Err((NO_BINARY_FOR_GPU, reason.to_owned()))
        }
        _ => return Err(INVALID_VALUE),
    };
    lock(&linker.inputs).push(text.map_err(|refusal| modules::report(&linker.options, refusal))?);
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "as many as the function has in C")]
fn add_data(
    linker: usize,
    kind: u32,
    data: In<u8>,
    size: usize,
    _name: Text<'_>,
    count: u32,
    keys: In<u32>,
    values: Out<usize>,
) -> Outcome {
    let linker = LINKERS.get(linker)?;
    Options::read(count, keys, values)?;
    add(&linker, kind, &data.bytes(size)?)
}

fn add_file(linker: usize, kind: u32, path: Text<'_>, count: u32, keys: In<u32>, values: Out<usize>) -> Outcome {
    let linker = LINKERS.get(linker)?;
    Options::read(count, keys, values)?;
    add(&linker, kind, &modules::read_file(path)?)
}

fn complete(linker: usize, out: Out<usize>, size: Out<usize>) -> Outcome {
    out.required()?;
    let linker = LINKERS.get(linker)?;
    let text = join(&lock(&linker.inputs));
    if text.is_empty() {
        return Err(INVALID_VALUE);
    }
    loaded::check(&text).map_err(|refusal| modules::report(&linker.options, refusal))?;
    linker.options.report_success();
    let text = CString::new(text).map_err(|_| INVALID_VALUE)?;
    size.set_if_wanted(text.as_bytes_with_nul().len());
    let address = text.as_ptr().expose_provenance();
    lock(&linker.outputs).push(text);
    out.set(address)
}

fn destroy(linker: usize) -> Outcome {
    LINKERS.remove(linker).map(drop)
}

exports! {
    cuLinkCreate_v2, cuLinkCreate => create(count: u32, keys: In<u32>, values: Out<usize>, out: Out<usize>);
    cuLinkAddData_v2, cuLinkAddData =>
        add_data(linker: usize, kind: u32, data: In<u8>, size: usize, name: Text<'_>, count: u32, keys: In<u32>,
                 values: Out<usize>);
    cuLinkAddFile_v2, cuLinkAddFile =>
        add_file(linker: usize, kind: u32, path: Text<'_>, count: u32, keys: In<u32>, values: Out<usize>);
    cuLinkComplete => complete(linker: usize, out: Out<usize>, size: Out<usize>);
    cuLinkDestroy => destroy(linker: usize), Release;
}
