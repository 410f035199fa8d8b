//! `malloc` and `free` in kernels.

use support::cuda::{self, Context};
use support::{codes, simulated};

use crate::driver::{Buffer, Module, Shape, call, given, synchronize};
use crate::{Result, assert_says, device_words, good};

/// `keep` stores a list of its arguments' squares in memory of its own, and the list's address; `sum` adds up and frees
/// the list; `count` counts how many blocks of a size fit.
const SOURCE: &str = "
.version 7.4
.target sm_70
.address_size 64
.extern .func (.param .b64 func_retval0) malloc (.param .b64 malloc_param_0);
.extern .func free (.param .b64 free_param_0);

.func (.param .b64 result) allocate(.param .b64 bytes)
{
    .reg .b64 %x;
    ld.param.u64 %x, [bytes];
    {
        .param .b64 param0;
        .param .b64 retval0;
        st.param.b64 [param0], %x;
        call.uni (retval0), malloc, (param0);
        ld.param.b64 %x, [retval0];
    }
    st.param.u64 [result], %x;
    ret;
}

.func release(.param .b64 address)
{
    .reg .b64 %x;
    ld.param.u64 %x, [address];
    {
        .param .b64 param0;
        st.param.b64 [param0], %x;
        call.uni free, (param0);
    }
    ret;
}

.visible .entry keep(.param .u64 out)
{
    .reg .b64 %out, %list, %at; .reg .b32 %t, %i, %x; .reg .pred %p;
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %at, %t, 8;
    add.u64 %out, %out, %at;
    mov.u64 %at, 64;
    call (%list), allocate, (%at);
    st.global.u64 [%out], %list;
    mov.u32 %i, 0;
next:
    mad.lo.u32 %x, %i, %i, %t;
    st.u32 [%list], %x;
    add.u64 %list, %list, 4;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 16;
    @%p bra next;
    ret;
}

.visible .entry sum(.param .u64 lists, .param .u64 out)
{
    .reg .b64 %lists, %out, %list, %at; .reg .b32 %t, %i, %x, %y; .reg .pred %p;
    ld.param.u64 %lists, [lists];
    ld.param.u64 %out, [out];
    mov.u32 %t, %tid.x;
    mul.wide.u32 %at, %t, 8;
    add.u64 %lists, %lists, %at;
    ld.global.u64 %list, [%lists];
    mul.wide.u32 %at, %t, 4;
    add.u64 %out, %out, %at;
    mov.u64 %at, %list;
    mov.u32 %i, 0;
    mov.u32 %x, 0;
next:
    ld.u32 %y, [%at];
    add.u32 %x, %x, %y;
    add.u64 %at, %at, 4;
    add.u32 %i, %i, 1;
    setp.lt.u32 %p, %i, 16;
    @%p bra next;
    st.global.u32 [%out], %x;
    call release, (%list);
    mov.u64 %at, 0;
    call release, (%at);
    ret;
}

.visible .entry count(.param .u64 bytes, .param .u64 out)
{
    .reg .b64 %bytes, %out, %a, %last; .reg .b32 %n; .reg .pred %p;
    ld.param.u64 %bytes, [bytes];
    ld.param.u64 %out, [out];
    mov.u32 %n, 0;
next:
    call (%a), allocate, (%bytes);
    setp.eq.u64 %p, %a, 0;
    @%p bra full;
    add.u32 %n, %n, 1;
    mov.u64 %last, %a;
    bra next;
full:
    st.global.u32 [%out], %n;
    call release, (%last);
    call (%a), allocate, (%bytes);
    setp.eq.u64 %p, %a, 0;
    selp.u32 %n, 0, 1, %p;
    st.global.u32 [%out+4], %n;
    ret;
}

.visible .entry again(.param .u64 address)
{
    .reg .b64 %a;
    ld.param.u64 %a, [address];
    call release, (%a);
    ret;
}

.visible .entry read(.param .u64 address)
{
    .reg .b64 %a; .reg .b32 %x;
    ld.param.u64 %a, [address];
    ld.u32 %x, [%a];
    ret;
}
";

/// CU_LIMIT_MALLOC_HEAP_SIZE
const HEAP_SIZE: u32 = 2;

