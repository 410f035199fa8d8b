//! Programs that call every function of the header, and compare the bytes that are copied.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use support::amount;

use super::Result;
use super::workshop::{
    Build, CLANG, CLANGXX, Compiler, GCC, GXX, Linkage, Workshop, done, finish, fixture, has, installed,
    runs_slow_tests, sources,
};

const COMMON: [&str; 2] = ["common/check.c", "common/driver.c"];
/// C99 that is C++11 as well.
const CLIENT: Build<'_> = Build {
    name: "client",
    standard: "c99",
    sources: &[
        COMMON[0],
        COMMON[1],
        "client/main.c",
        "client/device.c",
        "client/existing.c",
        "client/lookup.c",
        "client/memory.c",
        "client/copies.c",
        "client/pool.c",
        "client/ring.c",
        "client/sharing.c",
        "client/streams.c",
        "client/vulkan.c",
    ],
    flags: &[],
    linkage: Linkage::Shared,
};
const CLIENT_AS_CPP: Build<'_> = Build { name: "client-as-cpp", standard: "c++17", ..CLIENT };
const CPP_CLIENT: Build<'_> =
    Build { name: "cpp-client", standard: "c++11", sources: &[COMMON[0], COMMON[1], "client.cpp"], ..CLIENT };

/// Every method of the C++ layer.
const LAYER: Build<'_> = Build { name: "layer", standard: "c++17", sources: &["layer.cpp"], ..CLIENT };

fn build_and_run(name: &str, compilers: &[Compiler], builds: &[Build<'_>]) -> Result {
    let Some(shop) = Workshop::open(name)? else { return Ok(()) };
    for compiler in installed(compilers) {
        for build in builds {
            shop.run(shop.program(compiler, build)?, &[])?;
        }
    }
    Ok(())
}

#[test]
fn a_c_client_of_every_function_runs_with_the_shared_library() -> Result {
    build_and_run("c", &[GCC, CLANG], &[CLIENT])
}

/// On a GPU whose mapped memory the CPU does not cache, so that the thresholds apply.
#[test]
fn a_c_client_runs_on_a_discrete_gpu_whose_copy_engine_makes_large_copies() -> Result {
    let Some(shop) = Workshop::open("discrete")? else { return Ok(()) };
    for compiler in installed(&[GCC]) {
        let program = shop.program(compiler, &CLIENT)?;
        let Some(mut command) = shop.profiled("rebar", program)? else { return Ok(()) };
        done(&mut command)?;
    }
    Ok(())
}

/// On a GPU that lets the CPU map memory of other allocators.
#[test]
fn the_clients_map_memory_that_cuda_allocated_for_others() -> Result {
    let Some(shop) = Workshop::open("existing")? else { return Ok(()) };
    for (compiler, build) in amount(vec![(GCC, CLIENT)], vec![(GCC, CLIENT), (GXX, LAYER)]) {
        for compiler in installed(&[compiler]) {
            let Some(mut command) = shop.profiled("dma-buf", shop.program(compiler, &build)?)? else { return Ok(()) };
            done(&mut command)?;
        }
    }
    Ok(())
}

#[test]
fn a_cpp_client_of_every_function_runs_with_the_shared_library() -> Result {
    let builds = amount(vec![CPP_CLIENT], vec![CLIENT_AS_CPP, CPP_CLIENT]);
    build_and_run("cpp", &[GXX, CLANGXX], &builds)
}

#[test]
fn the_cpp_layer_returns_and_throws_what_it_says_in_cpp17_and_cpp20() -> Result {
    let layer_20 = Build { name: "layer-20", standard: "c++20", flags: &["-DC_HEADER_FIRST"], ..LAYER };
    build_and_run("layer", &[GXX, CLANGXX], &amount(vec![LAYER], vec![LAYER, layer_20]))
}

#[test]
fn a_gpu_without_mapped_memory_is_opened_on_request_and_its_other_kinds_work() -> Result {
    let Some(shop) = Workshop::open("without-mapped")? else { return Ok(()) };
    let build = Build { name: "without-mapped", sources: &[COMMON[0], COMMON[1], "without_mapped.c"], ..CLIENT };
    for compiler in installed(&[GCC]) {
        let program = shop.program(compiler, &build)?;
        for profile in ["no-bar", "no-vulkan"] {
            let Some(mut command) = shop.profiled(profile, program.clone())? else { return Ok(()) };
            done(command.arg(profile))?;
        }
    }
    Ok(())
}

#[test]
fn a_client_runs_with_the_static_library() -> Result {
    let build = Build { name: "static", linkage: Linkage::Static, ..CLIENT };
    build_and_run("static", &[GCC], &[build])
}

/// Every function that the header declares is called by name in the client.
#[test]
fn the_clients_call_every_function_of_the_header() -> Result {
    let Some(folder) = sources() else { return Ok(()) };
    let client = CLIENT.sources.iter().map(|name| fs::read_to_string(fixture(name))).collect::<io::Result<String>>()?;
    let functions = super::symbols::declared(folder)?;
    let missing: Vec<_> = functions.iter().filter(|name| !client.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "the client never calls {missing:?}");
    Ok(())
}

/// Runs a program that was built with AddressSanitizer: it detects memory errors of the program, leaks of the program
/// and of the library, and mismatched frees. The library is not instrumented: errors in its own memory are left to
/// Valgrind.
pub(crate) fn sanitized(shop: &Workshop, program: &Path) -> Command {
    let mut command = shop.command(program);
    command.env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1");
    let suppressions = fixture("lsan.supp");
    command.env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", suppressions.display()));
    command
}

#[test]
fn the_clients_have_no_error_and_no_leak_under_address_sanitizer() -> Result {
    if !runs_slow_tests() {
        return Ok(());
    }
    let Some(shop) = Workshop::open("asan")? else { return Ok(()) };
    let flags = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];
    for (compiler, build) in [(GCC, CLIENT), (CLANGXX, CPP_CLIENT)] {
        for compiler in installed(&[compiler]) {
            let program = shop.program(compiler, &Build { flags, ..build })?;
            done(&mut sanitized(&shop, &program))?;
        }
    }
    Ok(())
}

