//! Access to the memory of other devices, which no simulated device has.

use support::codes::{INVALID_CONTEXT, INVALID_VALUE};
use support::cuda::{Context, PrimaryContext, no_context};

use crate::call;

const INVALID_DEVICE: i32 = 101;
const PEER_ACCESS_UNSUPPORTED: i32 = 217;
const PEER_ACCESS_NOT_ENABLED: i32 = 705;

#[test]
fn access_to_peers_is_refused_by_the_documented_codes() {
    let other = Context::create(0);
    let current = PrimaryContext::retain_and_push(0);
    let enable = |context: usize, flags: u32| call!(cuCtxEnablePeerAccess(context => usize, flags => u32));
    let disable = |context: usize| call!(cuCtxDisablePeerAccess(context => usize));
    let (own, peer) = (current.raw().addr(), other.raw().addr());
    assert_eq!(
        [enable(peer, 0), enable(own, 0), enable(0, 0), enable(peer, 1)],
        [PEER_ACCESS_UNSUPPORTED, INVALID_CONTEXT, INVALID_CONTEXT, INVALID_VALUE]
    );
    assert_eq!([disable(peer), disable(own), disable(0)], [PEER_ACCESS_NOT_ENABLED, INVALID_CONTEXT, INVALID_CONTEXT]);
    assert_eq!(no_context(|| (enable(peer, 0), disable(peer))), (INVALID_CONTEXT, INVALID_CONTEXT));
}

#[test]
fn a_device_is_no_peer_of_itself() {
    let _context = PrimaryContext::retain_and_push(0);
    let mut value = 9;
    let mut ask = |attribute: u32, source: i32, target: i32| {
        let out = &raw mut value;
        call!(cuDeviceGetP2PAttribute(out => *mut i32, attribute => u32, source => i32, target => i32))
    };
    assert_eq!([ask(1, 0, 0), ask(1, 0, 99), ask(1, 99, 0)], [INVALID_DEVICE; 3]);
    assert_eq!(value, 9);
}
