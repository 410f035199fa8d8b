//! Functions that are not simulated.

use support::{Result, child, codes, driver, simulated};

use crate::{call, given};

/// Calls functions of each kind, twice.
fn probe() {
    driver::initialise();
    for _ in 0..2 {
        let mut texture = 0_usize;
        assert_eq!(call!(cuTexRefCreate(&raw mut texture => *mut usize)), codes::NOT_SUPPORTED);
        assert_eq!(call!(cuTexRefDestroy(texture => usize)), codes::NOT_SUPPORTED);
        // What NVRTC asks for, and what a statically linked runtime does.
        for id in [0x28e3_33d5_264f_c0a5_41cc_e63a_d351_91da, 0xf99d_fd12_39d9_8789_4ae7_f45b_6cfb_d56b_u128] {
            let mut table = 1_usize;
            let id = id.to_le_bytes();
            assert_eq!(
                call!(cuGetExportTable(&raw mut table => *mut usize, &raw const id => *const [u8; 16])),
                codes::NOT_SUPPORTED
            );
            assert_eq!(table, 0);
        }
        // Few GPUs have multicast objects.
        let mut object = 0_usize;
        assert_eq!(call!(cuMulticastCreate(&raw mut object => *mut usize, 0 => usize)), codes::NOT_SUPPORTED);
    }
}

#[test]
fn a_function_that_is_not_simulated_is_named_once() -> Result {
    simulated!("a real driver has every function");
    if child::role().is_some() {
        probe();
        return Ok(());
    }
    let line = |name| format!("simcuda: {name} is not simulated: CUDA_ERROR_NOT_SUPPORTED");
    let table = "simcuda: cuGetExportTable is not simulated, which a statically linked CUDA runtime needs: \
                 CUDA_ERROR_NOT_SUPPORTED; link it as a shared library (nvcc --cudart shared)";
    let expected = [line("cuTexRefCreate"), line("cuTexRefDestroy"), table.to_owned()];
    assert_eq!(child::simulator_lines("probe", "0")?, expected);
    assert_eq!(child::simulator_lines("probe", "1")?, [""; 0]);
    Ok(())
}

/// Programs use these where an attribute of the device says that they can.
#[test]
fn access_policies_of_the_l2_cache_are_neither_simulated_nor_offered() {
    simulated!("a GPU may have them");
    driver::initialise();
    let attribute =
        |number: u32| -> i32 { given(|out| call!(cuDeviceGetAttribute(out => *mut i32, number => u32, 0 => i32))) };
    // CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE and MAX_ACCESS_POLICY_WINDOW_SIZE.
    assert_eq!([108, 109].map(attribute), [0, 0]);
    assert_eq!(call!(cuCtxResetPersistingL2Cache()), codes::NOT_SUPPORTED);
}
