//! Valid and invalid module images: error codes, and reasons in the log.

use std::ffi::{c_char, c_uint};

use crate::driver::{Call, Module, Shape, c_string, call, given, synchronize};
use crate::{KERNELS, Result, assert_says, child, good, open};
use support::{codes, simcuda, simulated};

const UNSUPPORTED_PTX_VERSION: i32 = 222;

/// A module of one kernel with this body.
fn with_body(body: &str) -> String {
    format!(".version 6.3\n.target sm_50\n.address_size 64\n.visible .entry one()\n{{\n{body}\n    ret;\n}}\n")
}

fn load_image(image: &[u8]) -> Call {
    Module::load_image(image)?.unload()
}

#[test]
fn an_instruction_that_is_not_supported_fails_the_load_with_its_name_and_line() -> Result {
    simulated!("a GPU supports it");
    let _context = open();
    // On the seventh line.
    let text = with_body("    .reg .b32 %r<4>;\n    sured.b.1d.add.u32.trap [%r0, {%r1}], %r2;");
    let (result, log) = Module::load_with_log(&text);
    assert_eq!(result.map(drop), Err(codes::INVALID_PTX));
    assert_says(&log, &["line 7", "sured.b.1d.add.u32.trap", "not supported"]);
    assert_eq!(simcuda().map(|sim| sim.live_objects_of("module")), Some(0));
    Ok(())
}

#[test]
fn a_kernel_that_is_not_supported_is_refused_at_its_launch_beside_others() -> Result {
    simulated!("a GPU supports it");
    if child::role().is_none() {
        let line = "simcuda: kernel two cannot be launched: line 10: 'foo.bar': instruction is not supported: \
                    CUDA_ERROR_NOT_SUPPORTED";
        assert_eq!(child::simulator_lines("launches", "0")?, [line]);
        return Ok(());
    }
    let _context = open();
    let text = format!("{}.visible .entry two() {{\nfoo.bar;\n}}\n", with_body(""));
    let module = good(Module::load(&text))?;
    assert_eq!(good(module.function("two"))?.launch(Shape::ONE, 0, &[]), Err(codes::NOT_SUPPORTED));
    good(good(module.function("one"))?.launch(Shape::ONE, 0, &[]))?;
    good(synchronize(0))
}

#[test]
fn ptx_that_is_wrong_fails_the_load_and_the_log_says_where() -> Result {
    let _context = open();
    for body in ["    add.u32 %r0, %r1, %r2;", "    nonsense;", "    bra nowhere;", "    .reg .u32 %r0"] {
        let (result, log) = Module::load_with_log(&with_body(body));
        assert_eq!(result.map(drop), Err(codes::INVALID_PTX), "{body}");
        assert!(log.contains("line"), "{body}: {log:?}");
    }
    let (good_module, log) = Module::load_with_log(KERNELS);
    good(good_module)?;
    assert_eq!(log, "");
    Ok(())
}

#[test]
fn ptx_for_newer_drivers_and_for_newer_gpus_is_refused() -> Result {
    let _context = open();
    let newer = with_body("").replace(".version 6.3", ".version 99.0");
    assert_eq!(Module::load(&newer).map(drop), Err(codes::UNSUPPORTED_PTX_VERSION));
    if simcuda().is_some() {
        let (result, log) = Module::load_with_log(&with_body("").replace("sm_50", "sm_90"));
        assert_eq!(result.map(drop), Err(codes::INVALID_PTX));
        assert_says(&log, &["sm_90", "80"]);
    }
    Ok(())
}

#[test]
fn data_without_code_is_an_invalid_image() -> Result {
    let _context = open();
    let mut module = 0;
    let null = call!(cuModuleLoadData(&raw mut module => *mut usize, 0 => usize));
    assert_eq!(null, Err(codes::INVALID_VALUE));
    if simcuda().is_none() {
        eprintln!("left out: a real driver returns other codes for such data");
        return Ok(());
    }
    for image in [&b"\0"[..], b"hello\0", b"\x7fEL\0", b"\xb1\x43\x62\0"] {
        assert_eq!(load_image(image), Err(codes::INVALID_IMAGE), "{image:?}");
    }
    Ok(())
}

#[test]
fn compiled_code_is_refused_with_a_hint() -> Result {
    simulated!("a GPU runs compiled code");
    let _context = open();
    let (result, log) = Module::load_with_log("\u{7f}ELF is how a cubin starts");
    assert_eq!(result.map(drop), Err(codes::NO_BINARY_FOR_GPU));
    assert_says(&log, &["a cubin", "--ptx"]);
    assert_eq!(load_image(b"\xedCN\x7f as NVRTC begins it\0"), Err(codes::NO_BINARY_FOR_GPU), "LTO-IR");
    Ok(())
}