#[test]
fn the_clients_have_no_error_and_no_leak_under_valgrind() -> Result {
    if !runs_slow_tests() {
        return Ok(());
    }
    let Some(shop) = Workshop::open("valgrind")? else { return Ok(()) };
    if !has("valgrind") {
        return Ok(());
    }
    for (compiler, build) in [(GCC, CLIENT), (GXX, CPP_CLIENT)] {
        for compiler in installed(&[compiler]) {
            let program = shop.program(compiler, &build)?;
            let mut command = shop.command("valgrind");
            // The validation layer takes a minute under Valgrind, and the other tests run with it.
            command.env_remove("VK_INSTANCE_LAYERS");
            command.args(["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
            command.arg("--show-leak-kinds=definite");
            command.arg(format!("--suppressions={}", fixture("valgrind.supp").display()));
            done(command.arg(program))?;
        }
    }
    Ok(())
}

#[test]
fn the_library_can_be_loaded_and_unloaded_at_run_time() -> Result {
    let Some(shop) = Workshop::open("unload")? else { return Ok(()) };
    let build = Build { name: "unload", sources: &["unload.c"], linkage: Linkage::None, ..CLIENT };
    for compiler in installed(&[GCC]) {
        let program = shop.program(compiler, &build)?;
        // It uses no symbol of the library, so that the dynamic linker does not load it before main.
        let symbols = finish(Command::new("nm").arg("--undefined-only").arg(&program))?;
        assert!(!String::from_utf8_lossy(&symbols.stdout).contains("vkgdr"), "linked to the library");
        shop.run(program, &[])?;
    }
    Ok(())
}
