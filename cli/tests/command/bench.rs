//! `vkgdr bench`. The numbers themselves are not judged.

use std::fs;
use std::io::{BufRead, BufReader};

use serde_json::Value;
use support::{Result, amount};

use crate::machine::{Machine, need_simulator};

fn points(value: &Value) -> &[Value] {
    value["points"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Fails unless the times are in order.
#[track_caller]
fn assert_ordered(point: &Value) {
    let [p0, p50, p99] = ["p0_ns", "p50_ns", "p99_ns"].map(|name| point[name].as_f64().unwrap_or(f64::NAN));
    assert!(0.0 < p0 && p0 <= p50 && p50 <= p99, "{point:#}");
    assert!(point["samples"].as_u64() >= Some(5) && point["batch"].as_u64() >= Some(1), "{point:#}");
}

#[test]
fn bandwidth_is_measured_for_each_kind_direction_and_size() -> Result {
    need_simulator!();
    let machine = Machine::simulated("rebar")?;
    let arguments = "bench bw --json --from 4K --to 64KiB --threads 2 --kind mapped,host,mapped,device";
    let printed = machine.run(&arguments.split(' ').collect::<Vec<_>>())?;
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));
    let report = printed.json()?;
    assert_eq!((&report["bench"], &report["simulated"]), (&"bw".into(), &true.into()));
    assert!(report["note"].as_str().is_some_and(|note| note.contains("nothing about a GPU")), "{report:#}");
    let of = |point: &Value| {
        format!("{} {} {} {}", point["kind"], point["operation"], point["by"], point["bytes"]).replace('"', "")
    };
    let found: Vec<_> = points(&report).iter().map(of).collect();
    let mut expected = Vec::new();
    for (kind, by) in [("mapped", "cpu"), ("host", "cpu"), ("device", "engine")] {
        for operation in ["write", "read"] {
            expected.extend([4096, 16384, 65536].map(|bytes| format!("{kind} {operation} {by} {bytes}")));
        }
    }
    assert_eq!(found, expected);
    for point in points(&report) {
        assert_ordered(point);
        assert_eq!(point["threads"], 2);
        // No faster than two threads whose copies all took the shortest time.
        let fastest = 2.0 * point["bytes"].as_f64().unwrap_or(0.0) / (point["p0_ns"].as_f64().unwrap_or(0.0) * 1e-9);
        let said = point["bytes_per_s"].as_f64().unwrap_or(0.0);
        assert!(said > 0.0 && said <= fastest * 1.001, "{said} {fastest}");
    }
    // One thread's rate is by the median.
    let report = machine.run(&["bench", "latency", "--json", "--from", "64", "--to", "64"])?.json()?;
    for point in points(&report) {
        let rate = 64.0 / (point["p50_ns"].as_f64().unwrap_or(0.0) * 1e-9);
        let said = point["bytes_per_s"].as_f64().unwrap_or(0.0);
        assert!((said / rate - 1.0).abs() < 1e-3, "{said} {rate}");
    }
    Ok(())
}

#[test]
fn tables_and_the_text_of_narrow_terminals_fit_and_say_that_the_driver_is_simulated() -> Result {
    need_simulator!();
    for (columns, arguments, words) in [
        (80, "bench bw --from 1M --to 1M", ["mapped write 1 MiB", "GB/s", "P99"]),
        (40, "bench bw --from 1M --to 4M --kind mapped", ["mapped write 1 MiB: P0 ", "4 MiB: P0", "GB/s"]),
        (80, "bench latency --to 1 --direction read", ["mapped read 1 byte", "host read 1 byte", "P99"]),
        (40, "bench latency --to 1 --kind device --direction read", ["device read (engine) 1 byte: P0 ", "P50", "P99"]),
        (80, "bench pingpong", ["mapped round trip - ", "host round trip - ", "P50"]),
        (80, "bench alloc --from 256 --to 1K", ["mapped memory 256 bytes", "host pool 1 KiB", "P0"]),
        (40, "bench alloc --from 256 --to 256 --kind mapped", ["mapped pool 256 bytes: P0 ", "P50", "P99"]),
    ]
    .into_iter()
    .step_by(amount(2, 1))
    {
        let machine = Machine::simulated("bar256")?.with_variable("COLUMNS", columns.to_string());
        let printed = machine.run(&arguments.split(' ').collect::<Vec<_>>())?;
        assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{arguments}");
        let text = printed.words();
        assert!(words.iter().all(|word| text.contains(word)), "{arguments}: {}", printed.out);
        assert!(text.contains("simulated: these numbers say nothing about a GPU"), "{text}");
        for line in printed.out.lines() {
            assert!(line.chars().count() <= columns && line == line.trim_end(), "{line:?}");
        }
    }
    Ok(())
}

