//! `vkgdr doctor`: what stands between a program and GPU memory that the CPU maps, each with its remedy.

mod drivers;
mod gpu;

use serde_json::{Value, json};
use vkgdr::diagnosis::{Evidence, Finding, System};

use crate::Result;
use crate::screen::{Colour, Screen, unless_closed, wrap};

/// From good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok,
    /// Worth knowing; nothing that this library does needs it.
    Note,
    /// Something does not work, or only in part.
    Limited,
    /// CUDA, or a GPU, cannot be used.
    Failed,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Limited => "limited",
            Self::Failed => "failed",
        }
    }
}

/// What a check's problem keeps from working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// CUDA. If a GPU can be opened, the problem does no harm.
    Cuda,
    /// Vulkan, and so mapped memory. If all GPUs have mapped memory, the problem does no harm.
    Vulkan,
    /// What the check is named after.
    Own,
}

#[derive(Debug, Clone)]
struct Check {
    /// A name for programs, which does not change.
    id: &'static str,
    /// At most 15 characters.
    subject: &'static str,
    device: Option<i32>,
    group: Group,
    level: Level,
    text: String,
    remedy: Option<String>,
}

impl Check {
    fn ok(id: &'static str, subject: &'static str, text: impl Into<String>) -> Self {
        Self { id, subject, device: None, group: Group::Own, level: Level::Ok, text: text.into(), remedy: None }
    }

    /// The same at another level, with a remedy.
    fn at(self, level: Level, remedy: impl Into<String>) -> Self {
        Self { level, remedy: Some(remedy.into()), ..self }
    }

    fn of(self, group: Group) -> Self {
        Self { group, ..self }
    }

    fn on(self, device: i32) -> Self {
        Self { device: Some(device), ..self }
    }

    /// A problem with Vulkan.
    fn found(id: &'static str, subject: &'static str, finding: Finding) -> Self {
        let Finding { problem, remedy, .. } = finding;
        Self::ok(id, subject, problem).of(Group::Vulkan).at(Level::Limited, remedy)
    }

    /// Makes a problem a note, since it does no harm.
    fn excuse(&mut self, reason: &str) {
        if self.level > Level::Note {
            self.level = Level::Note;
            self.text += &format!(", but {reason}");
            self.remedy = None;
        }
    }

    fn json(&self) -> Value {
        json!({
            "id": self.id,
            "status": self.level.name(),
            "device": self.device,
            "text": self.text,
            "remedy": self.remedy,
        })
    }
}

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
        screen.print(&page(&findings, screen))
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
        checks.extend(drivers::limits(system));
        let opened = gpus.devices.iter().any(|device| device.opened);
        let all_mapped = opened && gpus.devices.iter().all(|device| device.mapped);
        for check in &mut checks {
            match check.group {
                Group::Cuda if opened => check.excuse("CUDA works"),
                Group::Vulkan if all_mapped => check.excuse("memory can be mapped"),
                Group::Cuda | Group::Vulkan | Group::Own => {}
            }
        }
        let simulated = gpus.devices.iter().any(|device| device.simulated);
        checks.extend(gpus.devices.into_iter().flat_map(|device| device.checks));
        let verdict = Verdict::of(&checks, opened);
        Self { checks, verdict, simulated }
    }
}

/// The columns of the level, and of the subject with it.
const LEVEL: usize = 9;
const SUBJECT: usize = 16;
/// In terminals with fewer columns the text is below its subject.
const NARROW: usize = 60;

fn page(findings: &Findings, screen: &Screen) -> String {
    let width = screen.width();
    let mut lines = wrap(&format!("vkgdr {}", env!("CARGO_PKG_VERSION")), width, "", "  ");
    if findings.simulated {
        lines.extend(wrap("The CUDA driver is simulated: this is not a GPU.", width, "", "  "));
    }
    lines.push(String::new());
    let mut device = None;
    for check in &findings.checks {
        if check.device != device {
            device = check.device;
            lines.push(String::new());
            lines.extend(device.map(|number| format!("CUDA device {number}")));
        }
        add(&mut lines, check, screen);
    }
    let verdict = match findings.verdict {
        Verdict::Usable => "Usable: the CPU can map GPU memory.",
        Verdict::Limited => "Usable with limits: see the lines above that are marked limited or failed.",
        Verdict::Unusable => {
            "Not usable: no GPU can be opened. `vkgdr sim -- PROGRAM` runs programs on a simulated one."
        }
    };
    lines.push(String::new());
    lines.extend(wrap(verdict, width, "", "  "));
    lines.join("\n")
}

fn add(lines: &mut Vec<String>, check: &Check, screen: &Screen) {
    let Check { level, subject, text, remedy, .. } = check;
    let colour = match level {
        Level::Ok => Colour::Green,
        Level::Note => Colour::Blue,
        Level::Limited => Colour::Yellow,
        Level::Failed => Colour::Red,
    };
    let level = screen.paint(colour, &format!("{:LEVEL$}", level.name()));
    let indent = if screen.width() < NARROW { 2 } else { LEVEL + SUBJECT };
    let rest = " ".repeat(indent);
    if indent == 2 {
        lines.push(format!("{level}{subject}"));
    }
    let mut body = wrap(text, screen.width(), &rest, &rest);
    if indent != 2 {
        // The colour's codes have no width.
        body[0] = format!("{level}{subject:SUBJECT$}{}", &body[0][indent..]);
    }
    lines.extend(body);
    if let Some(remedy) = remedy {
        lines.extend(wrap(remedy, screen.width(), &format!("{rest}-> "), &format!("{rest}   ")));
    }
}