/// A fat binary with one entry.
fn fat_binary(kind: u16, flags: u64, payload: &[u8]) -> Vec<u8> {
    let payload_len = payload.len() as u64;
    let mut entry = Vec::new();
    entry.extend(kind.to_le_bytes());
    entry.extend(0x101_u16.to_le_bytes());
    entry.extend(64_u32.to_le_bytes());
    entry.extend(payload_len.to_le_bytes());
    entry.resize(40, 0);
    entry.extend(flags.to_le_bytes());
    entry.resize(64, 0);
    entry.extend(payload);
    let mut image = 0xba55_ed50_u32.to_le_bytes().to_vec();
    image.extend(1_u16.to_le_bytes());
    image.extend(16_u16.to_le_bytes());
    image.extend((entry.len() as u64).to_le_bytes());
    image.extend(entry);
    image
}

#[test]
fn of_the_ptx_of_a_fat_binary_the_newest_that_fits_is_used() -> Result {
    simulated!("the image is synthetic, and a real driver may check more of it");
    let _context = open();
    // An entry's offset in the image is 16, and its target's in the entry 28.
    let entry = |target: u8| {
        let text = format!(
            ".version 9.0\n.target sm_{target}\n.address_size 64\n.visible .entry of_{target}() {{ ret; }}\n\0"
        );
        let mut entry = fat_binary(1, 0x11, text.as_bytes()).split_off(16);
        entry[28] = target;
        entry
    };
    let image_of = |targets: [u8; 3]| {
        let entries = targets.map(entry).concat();
        let mut image = fat_binary(1, 0x11, &[])[..16].to_vec();
        image[8..].copy_from_slice(&(entries.len() as u64).to_le_bytes());
        image.extend(entries);
        image
    };
    for (targets, used) in [([75, 80, 90], "of_80"), ([90, 80, 75], "of_80"), ([90, 75, 75], "of_75")] {
        let module = good(Module::load_image(&image_of(targets)))?;
        good(good(module.function(used))?.launch(Shape::ONE, 0, &[]))?;
    }
    assert_eq!(load_image(&image_of([100, 90, 120])), Err(codes::NO_BINARY_FOR_GPU));
    Ok(())
}

#[test]
fn fat_binaries_within_a_fat_binary_are_refused_however_many() -> Result {
    simulated!("the image is synthetic, and a real driver may check more of it");
    let _context = open();
    let text = b".version 7.4\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n\0";
    let mut image = fat_binary(1, 0x11, text);
    good(load_image(&image))?;
    for depth in [1, 2000] {
        (0..depth).for_each(|_| image = fat_binary(1, 0x11, &image));
        assert_eq!(load_image(&image), Err(codes::INVALID_IMAGE), "{depth}");
    }
    Ok(())
}

/// The wrapper that nvcc puts around a fat binary: magic, version, and two pointers.
fn wrapper(version: u32, pointers: [&[u8]; 2]) -> Vec<u8> {
    let mut wrapper = [0x466_243b1_u32.to_le_bytes(), version.to_le_bytes()].concat();
    wrapper.extend(pointers.iter().flat_map(|bytes| (bytes.as_ptr().expose_provenance() as u64).to_le_bytes()));
    wrapper
}

#[test]
fn the_fat_binaries_of_relocatable_code_are_linked() -> Result {
    simulated!("the image is synthetic, and a real driver may check more of it");
    let _context = open();
    let head = ".version 7.0\n.target sm_80\n.address_size 64\n.global .b8 $str[2] = {65, 0};\n";
    let of = |body: &str| fat_binary(1, 0x11, format!("{head}{body}\0").as_bytes());
    let caller = of(".extern .func other();\n.visible .entry one() { call other; ret; }\n");
    let callee = of(".visible .func other() { ret; }\n.visible .entry two() { ret; }\n");
    // As in libcudadevrt.a: for the newest GPU only, with the name of its source in those of its static functions.
    let newest =
        format!("{head}.func __nv_static_22_cuda_device_runtime_cu() {{ ret; }}\n\0").replace("sm_80", "sm_121");
    let runtime = fat_binary(1, 0x11, newest.as_bytes());
    let linked = fat_binary(2, 0x11, b"machine code");
    let list = |binaries: &[&[u8]]| -> Vec<u8> {
        let addresses = binaries.iter().map(|binary| binary.as_ptr().expose_provenance() as u64).chain([0]);
        addresses.flat_map(u64::to_le_bytes).collect()
    };
    let objects = list(&[&caller, &callee, &runtime]);
    let image = wrapper(2, [&linked, &objects]);
    let module = good(Module::load_image(&image))?;
    good(good(module.function("one"))?.launch(Shape::ONE, 0, &[]))?;
    good(good(module.function("two"))?.launch(Shape::ONE, 0, &[]))?;
    good(synchronize(0))?;
    let objects = list(&[&caller, &linked]);
    assert_eq!(load_image(&wrapper(2, [&linked, &objects])), Err(codes::NO_BINARY_FOR_GPU));
    Ok(())
}

