//! `vkgdr info`.

use support::Result;

use crate::machine::{Machine, need_simulator};

#[test]
fn info_names_devices_kinds_and_their_ways() -> Result {
    need_simulator!();
    let printed = Machine::simulated("bar256")?.run(&["info"])?;
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));
    let words = printed.words();
    for part in [
        "CUDA device 0: Simulated CUDA device",
        "BAR 246 MiB of 8 GiB can be mapped",
        "free of 246 MiB GPU memory that the CPU writes fast and reads slowly allocated by Vulkan, coherent",
        "memory type 4 (mapped), heap 2 of 246 MiB: DEVICE_LOCAL",
        "DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT",
        "the CPU copies, by its routine ",
        "reads from 8 KiB, writes from 256 KiB",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(printed.out.lines().all(|line| line.chars().count() <= 80), "{}", printed.out);
    Ok(())
}

#[test]
fn info_without_a_command_is_the_same() -> Result {
    need_simulator!();
    let machine = Machine::simulated("rebar")?;
    let strip =
        |text: String| text.lines().filter(|line| !line.contains(" free of ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(strip(machine.run(&[])?.out), strip(machine.run(&["info"])?.out));
    assert_eq!(machine.run(&["--json"])?.json()?["devices"][0]["kinds"]["mapped"]["total"], 8_u64 << 30);
    Ok(())
}

#[test]
fn info_says_which_way_each_kind_is_made() -> Result {
    need_simulator!();
    for (profile, expected) in [
        ("rebar", ["Vulkan", "registered pages", "Vulkan"]),
        ("no-vulkan", ["", "registered pages", "cuMemAlloc"]),
        ("dma-buf-no-vulkan", ["cuMemAlloc", "registered pages", "cuMemAlloc"]),
    ] {
        let facts = Machine::simulated(profile)?.run(&["info", "--json"])?.json()?;
        let kinds = &facts["devices"][0]["kinds"];
        let made = ["mapped", "host", "device"].map(|kind| kinds[kind]["made_by"].as_str().unwrap_or_default());
        assert_eq!(made, expected, "{facts:#}");
        assert_eq!(kinds["mapped"]["error"].is_string(), profile == "no-vulkan");
        let outside = kinds["host"]["made_by"] == "registered pages";
        assert_eq!(kinds["host"]["memory_type"].is_null(), outside, "{facts:#}");
    }
    Ok(())
}

#[test]
fn info_without_a_driver_says_why_and_names_the_doctor() -> Result {
    let machine = Machine::bare()?;
    let printed = machine.run(&["info"])?;
    assert_eq!(printed.code, Some(1));
    let words = printed.words();
    assert!(words.contains("There is no GPU to use: libcuda.so.1 could not be loaded"), "{words}");
    assert!(words.contains("vkgdr doctor"), "{words}");
    let facts = machine.run(&["info", "--json"])?.json()?;
    assert!(facts["error"].as_str().is_some_and(|error| error.contains("install the NVIDIA driver")), "{facts:#}");
    assert_eq!((&facts["devices"], &facts["cuda_version"]), (&serde_json::json!([]), &serde_json::Value::Null));
    Ok(())
}

#[test]
fn info_of_a_gpu_that_cannot_be_opened_says_why() -> Result {
    need_simulator!();
    let machine = Machine::simulated("two-gpus")?.with_simulator(&["--fail", "cuDeviceGetUuid:1:801"]);
    let printed = machine.run(&["info"])?;
    assert_eq!(printed.code, Some(1));
    let words = printed.words();
    assert!(words.contains("CUDA device 0 cannot be opened cuDeviceGetUuid failed"), "{words}");
    assert!(words.contains("CUDA device 1: Simulated"), "{words}");
    Ok(())
}

#[test]
fn info_shows_the_bar_and_the_driver_that_linux_knows() -> Result {
    need_simulator!();
    let table = "0x0 0x0 0x0\n0x000000d000000000 0x000000d00fffffff 0x000000000014220c\n";
    let machine = Machine::simulated("bar256")?
        .with("/sys/bus/pci/devices/0000:00:00.0/resource", table)?
        .with_kernel_driver(1, 1)?;
    let words = machine.run(&[])?.words();
    assert!(
        words.contains("Linux gives BAR 1 of the GPU 256 MiB") && words.contains("NVIDIA driver 580.65.06"),
        "{words}"
    );
    Ok(())
}