#[test]
fn memory_that_the_gpu_lacks_keeps_no_other_from_being_measured() -> Result {
    need_simulator!();
    let machine = Machine::simulated("no-vulkan")?;
    let printed = machine.run(&["bench", "latency", "--from", "64", "--to", "64"])?;
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let words = printed.words();
    assert!(words.contains("mapped memory is not measured: vkCreateInstance failed"), "{words}");
    assert!(words.contains("host write 64 bytes"), "{words}");
    let printed = machine.run(&["bench", "alloc", "--kind", "mapped", "--json"])?;
    assert_eq!(printed.code, Some(1));
    assert!(printed.err.contains("nothing could be measured"), "{}", printed.err);
    assert_eq!(points(&printed.json()?).len(), 0);
    Ok(())
}

#[test]
fn memory_that_cannot_be_allocated_keeps_no_other_from_being_measured() -> Result {
    need_simulator!();
    let fault = |nth| ["--fail".to_owned(), format!("cuImportExternalMemory:{nth}:999")];
    let faults: Vec<_> = (1..9).flat_map(fault).collect();
    let machine = Machine::simulated("rebar")?.with_simulator(&faults);
    let printed = machine.run(&["bench", "latency", "--from", "64", "--to", "64", "--kind", "mapped,host"])?;
    assert_eq!(printed.code, Some(1));
    assert!(printed.words().contains("host write 64 bytes"), "{}", printed.out);
    assert!(printed.err.contains("cuImportExternalMemory failed"), "{}", printed.err);
    Ok(())
}

#[test]
fn what_was_measured_is_in_the_json_and_the_plot_also_if_a_kind_has_no_room() -> Result {
    need_simulator!();
    let machine = Machine::simulated("bar256")?;
    let sizes = ["--from", "300M", "--to", "300M", "--kind", "mapped,host"];
    let printed = machine.run(&[&["bench", "alloc", "--json", "--plot", "a.svg"], &sizes[..]].concat())?;
    assert_eq!(printed.code, Some(1));
    assert!(printed.err.contains("of mapped memory is needed"), "{}", printed.err);
    let report = printed.json()?;
    assert!(!points(&report).is_empty() && points(&report).iter().all(|point| point["kind"] == "host"), "{report:#}");
    let plot = fs::read_to_string(machine.folder().join("a.svg"))?;
    assert!(plot.contains("host memory") && !plot.contains("mapped memory"), "{plot}");
    Ok(())
}

#[test]
fn a_plot_is_written_to_a_file() -> Result {
    need_simulator!();
    let machine = Machine::simulated("rebar")?;
    let printed = machine.run(&["bench", "bw", "--to", "4K", "--plot", "a.svg", "--json"])?;
    assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""));
    let text = fs::read_to_string(machine.folder().join("a.svg"))?;
    assert!(text.starts_with("<svg "), "{text}");
    for part in ["SIMULATED", "mapped write", "host read", "4 KiB", "GB/s", "</svg>"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    Ok(())
}

