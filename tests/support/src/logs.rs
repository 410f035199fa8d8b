//! Captured log lines of vkgdr.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use log::{LevelFilter, Log, Metadata, Record};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("vkgdr")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            lines().push(format!("{}: {}", record.level(), record.args()));
        }
    }

    fn flush(&self) {}
}

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts recording, and discards earlier lines.
///
/// # Panics
/// When another logger is installed.
pub fn capture() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let installed = log::set_logger(&Recorder);
        assert!(installed.is_ok(), "another logger is installed");
        log::set_max_level(LevelFilter::Trace);
    });
    lines().clear();
}

/// The lines logged since [`capture`].
#[must_use]
pub fn captured() -> Vec<String> {
    lines().clone()
}
