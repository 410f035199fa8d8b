//! The barrier of a whole grid, and how many blocks it may have.

use std::ffi::c_uint;

use cudarc::driver::sys::CUjitInputType;
use support::{codes, cuda, simulated};

use crate::driver::{Buffer, Module, Shape, call};
use crate::libraries::link;
use crate::{Result, child, device_words, good, open};

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
    let _context = open();
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

/// `both(values)`: each of two threads of a block adds 1 to its value, syncs the grid by the device runtime, as numba's
/// `grid.sync()` does, and adds the value of the last thread of the grid to its own.
const BY_RUNTIME: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b64 func_retval0) cudaCGGetIntrinsicHandle (.param .b32 cudaCGGetIntrinsicHandle_param_0);
.extern .func (.param .b32 func_retval0) cudaCGSynchronize
(.param .b64 cudaCGSynchronize_param_0, .param .b32 cudaCGSynchronize_param_1);
.visible .entry both(.param .u64 values)
{
    .reg .b32 %thread, %block, %last, %value, %result;
    .reg .b64 %values, %mine, %handle;
    ld.param.u64 %values, [values];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mad.lo.u32 %thread, %block, 2, %thread;
    mul.wide.u32 %mine, %thread, 4;
    add.s64 %mine, %values, %mine;
    add.u32 %value, %thread, 1;
    st.volatile.global.u32 [%mine], %value;
    {
    .param .b32 param0;
    st.param.b32 [param0+0], 1;
    .param .b64 retval0;
    call.uni (retval0), cudaCGGetIntrinsicHandle, (param0);
    ld.param.b64 %handle, [retval0+0];
    }
    {
    .param .b64 param0;
    .param .b32 param1;
    st.param.b64 [param0+0], %handle;
    st.param.b32 [param1+0], 0;
    .param .b32 retval0;
    call.uni (retval0), cudaCGSynchronize, (param0, param1);
    ld.param.b32 %result, [retval0+0];
    }
    mov.u32 %last, %nctaid.x;
    mul.wide.u32 %mine, %last, 8;
    add.s64 %values, %values, %mine;
    ld.volatile.global.u32 %last, [%values+-4];
    mad.lo.u32 %result, %result, 1000, %last;
    mul.wide.u32 %mine, %thread, 4;
    add.s64 %mine, %values, %mine;
    st.global.u32 [%mine], %result;
    ret;
}
";

#[test]
fn the_linker_takes_the_device_runtime() -> Result {
    const PTX: c_uint = CUjitInputType::CU_JIT_INPUT_PTX as c_uint;
    const LIBRARY: c_uint = CUjitInputType::CU_JIT_INPUT_LIBRARY as c_uint;
    simulated!("the library is a part of CUDA's toolkit");
    let _context = open();
    let text = [BY_RUNTIME.as_bytes(), b"\0"].concat();
    assert_eq!(link(&[(PTX, &text)]), Err(codes::INVALID_PTX), "the functions are not defined");
    assert_eq!(link(&[(PTX, &text), (LIBRARY, b"!<arch>\nanother")]), Err(codes::NO_BINARY_FOR_GPU));
    let library: (c_uint, &[u8]) = (LIBRARY, b"!<arch>\n... cuda_device_runtime.o ...");
    for inputs in [vec![(PTX, &*text), library], vec![library, (PTX, &text), library]] {
        let module = good(Module::load_image(&good(link(&inputs))?))?;
        let both = good(module.function("both"))?;
        let values = good(Buffer::new(8 * 4 * 9))?;
        for blocks in [1_u32, 4, 9] {
            let address = values.0;
            let mut pointers = [(&raw const address).cast::<u8>()];
            let launch = call!(cuLaunchCooperativeKernel(
                both.0 => usize,
                blocks => c_uint, 1 => c_uint, 1 => c_uint,
                2 => c_uint, 1 => c_uint, 1 => c_uint,
                0 => c_uint, 0 => usize, pointers.as_mut_ptr() => *mut *const u8,
            ));
            good(launch)?;
            let threads = 2 * blocks as usize;
            assert_eq!(device_words(values.0, 2 * threads)[threads..], vec![2 * blocks; threads]);
        }
        // Not cooperative: the runtime answers cudaErrorInvalidValue.
        good(both.launch(Shape::block(2), 0, &[values.0]))?;
        assert!(device_words(values.0, 4)[2..].iter().all(|value| *value >= 1000));
    }
    Ok(())
}

#[test]
fn a_cooperative_launch_that_needs_too_much_memory_is_refused_with_its_numbers() -> Result {
    // 16 KiB of local memory for each thread, and little else: 16 MiB a block.
    const LARGE: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry large() {\n\
                         .local .b8 bytes[16384];\n.reg .b32 %r;\nst.local.u32 [bytes], 1;\nld.local.u32 %r, [bytes];\nret;\n}\n";
    simulated!("a GPU runs it");
    if child::role().is_none() {
        let lines = child::simulator_lines("cooperative", "0")?;
        let [line] = &lines[..] else { return Err(format!("not one line: {lines:?}").into()) };
        let start =
            "simcuda: a cooperative launch of 200 blocks of kernel large is not simulated: there is memory for ";
        let most = line.strip_prefix(start).and_then(|rest| rest.strip_suffix(" at once: CUDA_ERROR_NOT_SUPPORTED"));
        assert!(most.is_some_and(|most| (50..=64).contains(&most.parse().unwrap_or(0))), "{line}");
        return Ok(());
    }
    let _context = open();
    let module = good(Module::load(LARGE))?;
    let large = good(module.function("large"))?;
    let launch = |blocks: u32| {
        call!(cuLaunchCooperativeKernel(
            large.0 => usize,
            blocks => c_uint, 1 => c_uint, 1 => c_uint,
            1024 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, 0 => usize, std::ptr::null() => *const *const u8,
        ))
    };
    good(launch(40))?;
    assert_eq!(launch(200), Err(codes::NOT_SUPPORTED));
    Ok(())
}