#[test]
fn a_plot_that_cannot_be_written_is_refused_before_the_measurement() -> Result {
    need_simulator!();
    let machine = Machine::simulated("rebar")?;
    for file in ["/dev/null/a.svg", "/proc/a.svg", "/dev/full/a.svg"] {
        let printed = machine.run(&["bench", "bw", "--plot", file])?;
        assert_eq!((printed.code, printed.out.as_str()), (Some(1), ""), "{file}");
        assert!(printed.err.contains(file) && printed.err.contains("cannot be written"), "{}", printed.err);
    }
    for arguments in [&["--plot", "a.png"][..], &["--plot", "svg"], &["--plot", "-"]] {
        let printed = machine.run(&[&["bench", "bw"], arguments].concat())?;
        assert_eq!((printed.code, printed.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(printed.err.contains("must end in .svg"), "{}", printed.err);
    }
    // A file that is there stays when the measurement fails.
    let kept = machine.folder().join("kept.svg");
    fs::write(&kept, "old")?;
    assert_eq!(machine.run(&["bench", "bw", "--to", "900T", "--plot", "kept.svg"])?.code, Some(1));
    assert_eq!(fs::read_to_string(kept)?, "old");
    // Nor is anything left of one that was not there, or a link to it removed.
    let (link, target) = (machine.folder().join("link.svg"), machine.folder().join("target.svg"));
    std::os::unix::fs::symlink(&target, &link)?;
    assert_eq!(machine.run(&["bench", "bw", "--to", "900T", "--plot", "link.svg"])?.code, Some(1));
    assert!(link.is_symlink() && !target.exists());
    Ok(())
}

#[test]
fn absurd_sizes_and_numbers_are_refused() -> Result {
    need_simulator!();
    let machine = Machine::simulated("bar256")?;
    for (arguments, code, part) in [
        ("bw --from 0", 2, "smallest size is 1 byte"),
        ("bw --from=-1", 2, "whole number"),
        ("bw --to 1.5M", 2, "whole number"),
        ("bw --to 4Q", 2, "use K, M, G or T"),
        ("bw --to 4i", 2, "use K, M, G or T"),
        ("bw --to 99999999999999999999999", 2, "addresses"),
        ("bw --to 99999999T", 2, "addresses"),
        ("bw --from 2K --to 1K", 2, "2 KiB is more than 1 KiB"),
        ("bw --to 100T", 1, "100 TiB of mapped memory is needed"),
        ("bw --to 16777215T", 1, "is needed"),
        ("bw --from 18446744073709551615", 1, "too large"),
        ("bw --to 1G --threads 300", 1, "300 GiB of mapped memory is needed"),
        ("alloc --to 1G --kind mapped", 1, "1 GiB of mapped memory is needed"),
        ("alloc --to 18446744073709551615", 1, "is needed"),
        ("bw --threads 0", 2, "--threads"),
        ("bw --threads 100000", 2, "--threads"),
        ("bw --kind fast", 2, "mapped, host, device"),
        ("bw --direction up", 2, "write, read"),
        ("latency --device=-1", 2, "--device"),
        ("latency --device 7", 1, "CUDA_ERROR_INVALID_DEVICE"),
        ("pingpong --plot", 2, "--plot"),
        ("pingpong --kind device", 1, "nothing could be measured"),
        ("speed", 2, "speed"),
    ] {
        let all: Vec<_> = ["bench"].into_iter().chain(arguments.split(' ')).collect();
        let printed = machine.run(&all)?;
        assert_eq!(printed.code, Some(code), "{arguments}: {}{}", printed.out, printed.err);
        assert!(printed.err.contains(part), "{arguments}: {}", printed.err);
    }
    Ok(())
}

#[test]
fn bench_without_a_driver_names_the_doctor() -> Result {
    let machine = Machine::bare()?;
    let printed = machine.run(&["bench", "bw"])?;
    assert_eq!((printed.code, printed.out.as_str()), (Some(1), ""));
    assert!(printed.err.contains("libcuda.so.1 could not be loaded") && printed.err.contains("vkgdr doctor"));
    let json = machine.run(&["bench", "bw", "--json"])?;
    assert!(json.code == Some(1) && json.json()?["error"].is_string(), "{}", json.out);
    Ok(())
}

#[test]
fn an_interrupt_ends_the_bench_at_once() -> Result {
    use std::os::unix::process::ExitStatusExt;
    need_simulator!();
    let machine = Machine::simulated("rebar")?;
    let mut child = machine.command(&["bench", "bw"])?.stdout(std::process::Stdio::piped()).spawn()?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    // The measurements begin after the heading.
    assert!(out.read_line(&mut String::new())? > 0);
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status()?;
    assert!(killed.success());
    assert_eq!(child.wait()?.signal(), Some(2));
    Ok(())
}
