//! Forked children, which cannot use the driver that their parent initialised.

use support::Result;
use support::cuda::PrimaryContext;
use support::fork::in_child;

use crate::{call, good};

const NOT_INITIALIZED: i32 = 3;

#[test]
fn a_forked_child_has_no_driver() -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    in_child(|| {
        let mut out = 0_usize;
        assert_eq!(call!(cuMemAlloc_v2(&raw mut out => *mut usize, 4 => usize)), NOT_INITIALIZED);
        assert_eq!(call!(cuCtxSynchronize()), NOT_INITIALIZED);
        assert_eq!(call!(cuInit(0 => u32)), NOT_INITIALIZED);
        let mut version = 0;
        good(call!(cuDriverGetVersion(&raw mut version => *mut i32)));
        Ok(())
    })?;
    good(call!(cuCtxSynchronize()));
    Ok(())
}
