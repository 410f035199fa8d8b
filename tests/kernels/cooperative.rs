//! The barrier of a whole grid.

use std::ffi::c_uint;

use support::cuda;

use crate::driver::{Buffer, Module, call};
use crate::{Result, device_words, good, open};

/// `rounds(values, count)`: as nvcc compiles `cooperative_groups::this_grid().sync()` (`cooperative_groups/details/sync.h`
/// of CUDA 13), with one thread a block: in each of `count` rounds a block adds 1 to its value, syncs, and counts its
/// neighbour's value if that is the round's number.
const ROUNDS: &str = "
.version 7.0
.target sm_70
.address_size 64
.func sync(.reg .b64 %barrier)
{
    .reg .b32 %block, %blocks, %add, %old, %now;
    .reg .pred %first, %p;
    bar.sync 0;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    setp.eq.u32 %first, %block, 0;
    sub.u32 %add, -2147483647, %blocks;
    selp.b32 %add, %add, 1, %first;
    atom.add.release.gpu.u32 %old, [%barrier], %add;
look:
    ld.acquire.gpu.u32 %now, [%barrier];
    xor.b32 %now, %now, %old;
    setp.ge.s32 %p, %now, 0;
    @%p bra look;
    bar.sync 0;
    ret;
}
.visible .entry rounds(.param .u64 values, .param .u32 count)
{
    .reg .b32 %low, %high, %block, %blocks, %next, %round, %count, %value, %hits;
    .reg .b64 %values, %mine, %theirs, %space, %barrier;
    .reg .pred %p, %q;
    ld.param.u64 %values, [values];
    ld.param.u32 %count, [count];
    mov.u32 %high, %envreg1;
    mov.u32 %low, %envreg2;
    mov.b64 %space, {%low, %high};
    setp.eq.s64 %p, %space, 0;
    @%p trap;
    add.s64 %barrier, %space, 4;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mul.wide.u32 %mine, %block, 8;
    add.s64 %mine, %values, %mine;
    add.u32 %next, %block, 1;
    rem.u32 %next, %next, %blocks;
    mul.wide.u32 %theirs, %next, 8;
    add.s64 %theirs, %values, %theirs;
    mov.u32 %round, 0;
    mov.u32 %hits, 0;
again:
    setp.ge.u32 %p, %round, %count;
    @%p bra done;
    add.u32 %round, %round, 1;
    st.volatile.global.u32 [%mine], %round;
    call.uni sync, (%barrier);
    ld.volatile.global.u32 %value, [%theirs];
    setp.eq.u32 %q, %value, %round;
    @%q add.u32 %hits, %hits, 1;
    call.uni sync, (%barrier);
    bra again;
done:
    st.global.u32 [%mine+4], %hits;
    ret;
}
";

#[test]
fn a_grid_of_cooperative_groups_syncs() -> Result {
    let (_context, _gpu) = open()?;
    let module = good(Module::load(ROUNDS))?;
    let rounds = good(module.function("rounds"))?;
    let values = good(Buffer::new(8 * 32))?;
    for blocks in [1_u32, 2, 7, 32] {
        cuda::memset_d8(values.0, 0, 8 * 32);
        let (address, count) = (values.0, 5_u32);
        let mut pointers = [(&raw const address).cast::<u8>(), (&raw const count).cast()];
        let launch = call!(cuLaunchCooperativeKernel(
            rounds.0 => usize,
            blocks => c_uint, 1 => c_uint, 1 => c_uint,
            1 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, 0 => usize, pointers.as_mut_ptr() => *mut *const u8,
        ));
        good(launch)?;
        assert_eq!(device_words(values.0, 2 * blocks as usize), [5, 5].repeat(blocks as usize));
    }
    Ok(())
}
