//! `vkgdr doctor` in each situation that it knows.

use serde_json::Value;
use support::Result;

use crate::machine::{Machine, need_simulator};

/// The doctor's findings.
struct Report(Value);

impl Report {
    fn of(machine: &Machine) -> Result<Self> {
        let printed = machine.run(&["doctor", "--json"])?;
        let report = printed.json()?;
        assert_eq!(printed.code.map(i64::from), report["exit_code"].as_i64(), "{report:#}");
        Ok(Self(report))
    }

    /// Those of a machine with this exit code: 0 if it is usable, 1 with limits.
    #[track_caller]
    fn ends(code: i32, machine: &Machine) -> Result<Self> {
        let Self(report) = Self::of(machine)?;
        let status = ["usable", "limited", "unusable"][usize::try_from(code)?];
        assert_eq!((&report["exit_code"], &report["status"]), (&code.into(), &status.into()), "{report:#}");
        Ok(Self(report))
    }

    fn check(&self, id: &str) -> Option<&Value> {
        self.0["checks"].as_array()?.iter().find(|check| check["id"] == id)
    }

    /// Fails unless the check has this status, and its text with its remedy says all of `parts`.
    #[track_caller]
    fn says(&self, id: &str, status: &str, parts: &[&str]) {
        let Some(check) = self.check(id) else { panic!("no check {id}: {:#}", self.0) };
        assert_eq!(check["status"], status, "{check:#}");
        let text = |key: &str| check[key].as_str().unwrap_or_default();
        let said = format!("{} -> {}", text("text"), text("remedy"));
        parts.iter().for_each(|part| assert!(said.contains(part), "{said:?} does not say {part:?}"));
        let is_problem = ["limited", "failed"].contains(&status);
        assert!(!is_problem || check["remedy"].is_string(), "no remedy: {check:#}");
    }
}

#[test]
fn a_gpu_all_of_whose_memory_can_be_mapped_is_usable() -> Result {
    need_simulator!();
    let report = Report::ends(0, &Machine::simulated("rebar")?)?;
    assert_eq!(report.0["simulated"], true);
    report.says("mapped", "ok", &["8 GiB", ", coherent"]);
    report.says("bar", "ok", &["all of the GPU's memory"]);
    report.says("host", "ok", &["pages registered with CUDA"]);
    // What is missing for a real driver does no harm here.
    report.says("kernel-driver", "note", &["not loaded", "but CUDA works"]);
    report.says("vulkan-driver", "note", &["not installed", "but memory can be mapped"]);
    report.says("dma-buf", "note", &["the CPU cannot map"]);
    Ok(())
}

#[test]
fn without_libcuda_nothing_can_be_used() -> Result {
    let machine = Machine::bare()?;
    let report = Report::ends(2, &machine)?;
    report.says("libcuda", "failed", &["libcuda.so.1 cannot be loaded (", "install the NVIDIA driver"]);
    report.says("kernel-driver", "failed", &["not loaded", "modprobe nvidia"]);
    assert!(report.check("cuda").is_none() && report.check("open").is_none());
    let container = Report::of(&machine.with("/.dockerenv", "")?)?;
    container.says("libcuda", "failed", &["--gpus all"]);
    container.says("kernel-driver", "failed", &["on the host"]);
    Ok(())
}

#[test]
fn a_driver_that_is_too_old_is_named() -> Result {
    need_simulator!();
    for (version, code, status, parts) in [
        ("11020", 1, "limited", ["CUDA 11.2 is older than 11.4", "install a newer NVIDIA driver"]),
        ("11080", 0, "note", ["CUDA 11.8", "before 12.0"]),
    ] {
        let machine = Machine::simulated("rebar")?.with_variable("SIMCUDA_DRIVER_VERSION", version);
        Report::ends(code, &machine)?.says("libcuda", status, &parts);
    }
    // A name with the same hash, so that the symbol table stays valid (tests/missing_drivers/cuda.rs).
    let machine =
        Machine::simulated("rebar")?.with_patched_cuda(b"\0cuDeviceGetUuid_v2\0", b"\0dTDeviceGetUuid_v2\0")?;
    let report = Report::ends(2, &machine)?;
    report.says("libcuda", "failed", &["too old", "cuDeviceGetUuid_v2", "install a newer NVIDIA driver"]);
    Ok(())
}