#[test]
fn the_ptx_of_a_fat_binary_is_used() -> Result {
    simulated!("the image is synthetic, and a real driver may check more of it");
    let _context = open();
    let text = [KERNELS.as_bytes(), b"\0"].concat();
    let fat = fat_binary(1, 0x11, &text);
    good(load_image(&fat))?;
    good(load_image(&wrapper(1, [&fat, &[]])))?;
    for flags in [0x2011, 0x8011] {
        assert_eq!(load_image(&fat_binary(1, flags, &text)), Err(codes::INVALID_IMAGE), "not compressed");
    }
    assert_eq!(load_image(&fat_binary(2, 0x11, b"\x7fELF")), Err(codes::NO_BINARY_FOR_GPU), "a cubin");
    Ok(())
}

/// One kernel, by `fatbinary -64 --compress-mode=MODE --image3=kind=ptx,sm=75,file=…` of CUDA 13.5.
const COMPRESSED: [&[u8]; 2] = [include_bytes!("compressed/lz4.fatbin"), include_bytes!("compressed/zstd.fatbin")];

#[test]
fn compressed_ptx_is_used_and_damaged_is_refused() -> Result {
    let _context = open();
    for image in COMPRESSED {
        let module = good(Module::load_image(image))?;
        good(module.function("put"))?;
        good(module.unload())?;
    }
    if simcuda().is_none() {
        eprintln!("left out: a real driver may return other codes");
        return Ok(());
    }
    for image in COMPRESSED {
        // Behind the headers of the file and of the entry; the entry's own lengths stay.
        for at in 96..image.len() {
            let mut damaged = image.to_vec();
            damaged[at] ^= 0xff;
            // A byte of a comment or a name may be another one.
            if let Err(code) = load_image(&damaged) {
                assert!(
                    [codes::INVALID_IMAGE, codes::INVALID_PTX, UNSUPPORTED_PTX_VERSION].contains(&code),
                    "{at}: {code}"
                );
            }
        }
        // The length before the compression, at 56 in the entry's header.
        for len in [0_u64, 1, 1 << 20, u64::MAX] {
            let mut damaged = image.to_vec();
            damaged[72..80].copy_from_slice(&len.to_le_bytes());
            assert_eq!(load_image(&damaged), Err(codes::INVALID_IMAGE), "{len}");
        }
    }
    Ok(())
}

#[test]
fn a_module_is_loaded_from_a_file() -> Result {
    let _context = open();
    let path = std::env::temp_dir().join(format!("vkgdr-kernels-{}.ptx", std::process::id()));
    std::fs::write(&path, KERNELS)?;
    let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes())?;
    let load = || given(|out| call!(cuModuleLoad(out => *mut usize, name.as_ptr() => *const c_char))).map(Module);
    let loaded = load();
    std::fs::remove_file(&path)?;
    let module = good(loaded)?;
    good(good(module.function("nothing"))?.launch(Shape::ONE, 0, &[]))?;
    good(synchronize(0))?;
    assert_eq!(load().map(drop), Err(codes::FILE_NOT_FOUND));
    Ok(())
}

#[test]
fn unknown_jit_options_are_refused() -> Result {
    let _context = open();
    let text = c_string(KERNELS);
    let load = |key: c_uint, count: c_uint| {
        let (keys, mut values) = ([key], [0_usize]);
        let load = |out| {
            call!(cuModuleLoadDataEx(
                out => *mut usize, text.as_ptr() => *const c_char, count => c_uint,
                keys.as_ptr() => *const c_uint, values.as_mut_ptr() => *mut usize,
            ))
        };
        given(load).map(Module)
    };
    good(load(14, 1))?;
    good(load(1000, 0))?;
    assert_eq!(load(1000, 1).map(drop), Err(codes::INVALID_VALUE));
    Ok(())
}

#[test]
fn nothing_is_loaded_without_a_context() -> Result {
    let _context = open();
    assert_eq!(support::cuda::no_context(|| Module::load(KERNELS).map(drop)), Err(codes::INVALID_CONTEXT));
    let mode = good(given(|out| call!(cuModuleGetLoadingMode(out => *mut c_uint))))?;
    assert!(mode == 1 || mode == 2, "{mode}");
    Ok(())
}

#[test]
fn the_reason_is_also_on_stderr() -> Result {
    simulated!("a real driver writes nothing there");
    if child::role().is_some() {
        let _context = open();
        assert_eq!(Module::load(&with_body("    nonsense;")).map(drop), Err(codes::INVALID_PTX));
        return Ok(());
    }
    let output = child::command("loads")?.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let said: Vec<_> = errors.lines().filter(|line| line.starts_with("simcuda: ")).collect();
    assert_eq!(said.len(), 1, "{errors}");
    assert_says(said[0], &["line 6", "nonsense"]);
    Ok(())
}
