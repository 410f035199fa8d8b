//! The simulator's own rules, tested through Vulkan and CUDA: what may be imported, and what ends a process that does it.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;

use support::cuda::PrimaryContext;
use support::profile::{command, under};
use support::{Result, child, skip};
use vkgdr::ash::vk;
use vkgdr::cudarc::driver::sys::CUresult;

use crate::raw::{Raw, import_into_cuda};

/// Indices of memory types of the profile `rebar`, and of those like it.
const SYSTEM: u32 = 3;
const VIDEO: u32 = 4;
const SIZE: u64 = 64 << 10;
const ALL: u64 = vk::WHOLE_SIZE;
const NO_BUFFER: vk::Buffer = vk::Buffer::null();

/// NVIDIA's driver imports system memory, and the device does not see what the CPU stores afterwards.
#[test]
fn drivers_import_memory_of_their_own_gpu_and_cuda_imports_no_system_memory() -> Result {
    under("two-gpus", || {
        let gpus = [Raw::open(0)?, Raw::open(1)?];
        let new = |raw: &Raw, of| -> Result<OwnedFd> { raw.export(raw.allocate_to_export(of, SIZE, NO_BUFFER)?) };
        for (number, context) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let (_context, same) = (PrimaryContext::retain_and_push(context), number == context);
            let expected = if same { CUresult::CUDA_SUCCESS } else { CUresult::CUDA_ERROR_INVALID_VALUE };
            let (from, to) = (&gpus[usize::try_from(number)?], &gpus[usize::try_from(context)?]);
            assert_eq!(import_into_cuda(new(from, VIDEO)?, SIZE), expected, "from {number} to {context}");
            let imported = to.import(new(from, VIDEO)?, VIDEO, SIZE, false);
            assert_eq!(imported.err(), (!same).then_some(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE));
        }
        let _context = PrimaryContext::retain_and_push(0);
        assert_eq!(import_into_cuda(new(&gpus[0], SYSTEM)?, SIZE), CUresult::CUDA_ERROR_NOT_SUPPORTED);
        Ok(())
    })
}

#[test]
fn an_import_that_may_be_exported_is_other_memory() -> Result {
    if std::env::var_os("VKGDR_TEST_LAYERS").is_some_and(|layers| layers == "validation") {
        return skip("the validation layer ends a process that attempts this");
    }
    under("rebar", || {
        let raw = Raw::open(0)?;
        let original = raw.allocate_to_export(VIDEO, SIZE, NO_BUFFER)?;
        let mapping = raw.map(original, 0, ALL)?;
        for (exportable, same) in [(false, true), (true, false)] {
            let imported = raw.map(raw.import(raw.export(original)?, VIDEO, SIZE, exportable)?, 0, ALL)?;
            // SAFETY: both are mapped, and nothing else uses them.
            unsafe { mapping.write_volatile(7 + u8::from(same)) };
            // SAFETY: as above.
            let seen = unsafe { imported.read_volatile() };
            assert_eq!(seen == 7 + u8::from(same), same, "exportable: {exportable}");
        }
        Ok(())
    })
}

/// Flushes a range of a mapping of bytes 256..1000, after all that may be flushed.
fn flush(raw: &Raw, offset: u64, size: u64) -> Result {
    let memory = raw.allocate(VIDEO, 1000)?;
    raw.map(memory, 256, 744)?;
    for (offset, size) in [(256, 256), (256, 744), (512, 488), (768, 232), (256, ALL), (768, ALL)] {
        raw.flush(memory, offset, size)?;
    }
    raw.flush(memory, offset, size)
}

/// A rule of Vulkan by the last part of its name, a profile that has it, and what breaks it.
type Rule = (&'static str, &'static str, fn(&Raw) -> Result);
/// The second and the last two had other numbers in earlier versions of Vulkan.
const RULES: [Rule; 10] = [
    ("handleType-00671", "rebar", |raw| raw.export(raw.allocate(VIDEO, SIZE)?).map(drop)),
    ("buffer-0", "rebar", |raw| {
        let (buffer, size) = raw.shared_buffer(SIZE)?;
        raw.allocate_to_export(VIDEO, size + 64, buffer).map(drop)
    }),
    ("offset-00687", "non-coherent", |raw| flush(raw, 300, 256)),
    ("offset-00687", "non-coherent", |raw| flush(raw, 300, ALL)),
    ("size-01390", "non-coherent", |raw| flush(raw, 256, 100)),
    ("size-00685", "non-coherent", |raw| flush(raw, 512, 512)),
    ("size-00685", "non-coherent", |raw| flush(raw, 0, 256)),
    ("size-00686", "non-coherent", |raw| flush(raw, 0, ALL)),
    ("size-00681", "non-coherent", |raw| raw.map(raw.allocate(VIDEO, 1000)?, 256, 1000).map(drop)),
    ("allocationSize-0", "non-coherent", |raw| raw.allocate(VIDEO, 0).map(drop)),
];

#[test]
fn what_breaks_vulkans_rules_ends_the_process_with_the_rule() -> Result {
    if let Some(role) = child::role() {
        let raw = Raw::open(0)?;
        eprintln!("now");
        return RULES[role.parse::<usize>()?].2(&raw);
    }
    for (index, (rule, profile, _)) in RULES.into_iter().enumerate() {
        let Some(mut command) = command(profile, &index.to_string())? else { return Ok(()) };
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{index}, {rule}: {errors}");
        assert!(errors.rsplit("now\n").next().is_some_and(|end| end.contains(rule)), "{index}, {rule}: {errors}");
    }
    Ok(())
}
