//! A description of the machine.

use std::fs;
use std::num::NonZero;
use std::process::Command;
use std::thread;

pub(super) struct Machine {
    /// The GPU's name, marked if it is simulated.
    pub(super) driver: String,
    pub(super) simulated: bool,
    /// The version line of NVIDIA's kernel module; none without it and on the simulator.
    pub(super) nvidia: Option<String>,
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) kernel: String,
    pub(super) date: String,
}

impl Machine {
    pub(super) fn here(gpu: &str) -> Self {
        let simulated = support::simcuda().is_some();
        let driver = if simulated { format!("simulated CUDA driver ({gpu})") } else { gpu.to_owned() };
        Self {
            driver,
            simulated,
            nvidia: nvidia().filter(|_| !simulated),
            cpu: cpu().unwrap_or_else(|| "unknown CPU".to_owned()),
            cores: thread::available_parallelism().map_or(1, NonZero::get),
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned()),
            date: date(),
        }
    }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  …`
fn nvidia() -> Option<String> {
    let line = line("/proc/driver/nvidia/version")?;
    Some(line.trim_start_matches("NVRM version:").trim().to_owned())
}

fn cpu() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(model.trim_start_matches([':', ' ', '\t']).to_owned())
}

fn line(file: &str) -> Option<String> {
    fs::read_to_string(file).ok()?.lines().next().map(str::to_owned)
}

fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    output
        .map_or_else(|_| "unknown date".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
