//! The checks as text for a terminal.

use super::check::{Check, Level};
use super::{Findings, Verdict};
use crate::screen::{Colour, Screen, wrap};

/// The columns of the level, and of the subject with it.
const LEVEL: usize = 9;
const SUBJECT: usize = 16;
/// In terminals with fewer columns the text is below its subject.
const NARROW: usize = 60;

pub(super) fn text(findings: &Findings, screen: &Screen) -> String {
    let width = screen.width();
    let mut lines = wrap(&format!("vkgdr {}", env!("CARGO_PKG_VERSION")), width, "", "  ");
    if findings.simulated {
        lines.extend(wrap("The CUDA driver is simulated: this is no GPU.", width, "", "  "));
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
        Verdict::Limited => "Usable with limits, see above.",
        Verdict::Unusable => {
            "Not usable: there is no GPU that CUDA can use. `vkgdr sim -- PROGRAM` runs programs on a simulated one."
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
