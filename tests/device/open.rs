//! Handles: opening by number, by the current context and with the primary context; the GPU's properties.

use std::ptr::null_mut;

use support::codes;
use support::cuda::{Context, PrimaryContext, current, no_context};
use support::{Result, assert_says, child, driver, refused, simcuda, skip, vklayer};
use vkgdr::{Error, Memory, MemoryInfoSource, MemoryKind, OpenFlags, RawMemory, Vkgdr};

const NONE: OpenFlags = OpenFlags::empty();

/// A way to open device 0, and its name.
type Opener = (&'static str, fn(OpenFlags) -> vkgdr::Result<Vkgdr>);

/// The three ways to open while a context is current.
const OPENERS: [Opener; 3] = [
    ("open", |flags| Vkgdr::open(0, flags)),
    ("open_current_context", Vkgdr::open_current_context),
    ("open_primary_context", |flags| Vkgdr::open_primary_context(0, flags)),
];

#[test]
fn opening_initialises_cuda_and_needs_no_context() -> Result {
    if let Some(role) = child::role() {
        let (_, open) = OPENERS.iter().find(|(name, _)| *name == role).ok_or("an unknown role")?;
        assert_eq!((open(NONE)?.device(), current()), (0, null_mut()));
        child::say("opened");
        return Ok(());
    }
    for (name, _) in OPENERS.iter().filter(|(name, _)| *name != "open_current_context") {
        assert_eq!(child::run(child::command(name)?)?, ["opened"]);
    }
    Ok(())
}

#[test]
fn opening_leaves_the_stack_of_contexts_alone() -> Result {
    driver::initialise();
    let below = Context::create(0);
    let above = Context::create(0);
    for (name, open) in OPENERS {
        let gpu = open(NONE)?;
        assert_eq!(current(), above.raw(), "{name}");
        drop(gpu);
        assert_eq!(current(), above.raw(), "{name}, dropped");
    }
    // Pops the top of the stack, which must be this context, not one left behind.
    drop(above);
    assert_eq!(current(), below.raw());
    drop(below);
    assert_eq!(current(), null_mut());
    Ok(())
}

#[test]
fn a_failed_open_leaves_the_stack_of_contexts_alone_and_retains_none() {
    driver::initialise();
    let context = Context::create(0);
    let retains = || simcuda().map(|sim| sim.live_objects_of("primary"));
    let before = retains();
    let fail = || {
        let now = current();
        refused(Vkgdr::open(-1, NONE));
        refused(Vkgdr::open_primary_context(9999, NONE));
        refused(Vkgdr::open_primary_context(0, OpenFlags::from_bits_retain(8)));
        assert_eq!((current(), retains()), (now, before));
    };
    fail();
    no_context(|| {
        refused(Vkgdr::open_current_context(NONE));
        fail();
    });
    assert_eq!(current(), context.raw());
}

#[test]
fn the_current_context_says_which_device_to_open_whatever_the_number() -> Result {
    let _context = Context::create(0);
    let gpu = Vkgdr::open_current_context(NONE)?;
    assert_eq!((gpu.device(), gpu.uuid()), (0, Vkgdr::open(0, NONE)?.uuid()));
    assert!(gpu.flags().contains(OpenFlags::CURRENT_CONTEXT));
    for number in [-1, 9999, i32::MIN, i32::MAX] {
        assert_eq!(Vkgdr::open(number, OpenFlags::CURRENT_CONTEXT)?.device(), 0, "{number}");
        assert_eq!(Vkgdr::open_primary_context(number, OpenFlags::CURRENT_CONTEXT)?.device(), 0, "{number}");
    }
    Ok(())
}

#[test]
fn without_a_context_opening_the_current_one_is_invalid_context_and_says_what_to_do() -> Result {
    // The first of them initialises CUDA.
    child::afresh(|| {
        for error in [
            refused(Vkgdr::open_current_context(NONE)),
            refused(Vkgdr::open(0, OpenFlags::CURRENT_CONTEXT)),
            refused(Vkgdr::open_primary_context(0, OpenFlags::CURRENT_CONTEXT)),
        ] {
            assert_says(&error, &["cuCtxGetDevice failed", "CUDA_ERROR_INVALID_CONTEXT", "open_primary_context"]);
            assert_eq!(error.cuda_code(), Some(codes::INVALID_CONTEXT));
        }
        Ok(())
    })
}

#[test]
fn a_number_that_no_device_has_is_invalid_device() -> Result {
    // The first open initialises CUDA.
    child::afresh(|| {
        for number in [-1, 9999, i32::MIN, i32::MAX] {
            for error in [refused(Vkgdr::open(number, NONE)), refused(Vkgdr::open_primary_context(number, NONE))] {
                assert_says(&error, &["failed (CUDA_ERROR_INVALID_DEVICE)", "nvidia-smi"]);
                assert_eq!(error.cuda_code(), Some(101), "{number}");
            }
        }
        Ok(())
    })
}

#[test]
fn unknown_flags_are_refused_and_named() {
    let _context = Context::create(0);
    for bits in [8, 0x8000_0000, u32::MAX] {
        for (name, open) in OPENERS {
            let error = refused(open(OpenFlags::from_bits_retain(bits)));
            let unknown = bits & !OpenFlags::all().bits();
            assert!(matches!(error, Error::UnknownFlags { bits } if bits == unknown), "{name}: {error}");
            assert_says(&error, &["unknown flag bits", &format!("{unknown:#x}")]);
        }
    }
    // Before the device is looked for.
    let error = refused(Vkgdr::open(-1, OpenFlags::from_bits_retain(8)));
    assert!(matches!(error, Error::UnknownFlags { bits: 8 }), "{error}");
}

#[test]
fn a_second_open_shares_the_vulkan_device() -> Result {
    let _context = Context::create(0);
    let first = Vkgdr::open(0, NONE)?;
    let live = || vklayer().map(|layer| (layer.live_objects_of("instance"), layer.live_objects_of("device")));
    let before = live();
    let others = OPENERS.map(|(_, open)| open(OpenFlags::FORCE_NON_COHERENT));
    for other in others {
        assert_eq!(other?.uuid(), first.uuid());
    }
    drop(first);
    // Never destroyed: the next open uses it again.
    Vkgdr::open(0, NONE)?;
    assert_eq!(live(), before);
    assert!(before.is_none_or(|live| live == (1, 1)), "{before:?}");
    Ok(())
}

#[test]
fn a_gpu_has_a_name_and_a_uuid_and_a_clone_is_the_same_handle() -> Result {
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::FORCE_NON_COHERENT)?;
    assert!(!gpu.name().trim().is_empty() && format!("{gpu:?}").contains(gpu.name()), "{gpu:?}");
    assert_ne!(gpu.uuid(), [0; 16]);
    let clone = gpu.clone();
    drop(gpu);
    assert_eq!((clone.device(), clone.flags()), (0, OpenFlags::FORCE_NON_COHERENT));
    let memory = Memory::allocate(&clone, 4096, MemoryKind::Mapped)?;
    assert_eq!(memory.owner().uuid(), clone.uuid());
    Ok(())
}