#[test]
fn memory_of_which_nothing_can_be_allocated_is_a_limit() -> Result {
    need_simulator!();
    for (call, check) in [("cuImportExternalMemory", "mapped"), ("cuMemHostRegister", "host")] {
        let faults: Vec<_> = (1..20).flat_map(|nth| ["--fail".to_owned(), format!("{call}:{nth}:999")]).collect();
        let report = Report::ends(1, &Machine::simulated("rebar")?.with_simulator(&faults))?;
        report.says(check, "limited", &[&format!("{call} failed (CUDA_ERROR_UNKNOWN)")]);
    }
    Ok(())
}

#[test]
fn a_driver_that_does_not_start_is_named_with_what_hides_the_gpus() -> Result {
    need_simulator!();
    let fault = ["--fail", "cuInit:1:100", "--fail", "cuInit:2:100"];
    let machine = Machine::simulated("rebar")?.with_simulator(&fault);
    let report = Report::ends(2, &machine)?;
    report.says("cuda", "failed", &["cuInit failed (CUDA_ERROR_NO_DEVICE)", "nvidia-smi"]);
    let report = Report::of(&machine.with_variable("CUDA_VISIBLE_DEVICES", "7"))?;
    report.says("cuda", "failed", &["CUDA_VISIBLE_DEVICES is '7'", "nvidia-smi -L"]);
    let stub = Machine::simulated("rebar")?.with_simulator(&["--fail", "cuInit:1:34"]);
    let report = Report::of(&stub.with_variable("CUDA_VISIBLE_DEVICES", "7"))?;
    let cuda = report.check("cuda").ok_or("no check")?;
    assert!(cuda["text"].as_str().is_some_and(|text| text.contains("take its folder \"stubs\" out")), "{cuda}");
    assert!(cuda["remedy"].is_null(), "another remedy than that of the code: {cuda}");
    Ok(())
}

#[test]
fn a_gpu_that_cannot_be_opened_is_named() -> Result {
    need_simulator!();
    let machine = Machine::simulated("two-gpus")?.with_simulator(&["--fail", "cuDeviceGetUuid:1:801"]);
    let report = Report::ends(1, &machine)?;
    let opened = report.check("open").ok_or("no check")?;
    assert_eq!((&opened["device"], &opened["status"]), (&0.into(), &"failed".into()));
    assert!(opened["text"].as_str().is_some_and(|text| text.contains("cuDeviceGetUuid failed")), "{opened}");
    Ok(())
}

#[test]
fn a_gpu_that_another_process_has_in_exclusive_mode_is_not_usable() -> Result {
    need_simulator!();
    let faults: Vec<_> =
        (1..40).flat_map(|nth| ["--fail".into(), format!("cuDevicePrimaryCtxRetain:{nth}:46")]).collect();
    let machine = Machine::simulated("rebar")?.with_simulator(&faults);
    Report::ends(2, &machine)?.says("open", "failed", &["cuDevicePrimaryCtxRetain", "exclusive mode"]);
    Ok(())
}

#[test]
fn device_nodes_are_missing_too_few_or_closed() -> Result {
    let with = |gpus, nodes| Machine::bare()?.with_kernel_driver(gpus, nodes);
    let without_uvm = with(1, 1)?;
    std::fs::remove_file(without_uvm.root().join("dev/nvidia-uvm"))?;
    for (machine, status, parts) in [
        (with(1, 0)?, "failed", &["no GPU has one", "nvidia-modprobe"][..]),
        (with(1, 0)?.with("/run/.containerenv", "")?, "failed", &["--gpus all"]),
        (without_uvm, "failed", &["there is no ", "/dev/nvidia-uvm", "nvidia-smi"]),
        // A folder cannot be opened for writing, not even by root.
        (
            with(1, 0)?.with_folder("/dev/nvidia0")?,
            "failed",
            &["/dev/nvidia0 cannot be opened", "owner, group and mode"],
        ),
        (with(2, 2)?, "ok", &["2 of 2 GPUs"]),
    ] {
        let report = Report::of(&machine)?;
        report.says("device-nodes", status, parts);
        report.says("kernel-driver", "ok", &["580.65.06"]);
    }
    Ok(())
}

