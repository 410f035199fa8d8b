//! `vkgdr-sim --supported`: the functions and the instructions that the simulator has, from its libraries and from the
//! interpreter itself.

mod forms;
mod functions;
mod instructions;

use std::path::Path;

use functions::Functions;
pub(crate) use functions::base_name;

use crate::profile::nearest;

const HEAD: &str = "\
# What vkgdr-sim supports

`vkgdr-sim --supported` prints this page, from its libraries and from the interpreter of PTX. A function counts as
supported if any of its versions is; the README of vkgdr-sim says what of its options is refused.
";

/// The page, in Markdown, of the libraries in a folder.
pub(crate) fn page(folder: &Path) -> Result<String, String> {
    let mut text = HEAD.to_owned();
    list(&mut text, "The CUDA driver", &driver(folder)?);
    for (major, runtime) in runtimes(folder)? {
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

/// The functions of the CUDA driver.
pub(crate) fn driver(folder: &Path) -> Result<Functions, String> {
    functions::of(&folder.join("libcuda.so.1"), &["cu"], "simcuda_not_simulated")
}

/// The functions of the CUDA runtime by its version.
fn runtimes(folder: &Path) -> Result<Vec<(&'static str, Functions)>, String> {
    let of = |major| {
        let library = folder.join(format!("libcudart.so.{major}"));
        Ok((major, functions::of(&library, &["cuda", "__cuda"], "simcudart_not_simulated")?))
    };
    ["12", "13"].into_iter().map(of).collect()
}

/// What the simulator says of one function, or of the instructions of PTX that begin with a name; the error has the nearest.
pub(crate) fn answer(folder: &Path, name: &str) -> Result<String, String> {
    let libraries = [("driver", driver(folder)?)].into_iter().chain(runtimes(folder)?).collect::<Vec<_>>();
    let mut text = String::new();
    for (library, functions) in &libraries {
        if let Some(is) = functions.get(base_name(name)) {
            let library = if *library == "driver" { "driver".to_owned() } else { format!("runtime {library}") };
            let is = if *is { "simulated" } else { "refused as not supported" };
            text.push_str(&format!("{name}: {is} (CUDA {library})\n"));
        }
    }
    if !text.is_empty() {
        return Ok(text);
    }
    let tables = instructions::tables();
    let rows: Vec<(&str, &str)> =
        tables.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once(" | ")).collect();
    let names = |row: &str| row.replace(['`', ','], " ").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (row, types) in &rows {
        let is = |part: &String| part == name || part.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
        if names(row).iter().any(is) {
            text.push_str(&format!("{}: {}\n", row.replace('`', ""), types.replace('`', "")));
        }
    }
    if !text.is_empty() {
        return Ok(text);
    }
    let instructions: Vec<String> = rows.iter().flat_map(|(row, _)| names(row)).collect();
    let functions = libraries.iter().flat_map(|(_, functions)| functions.keys());
    let known = functions.chain(&instructions).map(String::as_str);
    Err(format!("'{name}' is no function of CUDA's and no instruction of PTX that is known{}", nearest(name, known)))
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
