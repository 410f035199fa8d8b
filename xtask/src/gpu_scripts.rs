//! Dry runs of the GPU bundle's scripts (`tests/gpu`) in a bundle whose programs are shell scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use xshell::{Cmd, Shell, TempDir, cmd};

use crate::Result;

/// The start of all programs.
const SCRIPT: &str = "#!/bin/sh\n";
/// Says what the benches are told.
const BENCH: &str = r#"echo "$(basename "$0") quick=${VKGDR_BENCH_QUICK-0} seconds=$VKGDR_BENCH_SECONDS""#;
const BENCHES: [&str; 6] = ["gpu", "copies", "gdr_copies", "allocation", "c_calls", "pool"];
/// What vulkaninfo prints of a GPU.
const NVIDIA: &str = "echo 'deviceName = H100'; echo 'vendorID = 0x10de'";

struct Bundle {
    sh: Shell,
    folder: TempDir,
}

impl Bundle {
    /// `probe` and `vulkaninfo` are the text of these programs.
    fn new(probe: &str, vulkaninfo: &str) -> Result<Self> {
        let sh = Shell::new()?;
        let folder = sh.create_temp_dir()?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
        let (bundle, programs) = (folder.path().join("bundle"), folder.path().join("programs"));
        sh.create_dir(&bundle)?;
        sh.create_dir(programs.join("lib"))?;
        for script in sh.read_dir(root.join("tests/gpu"))?.iter().filter(|path| path.extension() == Some("sh".as_ref()))
        {
            sh.copy_file(script, &bundle)?;
        }
        sh.write_file(
            bundle.join("bundle.txt"),
            "vkgdr GPU bundle\ncommit   1\nmade     2\nglibc    2.0 or newer needed\n",
        )?;
        sh.write_file(bundle.join("tests.tar.zst"), "")?;
        let add = |name: &str, text: &str| -> Result {
            sh.write_file(programs.join(name), format!("{SCRIPT}{text}\n"))?;
            Ok(cmd!(sh, "chmod +x {programs}/{name}").quiet().run()?)
        };
        for bench in BENCHES {
            add(&format!("bench/{bench}"), BENCH)?;
        }
        add("examples/gpu_probe", probe)?;
        add("bin/vulkaninfo", vulkaninfo)?;
        add("bin/cargo-nextest", r#"echo "nextest, $VKGDR_TEST_LAYERS, $NEXTEST_TEST_THREADS threads""#)?;
        add("workspace/sim/run", r#"exec "$@""#)?;
        let archive = bundle.join("programs.tar.gz");
        cmd!(sh, "tar -C {programs} -czf {archive} .").quiet().run()?;
        Ok(Self { sh, folder })
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// A run that takes the machine for one with a GPU.
    fn run(&self, stages: &[&str]) -> Cmd<'_> {
        let (script, out) = (self.folder.path().join("bundle/run.sh"), self.out());
        let command = cmd!(self.sh, "bash {script} {out} {stages...}").env("VKGDR_CUDA_DRIVER", "real").quiet();
        command.env_remove("NEXTEST_TEST_THREADS").env_remove("VKGDR_BENCH_QUICK").ignore_status()
    }

    fn text(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(self.out().join(name))?)
    }
}

#[test]
fn the_benches_run_after_a_probe_that_stopped() -> Result {
    let bundle = Bundle::new("echo 'gpu_probe: H100'; echo 'gpu_probe: STOPPED: all is late'; exit 1", NVIDIA)?;
    let printed = bundle.run(&["facts", "probe", "bench"]).env("VKGDR_GPU_SECONDS", "570").read()?;
    let report = bundle.text("report.md")?;
    assert!(report.contains("gpu_probe: STOPPED: all is late"), "{report}");
    assert!(report.contains("FAILED: probe\n"), "{printed}\n{report}");
    let log = bundle.text("bench.log")?;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("quick=")).collect();
    assert_eq!(lines.len(), BENCHES.len(), "{log}");
    for (line, bench) in lines.iter().zip(BENCHES) {
        assert!(line.starts_with(&format!("{bench} quick=0 seconds=")), "{log}");
    }
    Ok(())
}

