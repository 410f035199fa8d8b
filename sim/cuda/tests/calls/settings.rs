//! Variables `SIMCUDA_*` with values that they cannot have.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;

use support::{Result, child, driver, simulated};

use crate::{call, given};

fn started_with(variables: &[(&str, &str)]) -> Result<Output> {
    let mut command = child::command("start")?;
    command.env_remove("SIMCUDA_DEVICES");
    Ok(command.envs(variables.iter().copied()).output()?)
}

/// The simulated driver's lines on standard error.
fn lines(output: &Output) -> Vec<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    errors.lines().filter(|line| line.starts_with("simcuda:")).map(str::to_owned).collect()
}

#[test]
fn a_value_that_a_variable_cannot_have_is_named_once_and_ignored() -> Result {
    simulated!("the variables are the simulated driver's");
    if child::role().is_some() {
        driver::initialise();
        driver::initialise();
        let count: i32 = given(|out| call!(cuDeviceGetCount(out => *mut i32)));
        child::say(count);
        return Ok(());
    }
    for (name, values, must_be) in [
        ("SIMCUDA_LATE", &["true", "yes", "2"][..], "0 or 1"),
        ("SIMCUDA_ASYNC", &["2"], "0 or 1"),
        ("SIMCUDA_QUIET", &["on"], "0 or 1"),
        ("SIMCUDA_STALE_CONTEXT", &["foo"], "abort or error"),
        ("SIMCUDA_HEAP_MIB", &["64MiB", "0", "99999999999999999"], "a number of MiB, such as 4096"),
        ("SIMCUDA_DRIVER_VERSION", &["12.4", "0"], "a number such as 12040 for CUDA 12.4"),
        ("SIMCUDA_DEVICES", &["17", "0", "two"], "a number from 1 to 16"),
    ] {
        for value in values {
            let output = started_with(&[(name, value)])?;
            assert!(output.status.success(), "{name}={value}: {output:?}");
            let line = format!("simcuda: {name} is {value:?}, which is ignored: it must be {must_be}");
            assert_eq!(lines(&output), [line]);
            assert!(String::from_utf8_lossy(&output.stderr).contains("child: 1\n"), "{output:?}");
        }
    }
    let right = [("SIMCUDA_LATE", "0"), ("SIMCUDA_ASYNC", ""), ("SIMCUDA_HEAP_MIB", "64"), ("SIMCUDA_DEVICES", "16")];
    assert_eq!(lines(&started_with(&right)?), [""; 0]);
    let weak = started_with(&[("SIMCUDA_WEAK", "abc")])?;
    assert_eq!(weak.status.signal(), Some(6), "a test on weak memory that is not would test nothing: {weak:?}");
    assert_eq!(lines(&weak), ["simcuda: SIMCUDA_WEAK has \"abc\", which is not a number"]);
    Ok(())
}