#[test]
fn fewer_device_nodes_than_gpus_are_a_limit_where_vulkan_finds_none() -> Result {
    need_simulator!();
    let machine = Machine::simulated("no-vulkan")?.with_kernel_driver(8, 1)?;
    let machine = machine.with_library("libEGL_nvidia.so.0", None)?;
    let report = Report::ends(1, &machine)?;
    report.says("device-nodes", "limited", &["only 1 of 8 GPUs", "pass all GPUs"]);
    report.says("mapped", "limited", &["vkCreateInstance failed", "only 1 of 8 GPUs"]);
    Ok(())
}

#[test]
fn a_missing_vulkan_loader_is_a_limit() -> Result {
    need_simulator!();
    let machine = Machine::simulated("no-vulkan")?.with_broken_library("libvulkan.so.1")?;
    let report = Report::ends(1, &machine)?;
    report.says("vulkan-loader", "limited", &["libvulkan.so.1 cannot be loaded (", "libvulkan1"]);
    report.says("host", "ok", &["pages registered with CUDA"]);
    report.says("device", "ok", &["allocated by CUDA"]);
    Ok(())
}

#[test]
fn a_missing_vulkan_driver_is_told_apart_from_a_container_without_graphics() -> Result {
    need_simulator!();
    let report = Report::ends(1, &Machine::simulated("no-vulkan")?)?;
    report.says("vulkan-driver", "limited", &["not installed", "libnvidia-gl-VERSION"]);
    report.says("container", "ok", &["no"]);
    let container = Machine::simulated("no-vulkan")?
        .with_variable("NVIDIA_VISIBLE_DEVICES", "all")
        .with_variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility");
    let report = Report::of(&container)?;
    report.says("container", "ok", &["yes, with NVIDIA_DRIVER_CAPABILITIES=compute,utility"]);
    report.says("vulkan-driver", "limited", &["NVIDIA_DRIVER_CAPABILITIES=all, so that the host's is mounted"]);
    report.says("mapped", "limited", &["NVIDIA_DRIVER_CAPABILITIES=all"]);
    Ok(())
}

#[test]
fn a_vulkan_driver_that_cannot_be_loaded_is_named_with_the_loaders_reason() -> Result {
    need_simulator!();
    for (library, needs, remedy) in [
        ("libGLX_nvidia.so.0", "libXext.so.99", "install libx11-6 and libxext6"),
        ("libEGL_nvidia.so.0", "libnvidia-glsi.so.99", "reinstall the driver's graphics libraries"),
        ("libGLX_nvidia.so.0", "libnvidia-glcore.so.99", "reinstall the driver's graphics libraries"),
    ] {
        let report = Report::ends(1, &Machine::simulated("no-vulkan")?.with_library(library, Some(needs))?)?;
        let reason = format!("{library} is installed but cannot be loaded ({needs}: cannot open shared object file");
        report.says("vulkan-driver", "limited", &[&reason, remedy]);
    }
    // In a container the remedy is the toolkit's.
    for (variable, remedy) in
        [("compute", "NVIDIA_DRIVER_CAPABILITIES=all"), ("all", "update NVIDIA's container toolkit")]
    {
        let machine = Machine::simulated("no-vulkan")?
            .with_library("libEGL_nvidia.so.0", Some("libnvidia-glsi.so.99"))?
            .with("/.dockerenv", "")?
            .with_variable("NVIDIA_DRIVER_CAPABILITIES", variable);
        Report::of(&machine)?.says("vulkan-driver", "limited", &["libnvidia-glsi.so.99", remedy]);
    }
    let machine = Machine::simulated("no-vulkan")?.with_library_for_newer_glibc("libGLX_nvidia.so.0")?;
    let report = Report::ends(1, &machine)?;
    let reason = "version `GLIBC_2.99' not found (required by ";
    report.says(
        "vulkan-driver",
        "limited",
        &["cannot be loaded", reason, "older than the driver needs", "newer container image"],
    );
    Ok(())
}

