//! Memory beside running kernels: writes that both sides see meanwhile, and calls that do not wait for a kernel.
#![expect(unsafe_code, reason = "launches kernels")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::cuda::{self, CudaMemory};
use support::ledger::Calls;
use support::{Result, child, device_read, host_read, profile, simcuda, supported};
use vkgdr::cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, LaunchConfig, PushKernelArg, sys};
use vkgdr::cudarc::nvrtc::Ptx;
use vkgdr::{CopyPolicy, Memory, MemoryKind, OpenFlags};

/// `wait_for(flag)` returns when the flag is 1; `answer(flag, reply, rounds)` sets the reply to each of 1 to `rounds` once the
/// flag has that number; `add_one(values, n)` adds 1 to each word.
const KERNELS: &str = "
.version 6.3
.target sm_50
.address_size 64
.visible .entry wait_for(.param .u64 flag)
{
    .reg .u64 %flag;
    .reg .u32 %seen;
    .reg .pred %more;
    ld.param.u64 %flag, [flag];
look:
    ld.volatile.global.u32 %seen, [%flag];
    setp.ne.u32 %more, %seen, 1;
    @%more bra look;
    ret;
}
.visible .entry answer(.param .u64 flag, .param .u64 reply, .param .u32 rounds)
{
    .reg .u64 %flag, %reply;
    .reg .u32 %rounds, %round, %seen;
    .reg .pred %more, %end;
    ld.param.u64 %flag, [flag];
    ld.param.u64 %reply, [reply];
    ld.param.u32 %rounds, [rounds];
    mov.u32 %round, 1;
next:
    setp.gt.u32 %end, %round, %rounds;
    @%end ret;
look:
    ld.volatile.global.u32 %seen, [%flag];
    setp.ne.u32 %more, %seen, %round;
    @%more bra look;
    st.volatile.global.u32 [%reply], %round;
    membar.sys;
    add.u32 %round, %round, 1;
    bra next;
}
.visible .entry add_one(.param .u64 values, .param .u32 n)
{
    .reg .u64 %values, %offset;
    .reg .u32 %n, %i, %block, %threads, %value;
    .reg .pred %beyond;
    ld.param.u64 %values, [values];
    ld.param.u32 %n, [n];
    mov.u32 %block, %ctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %i, %tid.x;
    mad.lo.u32 %i, %block, %threads, %i;
    setp.ge.u32 %beyond, %i, %n;
    @%beyond ret;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %values, %values, %offset;
    ld.global.u32 %value, [%values];
    add.u32 %value, %value, 1;
    st.global.u32 [%values], %value;
    ret;
}
";

const ONE: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };

/// The kernels, loaded, and a stream.
struct Setup {
    module: Arc<CudaModule>,
    stream: Arc<CudaStream>,
}

impl Setup {
    fn new() -> Result<Self> {
        support::blocking::take_turn();
        let context = CudaContext::new(0)?;
        Ok(Self { module: context.load_module(Ptx::from_src(KERNELS))?, stream: context.new_stream()? })
    }

    fn function(&self, name: &str) -> Result<CudaFunction> {
        Ok(self.module.load_function(name)?)
    }

    fn add_one(&self, address: u64, n: u32) -> Result {
        let function = self.function("add_one")?;
        let mut launch = self.stream.launch_builder(&function);
        launch.arg(&address).arg(&n);
        // SAFETY: the kernel takes an address of `n` words and `n`.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n)) }?;
        self.stream.synchronize()?;
        Ok(())
    }

    /// Starts a kernel that waits for the CPU.
    fn wait(&self) -> Result<Waiting<'_>> {
        let flag = CudaMemory::host(4);
        cuda::memset_d8(flag.address(), 0, 4);
        cuda::synchronize();
        let (function, address) = (self.function("wait_for")?, flag.address());
        let mut launch = self.stream.launch_builder(&function);
        launch.arg(&address);
        // SAFETY: the kernel takes the address of a word, which outlives it.
        unsafe { launch.launch(ONE) }?;
        Ok(Waiting { flag, stream: &self.stream })
    }
}

/// A kernel that waits for the CPU.
struct Waiting<'a> {
    flag: CudaMemory,
    stream: &'a CudaStream,
}

impl Waiting<'_> {
    fn is_running(&self) -> bool {
        // SAFETY: a live stream.
        let code = unsafe { sys::cuStreamQuery(self.stream.cu_stream()) };
        code == sys::CUresult::CUDA_ERROR_NOT_READY
    }

    /// Lets the kernel go on.
    fn release(&self) -> Result {
        let address = std::ptr::with_exposed_provenance_mut(usize::try_from(self.flag.address())?);
        // SAFETY: a word of page-locked memory, whose address is the same for the CPU.
        unsafe { AtomicU32::from_ptr(address) }.store(1, Ordering::Release);
        Ok(())
    }

    fn finish(self) -> Result {
        self.release()?;
        self.stream.synchronize()?;
        Ok(())
    }
}

