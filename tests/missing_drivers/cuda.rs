//! `libcuda` is missing, broken, too old or without a device.

use crate::folder::{Folder, simulator};
use crate::{OPEN, Result, USE, child, refused};
use support::{amount, codes, fork};
use vkgdr::{OpenFlags, Vkgdr};

/// The source file with the list of driver functions, so that the test covers all of them.
const SOURCE: &str = include_str!("../../src/driver/cuda.rs");
/// The file names that programs look for; the first is cudarc's first choice.
const NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// The functions listed under `heading` in the source.
fn functions(heading: &str) -> Vec<&'static str> {
    let block = SOURCE.split_once(&format!("\n    {heading} {{\n")).map_or("", |(_, block)| block);
    let lines = block.lines().take_while(|line| *line != "    }").map(str::trim);
    let found: Vec<_> = lines.filter(|line| line.starts_with("cu")).filter_map(|line| line.split('(').next()).collect();
    assert!(!found.is_empty(), "src/driver/cuda.rs lists no {heading} functions; has its form changed?");
    found
}

/// Puts a copy of the simulated driver, with one function renamed, into the folder.
///
/// Symbols are looked up by hash, 33 × hash + byte for each byte (the GNU hash section). The new name has the same
/// hash, since `c` × 33 + `u` = `d` × 33 + `T`, so that the symbol table stays valid.
fn without(folder: &Folder, function: &str) -> Result<bool> {
    let Some(simulator) = simulator() else { return Ok(false) };
    let symbol = format!("\0{function}\0");
    let renamed = symbol.replacen("cu", "dT", 1);
    folder.patched(&simulator, NAMES[1], &[(symbol.as_bytes(), renamed.as_bytes())])?;
    folder.alias(NAMES[1], NAMES[0])?;
    Ok(true)
}

#[test]
fn a_missing_libcuda_is_an_error_that_says_what_to_install() -> Result {
    parent!();
    let folder = Folder::new()?;
    NAMES.iter().try_for_each(|name| folder.broken(name))?;
    let mut command = child::command(OPEN)?;
    folder.first_for(&mut command);
    refused(command, &["libcuda.so.1 could not be loaded", "libcuda.so.1: ", "install the NVIDIA driver"])
}

#[test]
fn each_missing_function_is_an_error_that_names_it() -> Result {
    parent!();
    let folder = Folder::new()?;
    let required = functions("required");
    assert!(required.contains(&"cuInit") && required.len() > 20, "{required:?}");
    for function in required.into_iter().step_by(amount(4, 1)) {
        if !without(&folder, function)? {
            return Ok(());
        }
        let mut command = child::command(OPEN)?;
        folder.first_for(&mut command);
        let text = format!("libcuda.so.1 has no function {function}: install a newer NVIDIA driver");
        refused(command, &[&text])?;
    }
    Ok(())
}

#[test]
fn nothing_is_lost_without_the_optional_functions() -> Result {
    parent!();
    if support::simcuda().is_none() {
        return support::skip("the simulated driver needs lavapipe");
    }
    let folder = Folder::new()?;
    for function in functions("optional") {
        if !without(&folder, function)? {
            return Ok(());
        }
        let mut command = child::command(USE)?;
        folder.first_for(&mut command);
        assert_eq!(child::run(command)?, ["used"], "without {function}");
    }
    Ok(())
}

#[test]
fn a_driver_that_does_not_start_is_an_error_with_its_code() -> Result {
    parent!();
    if support::simcuda().is_none() {
        return support::skip("only the simulated driver can be made to fail");
    }
    for (code, parts) in [
        (codes::NO_DEVICE, ["cuInit failed (CUDA_ERROR_NO_DEVICE)", "nvidia-smi"]),
        (codes::UNKNOWN, ["cuInit failed (CUDA_ERROR_UNKNOWN)", "nvidia-smi"]),
        (34, ["(CUDA_ERROR_STUB_LIBRARY)", "the CUDA toolkit's stub"]),
        (46, ["(CUDA_ERROR_DEVICE_UNAVAILABLE)", "exclusive mode"]),
        (codes::OPERATING_SYSTEM, ["(CUDA_ERROR_OPERATING_SYSTEM)", "ulimit -n"]),
        (802, ["(CUDA_ERROR_SYSTEM_NOT_READY)", "nvidia-fabricmanager"]),
        (codes::SYSTEM_DRIVER_MISMATCH, ["(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)", "different versions"]),
        (804, ["(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)", "cuda-compat"]),
        (805, ["(CUDA_ERROR_MPS_CONNECTION_FAILED)", "the MPS daemon"]),
        (123_456, ["cuInit failed (unknown CUDA error 123456)", "nvidia-smi"]),
    ] {
        // The child opens four times. What may pass is tried again, all else remembered.
        let may_pass = [46, codes::OPERATING_SYSTEM].contains(&code);
        let faults: Vec<_> = (1..=if may_pass { 4 } else { 1 }).map(|nth| format!("cuInit:{nth}:{code}")).collect();
        let mut command = child::command(OPEN)?;
        command.env("SIMCUDA_FAIL", faults.join(","));
        refused(command, &parts)?;
    }
    Ok(())
}

#[test]
fn a_child_that_was_forked_after_a_failed_start_hears_its_cause() -> Result {
    if support::simcuda().is_none() {
        return support::skip("only the simulated driver can be made to fail");
    }
    let Some(role) = child::role() else {
        // The second may pass, so that the child tries again.
        for (faults, code) in [("cuInit:1:100", "NO_DEVICE"), ("cuInit:1:46,cuInit:2:46", "DEVICE_UNAVAILABLE")] {
            let mut command = child::command("fork")?;
            command.env("SIMCUDA_FAIL", faults);
            let said = child::run(command)?;
            assert!(matches!(&said[..], [cause] if cause.contains(&format!("(CUDA_ERROR_{code})"))), "{said:?}");
        }
        let folder = Folder::new()?;
        if without(&folder, "cuCtxGetDevice")? {
            let mut command = child::command("fork")?;
            folder.first_for(&mut command);
            let said = child::run(command)?;
            assert!(matches!(&said[..], [cause] if cause.contains("no function cuCtxGetDevice")), "{said:?}");
        }
        return Ok(());
    };
    assert_eq!(role, "fork");
    let cause = || Vkgdr::open(0, OpenFlags::empty()).err().map(|error| error.to_string());
    let before = cause();
    fork::in_child(|| {
        assert_eq!(cause(), before);
        Ok(())
    })?;
    child::say(before.unwrap_or_default());
    Ok(())
}
