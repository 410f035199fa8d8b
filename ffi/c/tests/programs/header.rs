//! `include/vkgdr.h` in every dialect, with `cuda.h` in every place, and beside the header for kernels.

use std::fs;
use std::path::Path;
use std::process::Command;

use support::amount;

use super::Result;
use super::workshop::{CLANG, CLANGXX, Compiler, GCC, GXX, Workshop, finish, fixture, installed};

const C: [&str; 3] = ["c99", "c11", "c17"];
const CPP: [&str; 2] = ["c++11", "c++17"];

/// A use of the types that the header takes from `cuda.h` or declares itself.
const USE: &str = "
CUdeviceptr pointer_of(vkgdr_memory_t mem, CUdevice *device, CUstream stream);
CUdeviceptr pointer_of(vkgdr_memory_t mem, CUdevice *device, CUstream stream) {
    *device = stream ? 1 : VKGDR_OPEN_REQUIRE_COHERENT_BIT;
    return vkgdr_memory_get_device_ptr(mem);
}
";

/// Includes, and whether a folder with `cuda.h` is searched.
const PLACES: [(&str, &str, bool); 8] = [
    ("absent", "#include <vkgdr.h>", false),
    ("twice", "#include <vkgdr.h>\n#include <vkgdr.h>", false),
    ("present", "#include <vkgdr.h>", true),
    ("before", "#include <cuda.h>\n#include <vkgdr.h>", true),
    ("after", "#include <vkgdr.h>\n#include <cuda.h>", true),
    ("between", "#include <vkgdr.h>\n#include <cuda.h>\n#include <vkgdr.h>", true),
    // Found by the program under a name that the header does not look for.
    ("elsewhere", "#include \"cuda/cuda.h\"\n#include <vkgdr.h>", false),
    // Build systems define this macro without the header.
    ("version", "#define CUDA_VERSION 12000\n#include <vkgdr.h>", false),
];

/// Every dialect of the installed compilers with `VKGDR_TEST_ALL=1`, otherwise the first.
fn dialects() -> Vec<(Compiler, &'static str)> {
    let all = installed(&[GCC, CLANG, GXX, CLANGXX]);
    let standards = |compiler: Compiler| match compiler.language {
        "c" => &C[..amount(1, C.len())],
        _ => &CPP[..amount(1, CPP.len())],
    };
    all.into_iter().flat_map(|compiler| standards(compiler).iter().map(move |standard| (compiler, *standard))).collect()
}

fn check_only(command: &mut Command) -> &mut Command {
    command.arg("-fsyntax-only")
}

#[test]
fn the_header_compiles_in_every_dialect_with_cuda_h_before_it_after_it_or_absent() -> Result {
    let Some(shop) = Workshop::open("header")? else { return Ok(()) };
    for (name, includes, _) in PLACES {
        fs::write(shop.path(name), format!("{includes}\n{USE}"))?;
    }
    for (compiler, standard) in dialects() {
        for with_cuda in [false, true] {
            let mut command = shop.compile(compiler, standard);
            command.arg("-I").arg(fixture("")).args(with_cuda.then_some("-I"));
            command.args(with_cuda.then(|| fixture("cuda")));
            // One command for all places: starting a compiler costs more than the header does.
            command.args(PLACES.iter().filter(|(_, _, needed)| *needed == with_cuda).map(|(name, ..)| shop.path(name)));
            finish(check_only(&mut command))?;
        }
    }
    Ok(())
}

#[test]
fn prototypes_values_and_layouts_are_what_programs_have_compiled_into_them() -> Result {
    let Some(shop) = Workshop::open("abi")? else { return Ok(()) };
    for (compiler, standard) in dialects() {
        finish(check_only(shop.compile(compiler, standard).arg(fixture("abi.c"))))?;
        let with_cuda = &mut shop.compile(compiler, standard);
        finish(check_only(with_cuda.arg("-I").arg(fixture("cuda")).arg(fixture("abi.c"))))?;
    }
    Ok(())
}

/// What a program and a library see that hide all that they do not declare visible.
const HIDDEN: &str = "
#pragma GCC visibility push(hidden)
#include <vkgdr.h>
#pragma GCC visibility pop
const char *version_of_vkgdr(void);
const char *version_of_vkgdr(void) { return vkgdr_version(); }
";

#[test]
fn the_functions_are_visible_where_programs_hide_their_own() -> Result {
    let Some(shop) = Workshop::open("hidden")? else { return Ok(()) };
    fs::write(shop.path("hidden.c"), HIDDEN)?;
    for compiler in installed(&[GCC, CLANG, GXX, CLANGXX]) {
        let mut command = shop.compile(compiler, if compiler.language == "c" { "c99" } else { "c++11" });
        command.args(["-shared", "-fPIC", "-Wl,-z,defs"]).arg(shop.path("hidden.c")).args(["-x", "none", "-L"]);
        finish(command.arg(shop.path("dev")).args(["-lvkgdr", "-o"]).arg(shop.path("libhidden.so")))?;
    }
    Ok(())
}

/// The CPU's end of a ring and the kernel's, as in a file that nvcc compiles. The assembly is of the GPU: clang looks at it.
#[test]
fn the_headers_of_the_cpu_and_of_kernels_compile_together() -> Result {
    let Some(shop) = Workshop::open("both")? else { return Ok(()) };
    const KEYWORDS: &str = "#define __device__\n#define __forceinline__ inline\n";
    const KERNEL: &str = "#include \"vkgdr_ring.cuh\"\n";
    // The second includes the first.
    for (standard, header) in [("c++17", "vkgdr.hpp"), ("c++11", "vkgdr.h")].into_iter().take(amount(1, 2)) {
        let include = format!("#include <{header}>\n");
        for (name, includes) in [("first", [&include, KERNEL]), ("second", [KERNEL, &include])] {
            fs::write(shop.path(name), format!("{KEYWORDS}{}\n{USE}", includes.concat()))?;
        }
        for compiler in installed(&[GXX]) {
            let mut command = shop.compile(compiler, standard);
            command.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/ring"));
            finish(check_only(command.arg(shop.path("first")).arg(shop.path("second"))))?;
        }
    }
    Ok(())
}
