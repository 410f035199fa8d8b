//! `vkgdr doctor`: what stands between a program and GPU memory that the CPU maps, each with its remedy.

mod check;
mod drivers;
mod gpu;
mod limits;
mod page;

use serde_json::json;
use vkgdr::diagnosis::{Evidence, System};

use crate::Result;
use crate::screen::{Screen, unless_closed};
use check::{Check, Group, Level};

/// The state of the machine, which is also the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Usable = 0,
    Limited = 1,
    Unusable = 2,
}

impl Verdict {
    /// `opened`: whether CUDA and this library could open a GPU.
    fn of(checks: &[Check], opened: bool) -> Self {
        let worst = checks.iter().map(|check| check.level).max();
        match worst {
            _ if !opened => Self::Unusable,
            Some(Level::Limited | Level::Failed) => Self::Limited,
            _ => Self::Usable,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Usable => "usable",
            Self::Limited => "limited",
            Self::Unusable => "unusable",
        }
    }
}

/// All checks, and whether they found a simulated GPU.
#[derive(Debug)]
struct Findings {
    checks: Vec<Check>,
    verdict: Verdict,
    simulated: bool,
}

pub(crate) fn run(screen: &mut Screen, system: &System, json: bool) -> Result<u8> {
    let findings = Findings::gather(system);
    let printed = if json {
        let Findings { checks, verdict, simulated } = &findings;
        screen.print_json(&json!({
            "version": env!("CARGO_PKG_VERSION"),
            "status": verdict.name(),
            "exit_code": *verdict as u8,
            "simulated": simulated,
            "checks": checks.iter().map(Check::json).collect::<Vec<_>>(),
        }))
    } else {
        screen.print(&page::text(&findings, screen))
    };
    unless_closed(printed)?;
    Ok(findings.verdict as u8)
}

impl Findings {
    fn gather(system: &System) -> Self {
        let evidence = Evidence::gather(system);
        let mut checks = drivers::cuda(system, &evidence);
        let gpus = gpu::all(system, &evidence);
        checks.extend(gpus.start);
        checks.extend(drivers::vulkan(system, &evidence));
        checks.extend(limits::all(system));
        let opened = gpus.devices.iter().any(|device| device.opened);
        let all_mapped = opened && gpus.devices.iter().all(|device| device.mapped);
        for check in &mut checks {
            match check.group {
                Group::Cuda if opened => check.excuse("CUDA works nevertheless"),
                Group::Vulkan if all_mapped => check.excuse("memory can be mapped nevertheless"),
                Group::Cuda | Group::Vulkan | Group::Own => {}
            }
        }
        let simulated = gpus.devices.iter().any(|device| device.simulated);
        checks.extend(gpus.devices.into_iter().flat_map(|device| device.checks));
        let verdict = Verdict::of(&checks, opened);
        Self { checks, verdict, simulated }
    }
}
