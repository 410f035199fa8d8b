//! Dry runs of the GPU bundle's scripts (`tests/gpu`) in a bundle whose programs are shell scripts.

use std::borrow::BorrowMut;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::{Result, folder, root};

/// The start of all programs.
const SCRIPT: &str = "#!/bin/sh\n";
/// Says what the benches are told.
const BENCH: &str = r#"echo "$1 quick=${VKGDR_BENCH_QUICK-0} seconds=$VKGDR_BENCH_SECONDS""#;
const BENCHES: [&str; 6] = ["gpu", "copies", "gdr_copies", "allocation", "c_calls", "pool"];
/// What vulkaninfo prints of a GPU.
const NVIDIA: &str = "echo 'deviceName = H100'; echo 'vendorID = 0x10de'";

struct Bundle {
    folder: PathBuf,
}

fn run(mut command: impl BorrowMut<Command>) -> Result<String> {
    let output = command.borrow_mut().output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Bundle {
    /// `probe` and `vulkaninfo` are the text of these programs.
    fn new(name: &str, probe: &str, vulkaninfo: &str) -> Result<Self> {
        let folder = folder(name)?;
        let (bundle, programs) = (folder.join("bundle"), folder.join("programs"));
        fs::create_dir_all(&bundle)?;
        fs::create_dir_all(programs.join("lib"))?;
        for script in fs::read_dir(root().join("tests/gpu"))? {
            let script = script?.path();
            if script.extension() == Some("sh".as_ref()) {
                fs::copy(&script, bundle.join(script.file_name().unwrap_or_default()))?;
            }
        }
        let about = "vkgdr GPU bundle\ncommit   1\nmade     2\nglibc    2.0 or newer needed\n";
        fs::write(bundle.join("bundle.txt"), about)?;
        fs::write(bundle.join("tests.tar.zst"), "")?;
        for (name, text) in [
            ("bench/bench", BENCH),
            ("examples/gpu_probe", probe),
            ("bin/vulkaninfo", vulkaninfo),
            ("bin/cargo-nextest", r#"echo "nextest, $VKGDR_TEST_LAYERS, $NEXTEST_TEST_THREADS threads""#),
            ("workspace/sim/run", r#"exec "$@""#),
        ] {
            let path = programs.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&programs))?;
            fs::write(&path, format!("{SCRIPT}{text}\n"))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        let archive = bundle.join("programs.tar.gz");
        run(Command::new("tar").arg("-C").arg(&programs).arg("-czf").arg(archive).arg("."))?;
        Ok(Self { folder })
    }

    fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// A run that takes the machine for one with a GPU.
    fn run(&self, stages: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command.arg(self.folder.join("bundle/run.sh")).arg(self.out()).args(stages).env("VKGDR_CUDA_DRIVER", "real");
        command.env_remove("NEXTEST_TEST_THREADS").env_remove("VKGDR_BENCH_QUICK");
        command
    }

    fn text(&self, name: &str) -> Result<String> {
        Ok(fs::read_to_string(self.out().join(name))?)
    }
}

#[test]
fn the_benches_run_after_a_probe_that_stopped() -> Result {
    let bundle =
        Bundle::new("gpu-stopped", "echo 'gpu_probe: H100'; echo 'gpu_probe: STOPPED: all is late'; exit 1", NVIDIA)?;
    let printed = run(bundle.run(&["facts", "probe", "bench"]).env("VKGDR_GPU_SECONDS", "570"))?;
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
        "gpu-interrupted",
        "echo 'gpu_probe: H100'; echo 'M1 a question: yes [0.1 s]'\nsleep 60\necho 'M2 another one'",
        NVIDIA,
    )?;
    let mut run = bundle.run(&["probe"]).stdout(Stdio::null()).spawn()?;
    while !bundle.text("facts.log").is_ok_and(|log| log.contains("M1 a question")) {
        assert!(run.try_wait()?.is_none(), "it ended before it was interrupted");
        thread::sleep(Duration::from_millis(20));
    }
    Command::new("kill").arg("-TERM").arg(run.id().to_string()).status()?;
    run.wait()?;
    let report = bundle.text("report.md")?;
    assert!(report.contains("M1 a question: yes"), "{report}");
    assert!(report.contains("FAILED: probe (interrupted)"), "{report}");
    Ok(())
}

#[test]
fn little_time_makes_the_benches_quick_but_not_that_of_the_gpu() -> Result {
    let bundle = Bundle::new("gpu-little-time", "", NVIDIA)?;
    run(bundle.run(&["bench"]).env("VKGDR_GPU_SECONDS", "60"))?;
    let log = bundle.text("bench.log")?;
    assert!(log.contains("gpu quick=0 seconds="), "{log}");
    for bench in &BENCHES[1..] {
        assert!(log.contains(&format!("\n{bench} quick=1 seconds=")), "{log}");
    }
    Ok(())
}

#[test]
fn on_a_gpu_validation_runs_only_if_it_is_given_and_vulkan_finds_the_gpu() -> Result {
    let bundle = Bundle::new("gpu-stages", "", NVIDIA)?;
    let printed = run(bundle.run(&[]).env("PYTHON", "false"))?;
    assert!(!printed.contains("validation"), "{printed}");
    assert!(bundle.text("tests.log")?.starts_with("nextest, faults, "));
    run(bundle.run(&["validation"]))?;
    assert!(bundle.text("validation.log")?.starts_with("nextest, validation, "));

    let bundle = Bundle::new("gpu-no-vulkan", "", "echo 'error: no device'")?;
    let printed = run(bundle.run(&["validation"]))?;
    let skipped = "skipped: validation, since Vulkan finds no NVIDIA device";
    assert!(printed.contains(skipped), "{printed}");
    assert!(bundle.text("report.md")?.contains(skipped));
    run(bundle.run(&["tests"]))?;
    assert!(bundle.text("report.md")?.contains("the tests that need Vulkan, which finds no NVIDIA device"));
    Ok(())
}

#[test]
fn at_most_eight_files_are_left() -> Result {
    let bundle = Bundle::new("gpu-eight-files", "echo 'M1 a question: yes [0.1 s]'", NVIDIA)?;
    fs::create_dir_all(bundle.out())?;
    fs::write(bundle.out().join("report.md.new"), "of a run that was killed")?;
    let every = ["facts", "probe", "tests", "validation", "python", "examples", "bench"];
    run(bundle.run(&every).env("PYTHON", "false"))?;
    let files = fs::read_dir(bundle.out())?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    assert!(files.len() <= 8, "{files:?}");
    assert!(files.iter().all(|file| file.extension() != Some("new".as_ref())), "{files:?}");
    Ok(())
}

#[test]
fn the_drivers_libraries_are_found_in_the_folders_of_the_environment() -> Result {
    let bundle = Bundle::new("gpu-libraries", "", NVIDIA)?;
    let folder = bundle.folder.join("driver");
    let library = folder.join("libEGL_nvidia.so.0");
    fs::create_dir_all(&folder)?;
    fs::write(&library, "")?;
    run(bundle.run(&["facts"]).env("LD_LIBRARY_PATH", folder))?;
    let log = bundle.text("facts.log")?;
    assert!(log.contains(&format!("{}:\n", library.display())), "{log}");
    assert!(log.contains("libGLX_nvidia.so.0: neither in LD_LIBRARY_PATH nor"), "{log}");
    Ok(())
}
