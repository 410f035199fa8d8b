//! One thing that was looked at.

use serde_json::{Value, json};
use vkgdr::diagnosis::Finding;

/// From good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// Worth knowing; nothing that this library does needs it.
    Note,
    /// Something does not work, or only in part.
    Limited,
    /// CUDA, or a GPU, cannot be used.
    Failed,
}

impl Level {
    pub(super) fn name(self) -> &'static str {
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
pub(super) enum Group {
    /// CUDA. If a GPU can be opened, the problem does no harm.
    Cuda,
    /// Vulkan, and so mapped memory. If all GPUs have mapped memory, the problem does no harm.
    Vulkan,
    /// What the check is named after.
    Own,
}

#[derive(Debug, Clone)]
pub(super) struct Check {
    /// A name for programs, which does not change.
    pub(super) id: &'static str,
    /// At most 15 characters.
    pub(super) subject: &'static str,
    pub(super) device: Option<i32>,
    pub(super) group: Group,
    pub(super) level: Level,
    pub(super) text: String,
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn ok(id: &'static str, subject: &'static str, text: impl Into<String>) -> Self {
        Self { id, subject, device: None, group: Group::Own, level: Level::Ok, text: text.into(), remedy: None }
    }

    /// The same at another level, with a remedy.
    pub(super) fn at(self, level: Level, remedy: impl Into<String>) -> Self {
        Self { level, remedy: Some(remedy.into()), ..self }
    }

    pub(super) fn of(self, group: Group) -> Self {
        Self { group, ..self }
    }

    pub(super) fn on(self, device: i32) -> Self {
        Self { device: Some(device), ..self }
    }

    /// A problem with Vulkan.
    pub(super) fn found(id: &'static str, subject: &'static str, finding: Finding) -> Self {
        let Finding { problem, remedy, .. } = finding;
        Self::ok(id, subject, problem).of(Group::Vulkan).at(Level::Limited, remedy)
    }

    /// Makes a problem a note, since it does no harm.
    pub(super) fn excuse(&mut self, reason: &str) {
        if self.level > Level::Note {
            self.level = Level::Note;
            self.text += &format!("; {reason}");
            self.remedy = None;
        }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "id": self.id,
            "status": self.level.name(),
            "device": self.device,
            "text": self.text,
            "remedy": self.remedy,
        })
    }
}
