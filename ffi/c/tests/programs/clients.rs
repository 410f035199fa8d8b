//! Programs that call every function of the header, and compare the bytes that are copied.

use std::fs;
use std::process::Command;

use support::amount;

use super::Result;
use super::workshop::{
    Build, CLANG, CLANGXX, Compiler, GCC, GXX, Linkage, Workshop, done, finish, fixture, fixtures, has, installed,
    sources,
};

const CLIENT: Build<'_> =
    Build { name: "client", standard: "c99", sources: &["common", "client"], flags: &[], linkage: Linkage::Shared };
/// Every method of the C++ layer.
const LAYER: Build<'_> = Build { name: "layer", standard: "c++17", sources: &["layer.cpp"], ..CLIENT };
const WITHOUT_MAPPED: Build<'_> = Build { name: "without-mapped", sources: &["common", "without_mapped.c"], ..CLIENT };

fn build_and_run(name: &str, compilers: &[Compiler], builds: &[Build<'_>]) -> Result {
    let Some(shop) = Workshop::open(name)? else { return Ok(()) };
    for compiler in installed(compilers) {
        for build in builds {
            done(&mut shop.command(shop.program(compiler, build)?))?;
        }
    }
    Ok(())
}

#[test]
fn a_client_of_every_function_runs_with_the_shared_and_the_static_library() -> Result {
    build_and_run("c", &[GCC, CLANG], &[CLIENT, Build { name: "static", linkage: Linkage::Static, ..CLIENT }])
}

#[test]
fn the_cpp_layer_returns_and_throws_what_it_says_in_cpp17_and_cpp20() -> Result {
    let layer_20 = Build { name: "layer-20", standard: "c++20", flags: &["-DC_HEADER_FIRST"], ..LAYER };
    build_and_run("layer", &[GXX, CLANGXX], &amount(vec![LAYER], vec![LAYER, layer_20]))
}

/// Discrete GPUs, on which the thresholds apply and the copy engine makes large copies; GPUs that let the CPU map memory of other
/// allocators; and GPUs without mapped memory, which are opened on request.
#[test]
fn the_clients_run_on_other_gpus() -> Result {
    let Some(shop) = Workshop::open("profiles")? else { return Ok(()) };
    for (compiler, build, profiles) in [
        (GCC, CLIENT, &["rebar", "dma-buf"][..]),
        (GXX, LAYER, amount(&[], &["dma-buf"])),
        (GCC, WITHOUT_MAPPED, &["no-bar", "no-vulkan"]),
    ] {
        for compiler in installed(&[compiler]).into_iter().filter(|_| !profiles.is_empty()) {
            let program = shop.program(compiler, &build)?;
            for profile in profiles {
                let Some(mut command) = shop.profiled(profile, &program)? else { return Ok(()) };
                done(command.arg(profile)).map_err(|error| format!("{profile}: {error}"))?;
            }
        }
    }
    Ok(())
}

/// Every function that the header declares is called by name in the client.
#[test]
fn the_client_calls_every_function_of_the_header() -> Result {
    let Some(folder) = sources() else { return Ok(()) };
    let mut client = String::new();
    for file in fixtures(CLIENT.sources)? {
        client += &fs::read_to_string(file)?;
    }
    let functions = super::symbols::declared(folder)?;
    let missing: Vec<_> = functions.iter().filter(|name| !client.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "the client never calls {missing:?}");
    Ok(())
}

/// AddressSanitizer detects memory errors of the program, leaks of the program and of the library, and mismatched frees. The
/// library is not instrumented: errors in its own memory are left to Valgrind.
#[test]
fn the_client_has_no_error_and_no_leak_under_address_sanitizer() -> Result {
    let Some(shop) = Workshop::open("asan")? else { return Ok(()) };
    let flags = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];
    for compiler in installed(&[GCC]) {
        let mut command = shop.command(shop.program(compiler, &Build { flags, ..CLIENT })?);
        let suppressions = fixture("lsan.supp");
        command.env("LSAN_OPTIONS", format!("suppressions={}:print_suppressions=0", suppressions.display()));
        done(command.env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1"))?;
    }
    Ok(())
}

#[test]
fn the_client_has_no_error_and_no_leak_under_valgrind() -> Result {
    if !support::test_all() {
        return support::skip("slow (set VKGDR_TEST_ALL=1)");
    }
    let Some(shop) = Workshop::open("valgrind")?.filter(|_| has("valgrind")) else { return Ok(()) };
    for compiler in installed(&[GCC]) {
        let program = shop.program(compiler, &CLIENT)?;
        let mut command = shop.command("valgrind");
        // The validation layer takes a minute under Valgrind, and the other tests run with it.
        command.env_remove("VK_INSTANCE_LAYERS");
        command.args(["--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        command.arg("--show-leak-kinds=definite");
        command.arg(format!("--suppressions={}", fixture("valgrind.supp").display()));
        done(command.arg(program))?;
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
        done(&mut shop.command(program))?;
    }
    Ok(())
}
