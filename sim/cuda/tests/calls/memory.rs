//! Device and managed memory.

use support::cuda::PrimaryContext;

use crate::{call, given, good};

const MIB: usize = 1 << 20;

fn allocate(len: usize) -> u64 {
    given(|out| call!(cuMemAlloc_v2(out => *mut u64, len => usize)))
}

fn free(address: u64) {
    good(call!(cuMemFree_v2(address => u64)));
}

#[test]
fn large_blocks_start_at_a_multiple_of_2_mib() {
    let _context = PrimaryContext::retain_and_push(0);
    // Several at once, so that none is aligned by chance.
    for len in [2 * MIB, 3 * MIB + 4, 16 * MIB] {
        let blocks: Vec<u64> = (0..4).map(|_| allocate(len)).collect();
        assert!(blocks.iter().all(|address| address.is_multiple_of(2 << 20)), "{len} bytes at {blocks:x?}");
        blocks.into_iter().for_each(free);
    }
    for len in [1, 256, 4097, MIB] {
        let blocks: Vec<u64> = (0..4).map(|_| allocate(len)).collect();
        assert!(blocks.iter().all(|address| address.is_multiple_of(256)), "{len} bytes at {blocks:x?}");
        blocks.into_iter().for_each(free);
    }
}