#[test]
fn a_probe_that_is_interrupted_keeps_its_answers() -> Result {
    let bundle = Bundle::new(
        "echo 'gpu_probe: H100'; echo 'M1 a question: yes [0.1 s]'\nsleep 60\necho 'M2 another one'",
        NVIDIA,
    )?;
    let script = bundle.folder.path().join("bundle/run.sh");
    let mut command = Command::new("bash");
    command.arg(script).arg(bundle.out()).arg("probe").env("VKGDR_CUDA_DRIVER", "real");
    let mut run = command.stdout(Stdio::null()).spawn()?;
    while !bundle.text("facts.log").is_ok_and(|log| log.contains("M1 a question")) {
        assert!(run.try_wait()?.is_none(), "it ended before it was interrupted");
        thread::sleep(Duration::from_millis(20));
    }
    let process = run.id().to_string();
    cmd!(bundle.sh, "kill -TERM {process}").run()?;
    run.wait()?;
    let report = bundle.text("report.md")?;
    assert!(report.contains("M1 a question: yes"), "{report}");
    assert!(report.contains("FAILED: probe (interrupted)"), "{report}");
    Ok(())
}

#[test]
fn little_time_makes_the_benches_quick_but_not_that_of_the_gpu() -> Result {
    let bundle = Bundle::new("", NVIDIA)?;
    bundle.run(&["bench"]).env("VKGDR_GPU_SECONDS", "60").read()?;
    let log = bundle.text("bench.log")?;
    assert!(log.contains("gpu quick=0 seconds="), "{log}");
    for bench in &BENCHES[1..] {
        assert!(log.contains(&format!("\n{bench} quick=1 seconds=")), "{log}");
    }
    Ok(())
}

#[test]
fn on_a_gpu_validation_runs_only_if_it_is_given_and_vulkan_finds_the_gpu() -> Result {
    let bundle = Bundle::new("", NVIDIA)?;
    let printed = bundle.run(&[]).env("PYTHON", "false").read()?;
    assert!(!printed.contains("validation"), "{printed}");
    assert!(bundle.text("tests.log")?.starts_with("nextest, faults, "));
    bundle.run(&["validation"]).read()?;
    assert!(bundle.text("validation.log")?.starts_with("nextest, validation, "));

    let bundle = Bundle::new("", "echo 'error: no device'")?;
    let printed = bundle.run(&["validation"]).read()?;
    let skipped = "skipped: validation, since Vulkan finds no NVIDIA device";
    assert!(printed.contains(skipped), "{printed}");
    assert!(bundle.text("report.md")?.contains(skipped));
    bundle.run(&["tests"]).read()?;
    assert!(bundle.text("report.md")?.contains("the tests that need Vulkan, which finds no NVIDIA device"));
    Ok(())
}

#[test]
fn at_most_eight_files_are_left() -> Result {
    let bundle = Bundle::new("echo 'M1 a question: yes [0.1 s]'", NVIDIA)?;
    bundle.sh.write_file(bundle.out().join("report.md.new"), "of a run that was killed")?;
    let every = ["facts", "probe", "tests", "validation", "python", "examples", "bench"];
    bundle.run(&every).env("PYTHON", "false").read()?;
    let files = bundle.sh.read_dir(bundle.out())?;
    assert!(files.len() <= 8, "{files:?}");
    assert!(files.iter().all(|file| file.extension() != Some("new".as_ref())), "{files:?}");
    Ok(())
}

#[test]
fn the_drivers_libraries_are_found_in_the_folders_of_the_environment() -> Result {
    let bundle = Bundle::new("", NVIDIA)?;
    let library = bundle.folder.path().join("driver/libEGL_nvidia.so.0");
    bundle.sh.write_file(&library, "")?;
    let folder = library.parent().ok_or("no folder")?;
    bundle.run(&["facts"]).env("LD_LIBRARY_PATH", folder).read()?;
    let log = bundle.text("facts.log")?;
    assert!(log.contains(&format!("{}:\n", library.display())), "{log}");
    assert!(log.contains("libGLX_nvidia.so.0: neither in LD_LIBRARY_PATH nor"), "{log}");
    Ok(())
}
