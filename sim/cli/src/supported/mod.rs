//! `vkgdr-sim --supported`: the functions and the instructions that the simulator has, from its libraries and from the
//! interpreter itself.

mod forms;
mod functions;
mod instructions;

use std::path::Path;

use functions::Functions;

const HEAD: &str = "\
# What vkgdr-sim supports

`vkgdr-sim --supported` prints this page, from its libraries and from the interpreter of PTX. A function counts as
supported if any of its versions is; the README of vkgdr-sim says what of its options is refused.
";

/// The page, in Markdown, of the libraries in a folder.
pub(crate) fn page(folder: &Path) -> Result<String, String> {
    let mut text = HEAD.to_owned();
    let driver = functions::of(&folder.join("libcuda.so.1"), &["cu"], "simcuda_not_simulated")?;
    list(&mut text, "The CUDA driver", &driver);
    for major in ["12", "13"] {
        let library = folder.join(format!("libcudart.so.{major}"));
        let runtime = functions::of(&library, &["cuda", "__cuda"], "simcudart_not_simulated")?;
        list(&mut text, &format!("The CUDA runtime, version {major}"), &runtime);
    }
    text.push_str(
        "\n## PTX\n\nEach row was tried with each type; \"yes\" is the answer for instructions without types. Some forms load that NVIDIA's \
         assembler refuses for the device's compute capability, 8.0: `shfl` and `vote` without `.sync`, and some instructions of 9.0, \
         such as `elect.sync`, `griddepcontrol`, `mbarrier.try_wait` and additions of `.bf16`. Other instructions that 8.0 lacks are \
         refused: among them atomics of 128 bits (`atom.exch.b128`, `atom.cas.b128`: 9.0) and conversions of 8-bit floats \
         (`cvt.rn.satfinite.e4m3x2.f32` and the like: 8.9).\n\n",
    );
    text.push_str(&instructions::tables());
    Ok(text.trim_end().to_owned() + "\n")
}

fn list(text: &mut String, title: &str, functions: &Functions) {
    let named = |simulated: bool| {
        let names = functions.iter().filter(|(_, is)| **is == simulated).map(|(name, _)| format!("`{name}`"));
        names.collect::<Vec<_>>()
    };
    let (yes, no) = (named(true), named(false));
    text.push_str(&format!("\n## {title}\n\n{} functions are simulated:\n{}.\n", yes.len(), yes.join(", ")));
    text.push_str(&format!("\n{} functions exist and are refused as not supported:\n{}.\n", no.len(), no.join(", ")));
}