#[test]
fn a_driver_that_no_manifest_names_is_a_limit() -> Result {
    need_simulator!();
    let without = || Machine::simulated("no-vulkan")?.with_library("libGLX_nvidia.so.0", None);
    let machine = without()?.after("unset VK_DRIVER_FILES VK_ICD_FILENAMES");
    let report = Report::ends(1, &machine)?;
    report.says("manifest", "limited", &["no manifest names it", "nvidia_icd.json"]);
    let text = r#"{"ICD": {"library_path": "libGLX_nvidia.so.0"}}"#;
    let machine = machine.with("/usr/share/vulkan/icd.d/nvidia_icd.json", text)?;
    Report::of(&machine)?.says("manifest", "ok", &["/usr/share/vulkan/icd.d/nvidia_icd.json"]);
    Ok(())
}

#[test]
fn a_small_bar_comes_with_the_advice_that_the_gpu_allows() -> Result {
    need_simulator!();
    let machine = Machine::simulated("bar256")?;
    let report = Report::ends(1, &machine)?;
    report.says("bar", "limited", &["246 MiB of 8 GiB", "Above 4G decoding and Resizable BAR", "newer VBIOS"]);
    let none = "0x0 0x0 0x0\n";
    let small = "0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n";
    let pci = "/sys/bus/pci/devices/0000:00:00.0";
    let machine = machine.with(&format!("{pci}/resource"), &format!("{none}{small}"))?;
    Report::of(&machine)?.says("bar", "limited", &["Linux sees no larger size"]);
    let machine = machine.with(&format!("{pci}/resource1_resize"), "0000000000003f00\n")?;
    Report::of(&machine)?.says("bar", "limited", &["this GPU's BAR can have 8 GiB: enable"]);
    Ok(())
}

#[test]
fn a_gpu_without_mapped_memory_is_a_limit_and_one_where_it_is_not_coherent_is_not() -> Result {
    need_simulator!();
    for (profile, is_limited, parts) in [
        ("no-bar", true, ["the GPU has no memory that the CPU can map", "Resizable BAR"]),
        ("foreign-uuid", true, ["no Vulkan device matching the CUDA device", "libnvidia-gl-VERSION"]),
        ("no-external-memory", true, ["has no VK_KHR_external_memory_fd", "install a newer NVIDIA driver"]),
        ("non-coherent", false, ["not coherent", "flush after"]),
    ] {
        let report = Report::ends(is_limited.into(), &Machine::simulated(profile)?)?;
        report.says("mapped", if is_limited { "limited" } else { "note" }, &parts);
        assert_eq!(report.check("bar").is_none(), is_limited, "{profile}");
    }
    Ok(())
}

#[test]
fn a_mig_slice_and_a_virtual_gpu_are_known_by_their_names() -> Result {
    need_simulator!();
    let name = b"Simulated CUDA device (";
    let slice = Machine::simulated("no-vulkan")?.with_patched_cuda(name, b"NVIDIA A100 MIG 1g.5gb ")?;
    let report = Report::ends(1, &slice)?;
    report.says("mig", "limited", &["MIG slice", "use a whole GPU"]);
    report.says("mapped", "limited", &["MIG slice"]);
    let profile = Machine::simulated("no-vulkan")?.with_patched_cuda(name, b"GRID T4-8C simulated  (")?;
    Report::of(&profile)?.says("vgpu", "limited", &["virtual GPU", "series Q"]);
    // Where memory can be mapped, it does no harm.
    let profile = Machine::simulated("rebar")?.with_patched_cuda(name, b"GRID T4-8Q simulated  (")?;
    let report = Report::ends(0, &profile)?;
    report.says("vgpu", "note", &["but it can be mapped"]);
    Ok(())
}