fn set_heap(bytes: usize) -> Result {
    good(call!(cuCtxSetLimit(HEAP_SIZE => u32, bytes => usize)))?;
    let limit = good(given(|out| call!(cuCtxGetLimit(out => *mut usize, HEAP_SIZE => u32))))?;
    assert!(limit >= bytes, "{limit}");
    Ok(())
}

/// 64 threads' lists, as addresses in a buffer.
fn kept(module: &Module) -> Result<Buffer> {
    let lists = good(Buffer::new(64 * 8))?;
    good(good(module.function("keep"))?.launch(Shape::block(64), 0, &[lists.0]))?;
    good(synchronize(0))?;
    Ok(lists)
}

fn first(lists: &Buffer) -> u64 {
    let mut bytes = [0; 8];
    cuda::memcpy_dtoh(&mut bytes, lists.0);
    u64::from_ne_bytes(bytes)
}

#[test]
fn memory_of_one_kernel_is_there_for_the_next() -> Result {
    let _context = Context::create(0);
    let module = good(Module::load(SOURCE))?;
    let lists = kept(&module)?;
    assert_eq!(first(&lists) % 16, 0);
    let sums = good(Buffer::new(64 * 4))?;
    good(good(module.function("sum"))?.launch(Shape::block(64), 0, &[lists.0, sums.0]))?;
    good(synchronize(0))?;
    let expected: Vec<u32> = (0..64).map(|t| (0..16).map(|i| i * i + t).sum()).collect();
    assert_eq!(device_words(sums.0, 64), expected);
    Ok(())
}

#[test]
fn a_full_heap_gives_null_until_memory_is_freed() -> Result {
    let _context = Context::create(0);
    set_heap(16 << 20)?;
    let module = good(Module::load(SOURCE))?;
    let out = good(Buffer::new(8))?;
    good(good(module.function("count"))?.launch(Shape::ONE, 0, &[1 << 20, out.0]))?;
    good(synchronize(0))?;
    let words = device_words(out.0, 2);
    assert!((8..=17).contains(&words[0]), "{words:?}");
    assert_eq!(words[1], 1, "a freed block is there again");
    Ok(())
}

#[test]
fn the_heap_has_the_size_of_the_limit() -> Result {
    simulated!("a GPU's heap has a least size");
    // Each block takes 64 bytes beside its own.
    for (bytes, count) in [(4096, 0), (1024, 3), (1, 40), (0, 0)] {
        let _context = Context::create(0);
        set_heap(3 * (1024 + 64))?;
        let module = good(Module::load(SOURCE))?;
        let out = good(Buffer::new(8))?;
        good(good(module.function("count"))?.launch(Shape::ONE, 0, &[bytes, out.0]))?;
        good(synchronize(0))?;
        assert_eq!(device_words(out.0, 2), [count, u32::from(count > 0)], "{bytes} bytes");
    }
    Ok(())
}

#[test]
fn wrong_uses_of_the_heap_are_named() -> Result {
    let sim = simulated!("only the simulated driver reports a kernel's fault");
    for (kernel, says) in [("again", "no live block of the kernel's heap"), ("read", "which were freed")] {
        let _context = Context::create(0);
        let module = good(Module::load(SOURCE))?;
        let lists = kept(&module)?;
        let sums = good(Buffer::new(64 * 4))?;
        good(good(module.function("sum"))?.launch(Shape::block(64), 0, &[lists.0, sums.0]))?;
        good(synchronize(0))?;
        sim.clear_faults();
        let address = first(&lists);
        good(good(module.function(kernel))?.launch(Shape::ONE, 0, &[address]))?;
        assert_eq!(synchronize(0), Err(codes::ILLEGAL_ADDRESS));
        let text = sim.last_kernel_fault().ok_or("no message")?;
        assert_says(&text, &[kernel, says]);
    }
    Ok(())
}

#[test]
fn the_driver_does_not_free_memory_of_a_kernel() -> Result {
    let _context = Context::create(0);
    let module = good(Module::load(SOURCE))?;
    let address = first(&kept(&module)?);
    assert_eq!(call!(cuMemFree_v2(address => u64)), Err(codes::INVALID_VALUE));
    Ok(())
}
