//! Functions that are not simulated.

use support::{Result, child, codes, driver, simcuda};

use crate::call;

/// Calls functions of each kind, twice.
fn probe() {
    driver::initialise();
    for _ in 0..2 {
        let mut texture = 0_usize;
        assert_eq!(call!(cuTexRefCreate(&raw mut texture => *mut usize)), codes::NOT_SUPPORTED);
        assert_eq!(call!(cuTexRefDestroy(texture => usize)), codes::NOT_SUPPORTED);
        // Few GPUs have multicast objects.
        let mut object = 0_usize;
        assert_eq!(call!(cuMulticastCreate(&raw mut object => *mut usize, 0 => usize)), codes::NOT_SUPPORTED);
    }
}

#[test]
fn a_function_that_is_not_simulated_is_named_once() -> Result {
    const TEST: &str = "missing::a_function_that_is_not_simulated_is_named_once";
    if simcuda().is_none() {
        eprintln!("skipped: a real driver has every function");
        return Ok(());
    }
    if child::role().is_some() {
        probe();
        return Ok(());
    }
    let line = |name| format!("simcuda: {name} is not simulated: CUDA_ERROR_NOT_SUPPORTED");
    assert_eq!(child::simulator_lines(TEST, "probe", "0")?, [line("cuTexRefCreate"), line("cuTexRefDestroy")]);
    assert_eq!(child::simulator_lines(TEST, "probe", "1")?, [""; 0]);
    Ok(())
}