#[test]
fn windows_subsystem_has_no_vulkan_driver() -> Result {
    need_simulator!();
    let kernel = "6.6.87.2-microsoft-standard-WSL2\n";
    let machine = Machine::simulated("no-vulkan")?.with("/proc/sys/kernel/osrelease", kernel)?;
    let report = Report::ends(1, &machine.with("/dev/dxg", "")?)?;
    report.says("wsl", "limited", &["no Vulkan driver for WSL2", "host memory"]);
    report.says("kernel-driver", "ok", &["/dev/dxg"]);
    let machine = Machine::bare()?.with("/proc/sys/kernel/osrelease", kernel)?;
    let report = Report::of(&machine)?;
    report.says("kernel-driver", "failed", &["no /dev/dxg", "Windows"]);
    report.says("libcuda", "failed", &["/usr/lib/wsl/lib"]);
    Ok(())
}

#[test]
fn low_limits_of_the_process_are_named() -> Result {
    need_simulator!();
    let limits = "Max locked memory 65536 65536 bytes\nMax open files 256 4096 files\n";
    let machine = Machine::simulated("rebar")?.with("/proc/self/limits", limits)?;
    let report = Report::ends(1, &machine)?;
    report.says("open-files", "limited", &["256; each", "`ulimit -n 4096`"]);
    report.says("locked-memory", "note", &["64 KiB", "memlock"]);
    let machine = Machine::simulated("rebar")?.with("/proc/self/limits", "Max open files 256 256 files\n")?;
    Report::of(&machine)?.says("open-files", "limited", &["let root raise it", "nofile=65536"]);
    // The real file, through the shell's limit.
    let machine = Machine::simulated("rebar")?.after("ulimit -n 100; unset VKGDR_SYSTEM_ROOT");
    Report::of(&machine)?.says("open-files", "limited", &["100; each"]);
    Ok(())
}

#[test]
fn whether_memory_of_other_libraries_can_be_mapped_is_said() -> Result {
    need_simulator!();
    for (profile, status, part) in [
        ("dma-buf", "ok", "the CPU can map"),
        ("dma-buf-no-mmap", "note", "can be exported, but the CPU cannot map it"),
        ("rebar", "note", "the CPU cannot map"),
    ] {
        let machine = Machine::simulated(profile)?;
        let report = Report::ends(0, &machine)?;
        report.says("dma-buf", status, &[part]);
        let facts = machine.run(&["info", "--json"])?.json()?;
        assert_eq!(facts["devices"][0]["maps_existing"], profile == "dma-buf", "{profile}");
    }
    // A driver that has the attribute, and is too old to map.
    let machine = Machine::simulated("dma-buf")?.with_variable("SIMCUDA_DRIVER_VERSION", "13000");
    Report::of(&machine)?.says("dma-buf", "note", &["needs CUDA 13.3"]);
    Ok(())
}

#[test]
fn the_text_has_everything_within_the_terminal_and_no_colour_in_a_pipe() -> Result {
    need_simulator!();
    for columns in [40_usize, 80, 120] {
        let machine = Machine::simulated("bar256")?.with_variable("COLUMNS", columns.to_string());
        let printed = machine.run(&["doctor"])?;
        assert_eq!((printed.code, printed.err.as_str()), (Some(1), ""));
        assert!(!printed.out.contains('\x1b'));
        for line in printed.out.lines() {
            assert!(line.chars().count() <= columns.min(100) && line == line.trim_end(), "{columns}: {line:?}");
        }
        let words = printed.words();
        for part in
            ["simulated: this is not a GPU", "246 MiB of 8 GiB can be mapped", "-> enable", "Usable with limits"]
        {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
    Ok(())
}