#[test]
fn a_kernel_changes_memory_of_every_kind_as_the_cpu_would() -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let setup = Setup::new()?;
    for kind in supported(&gpu, &MemoryKind::ALL) {
        for n in [1_u32, 127, 128, 129, 5000] {
            let words: Vec<u32> = (0..n + 3).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
            let memory = Memory::allocate(&gpu, words.len() * 4, kind)?;
            cuda::memcpy_htod(memory.device_ptr(), bytemuck::cast_slice(&words));
            // A part goes to the kernel by its own address.
            setup.add_one(memory.slice(4..)?.device_ptr(), n)?;
            let changed: Vec<u32> =
                words.iter().zip(0..).map(|(word, i)| word.wrapping_add(u32::from((1..=n).contains(&i)))).collect();
            let expected: &[u8] = bytemuck::cast_slice(&changed);
            assert!(device_read(memory.device_ptr(), expected.len()) == expected, "{kind}, {n} threads, by a copy");
            if kind.has_host_view() {
                assert!(host_read(&memory, 0, expected.len())? == expected, "{kind}, {n} threads, by the CPU");
            }
        }
    }
    Ok(())
}

/// The CPU writes through the library's host pointer, and a running kernel answers in memory of another kind.
fn ping_pong(flag_kind: MemoryKind, reply_kind: MemoryKind, rounds: u32) -> Result {
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let setup = Setup::new()?;
    let (flag, reply) = (Memory::allocate(&gpu, 4096, flag_kind)?, Memory::allocate(&gpu, 4096, reply_kind)?);
    for memory in [&flag, &reply] {
        memory.write(0, &[0_u32])?;
        memory.flush(..4)?;
    }
    let function = setup.function("answer")?;
    let (flag_address, reply_address) = (flag.device_ptr(), reply.device_ptr());
    let mut launch = setup.stream.launch_builder(&function);
    launch.arg(&flag_address).arg(&reply_address).arg(&rounds);
    // SAFETY: the kernel takes the addresses of two words and a number, and the memory outlives it.
    unsafe { launch.launch(ONE) }?;
    let start = Instant::now();
    for round in 1..=rounds {
        flag.write(0, &[round])?;
        flag.flush(..4)?;
        let mut seen = [0_u32];
        while seen[0] != round {
            assert!(start.elapsed() < Duration::from_secs(50), "no answer to round {round}: {}", seen[0]);
            reply.invalidate(..4)?;
            reply.read(0, &mut seen)?;
            thread::yield_now();
        }
    }
    setup.stream.synchronize()?;
    Ok(())
}

#[test]
fn a_running_kernel_answers_in_one_kind_of_memory_what_the_cpu_writes_into_another() -> Result {
    ping_pong(MemoryKind::Mapped, MemoryKind::Host, 200)?;
    ping_pong(MemoryKind::Host, MemoryKind::Mapped, 200)
}

/// Copies long enough for the copy engine, by default thresholds, of memory that the CPU does not cache, while a kernel waits
/// for the CPU.
fn copy_beside_a_kernel(prepared: bool) -> Result {
    const LEN: usize = 4 << 20;
    let (_primary, gpu) = support::open(OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, LEN, MemoryKind::Mapped)?;
    if prepared {
        gpu.prepare_copies()?;
    }
    let setup = Setup::new()?;
    let (bytes, mut seen) = (vec![7_u8; LEN], vec![0_u8; LEN]);
    let waiting = setup.wait()?;
    let by_engine = Calls::of("cuMemcpyDtoHAsync");
    memory.write_with(CopyPolicy::Auto, 0, &bytes)?;
    memory.read_with(CopyPolicy::Auto, 0, &mut seen)?;
    memory.fill(.., 9_u8)?;
    assert!(waiting.is_running(), "the kernel waits for the CPU");
    waiting.finish()?;
    assert!(seen == bytes && host_read(&memory, 0, LEN)? == [9; LEN]);
    child::say(if by_engine.count() > Some(0) { "by the copy engine" } else { "by the CPU" });
    Ok(())
}

/// If a copy waits for the kernel, the test runner's time limit ends the test.
#[test]
fn large_copies_do_not_wait_for_a_kernel_that_waits_for_the_cpu() -> Result {
    if let Some(role) = child::role() {
        return copy_beside_a_kernel(role == "prepared");
    }
    if simcuda().is_none() {
        return support::skip("counts calls of the simulated driver");
    }
    for (role, expected) in [("plain", "by the CPU"), ("prepared", "by the copy engine")] {
        let Some(command) = profile::command("rebar", role)? else { return Ok(()) };
        assert_eq!(child::run(command)?, [expected], "{role}");
    }
    Ok(())
}
