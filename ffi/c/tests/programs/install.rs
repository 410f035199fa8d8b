//! The files by which pkg-config and CMake find the installed library. `ffi/c/tests/installed/run.sh` installs and uses them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::Result;
use super::workshop::{GCC, Workshop, finish, has, installed, library, sources};

/// A line of `vkgdr.pc.in`.
fn field(folder: &Path, name: &str) -> Result<String> {
    let template = fs::read_to_string(folder.join("vkgdr.pc.in"))?;
    let line = template.lines().find_map(|line| line.strip_prefix(name)).ok_or("vkgdr.pc.in has no such line")?;
    Ok(line.to_owned())
}

/// It keeps the drivers loaded, which may call it.
#[test]
fn a_plugin_with_the_static_library_stays_loaded() -> Result {
    let (Some(shop), Some(folder)) = (Workshop::open("plugin")?, sources()) else { return Ok(()) };
    if !has("readelf") {
        return Ok(());
    }
    let (source, plugin) = (shop.path("plugin.c"), shop.path("plugin.so"));
    fs::write(
        &source,
        "#include <vkgdr.h>\nextern const char *run(void);\nconst char *run(void) { return vkgdr_version(); }\n",
    )?;
    for compiler in installed(&[GCC]) {
        let mut command = shop.compile(compiler, "c99");
        command.args(["-shared", "-fPIC"]).arg(&source).args(["-x", "none"]).arg(library()?.with_extension("a"));
        finish(command.args(field(folder, "Libs.private: ")?.split(' ')).arg("-o").arg(&plugin))?;
        let dynamic = finish(Command::new("readelf").args(["-dW"]).arg(&plugin).env("LC_ALL", "C"))?;
        assert!(
            String::from_utf8_lossy(&dynamic.stdout).contains("NODELETE"),
            "{}",
            String::from_utf8_lossy(&dynamic.stdout)
        );
    }
    Ok(())
}

/// Prints what each call finds: components, and whether `vkgdr::static` keeps plugins loaded.
const PROJECT: &str = "cmake_minimum_required(VERSION 3.13)
project(find LANGUAGES NONE)
foreach(components \"\" shared static \"shared;static\" python \"shared;python\")
    find_package(vkgdr QUIET COMPONENTS ${components})
    message(STATUS \"find [${components}]: ${vkgdr_FOUND}\")
endforeach()
find_package(vkgdr QUIET OPTIONAL_COMPONENTS python static)
message(STATUS \"find optional: ${vkgdr_FOUND} ${vkgdr_python_FOUND}\")
if(TARGET vkgdr::static)
    get_target_property(options vkgdr::static INTERFACE_LINK_OPTIONS)
    message(STATUS \"find options: ${options}\")
endif()
";

/// The lines of the project with an installed tree in which the static library may be missing.
fn found(shop: &Workshop, folder: &Path, has_static: bool) -> Result<Vec<String>> {
    let tree = shop.path(if has_static { "both" } else { "shared" });
    let config = tree.join("lib/cmake/vkgdr");
    fs::create_dir_all(&config)?;
    fs::create_dir_all(tree.join("include"))?;
    let archive = has_static.then_some("lib/libvkgdr.a");
    for file in ["include/vkgdr.h", "lib/libvkgdr.so.1.0.0"].into_iter().chain(archive) {
        fs::write(tree.join(file), "")?;
    }
    let values = [("@INCLUDE@", "../include"), ("@SO_VERSION@", "1.0.0")];
    let template = fs::read_to_string(folder.join("cmake/vkgdrConfig.cmake.in"))?;
    let text = values.into_iter().fold(template, |text, (name, value)| text.replace(name, value));
    fs::write(config.join("vkgdrConfig.cmake"), text)?;
    fs::write(tree.join("CMakeLists.txt"), PROJECT)?;
    let mut command = Command::new("cmake");
    command.arg("-S").arg(&tree).arg("-B").arg(tree.join("build"));
    let output = finish(command.arg(format!("-DCMAKE_PREFIX_PATH={}", tree.display())))?;
    let lines = String::from_utf8(output.stdout)?;
    Ok(lines.lines().filter_map(|line| line.strip_prefix("-- find ")).map(str::to_owned).collect())
}

#[test]
fn cmake_finds_the_components_that_are_installed_and_no_others() -> Result {
    let (Some(shop), Some(folder)) = (Workshop::open("cmake")?, sources()) else { return Ok(()) };
    if !has("cmake") {
        return Ok(());
    }
    let both = ["[]: 1", "[shared]: 1", "[static]: 1", "[shared;static]: 1", "[python]: 0"];
    let rest = ["[shared;python]: 0", "optional: 1 FALSE", "options: LINKER:-z,nodelete"];
    assert_eq!(found(&shop, folder, true)?, [&both[..], &rest[..]].concat());
    let shared = ["[]: 1", "[shared]: 1", "[static]: 0", "[shared;static]: 0", "[python]: 0"];
    assert_eq!(found(&shop, folder, false)?, [&shared[..], &rest[..2]].concat());
    Ok(())
}