#[test]
fn each_kind_has_plausible_numbers_or_is_refused_by_name() -> Result {
    let (_context, gpu) = support::open(NONE)?;
    for kind in MemoryKind::ALL {
        if !gpu.supports(kind) {
            for error in [
                refused(gpu.memory_info(kind)),
                refused(RawMemory::allocate(&gpu, 4096, kind)),
                refused(Memory::allocate(&gpu, 4096, kind)),
            ] {
                assert!(matches!(error, Error::NoSuitableMemoryType { .. }), "{error}");
                assert_says(&error, &["does not provide a suitable memory type", &format!("no {kind} memory")]);
            }
            continue;
        }
        let info = gpu.memory_info(kind)?;
        assert!((1 << 20..1 << 50).contains(&info.total), "{kind}: {info:?}");
        assert!((1..=info.total).contains(&info.available), "{kind}: {info:?}");
        if info.source == MemoryInfoSource::Heap {
            assert_eq!(info.available, info.total, "{kind}");
        }
    }
    assert!(gpu.supports(MemoryKind::Device), "a GPU without device memory");
    Ok(())
}

#[test]
fn coherence_is_as_the_flags_ask_and_agrees_with_the_atom() -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    let (forced, required) = (OpenFlags::FORCE_NON_COHERENT, OpenFlags::REQUIRE_COHERENT);
    for flags in [NONE, required, forced, forced | required] {
        let gpu = match Vkgdr::open(0, flags) {
            Ok(gpu) => gpu,
            Err(Error::NoSuitableMemoryType { .. }) if flags != NONE => {
                eprintln!("left out: this GPU has no coherent mapped memory");
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        for kind in support::supported(&gpu, &MemoryKind::ALL) {
            let memory = Memory::allocate(&gpu, 4096, kind)?;
            let (is_coherent, atom) = (memory.is_coherent(), memory.non_coherent_atom_size());
            assert!(atom.is_power_of_two() && (!is_coherent || atom == 1), "{kind}, {flags:?}: {atom}");
            if flags == required {
                assert!(is_coherent, "{kind}");
            }
            if flags.contains(forced) && kind.has_host_view() {
                assert!(!is_coherent, "{kind}, {flags:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_handle_opened_with_a_current_context_allocates_in_any_context_of_its_device() -> Result {
    let first = Context::create(0);
    let gpu = Vkgdr::open_current_context(NONE)?;
    drop(first);
    let second = Context::create(0);
    let memory = Memory::allocate(&gpu, 4096, MemoryKind::Mapped)?;
    assert_eq!(memory.context(), second.raw());
    Ok(())
}

#[test]
fn under_validation_the_instance_is_validated() -> Result {
    if std::env::var_os("VKGDR_TEST_LAYERS").is_none_or(|layers| layers != "validation") {
        return skip("this run is without validation");
    }
    let _gpu = Vkgdr::open(0, NONE)?;
    let layer = vklayer().ok_or("the test layers are missing")?;
    assert_eq!((layer.validated_instances(), layer.messengers_active()), (1, 1));
    Ok(())
}
