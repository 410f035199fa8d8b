//! The folders of a run, and the programs that chores start.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use xshell::{Cmd, Shell};

use crate::{Misuse, Result};

/// Where a run reads and writes. The shell's folder is that of the sources.
pub(crate) struct Context {
    pub(crate) sh: Shell,
    /// Cargo's target folder.
    pub(crate) target: PathBuf,
}

impl Context {
    /// Reads the environment.
    pub(crate) fn new() -> Result<Self> {
        // Cargo's variable first: a target folder may be shared by several checkouts.
        let manifest = env::var_os("CARGO_MANIFEST_DIR");
        let manifest = manifest.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&manifest).parent().ok_or("xtask has no parent folder")?.to_path_buf();
        let sh = Shell::new()?;
        sh.change_dir(&root);
        let shared = env::var_os("CARGO_TARGET_DIR").map(|folder| root.join(folder));
        let target = shared.clone().unwrap_or_else(|| root.join("target"));
        let default = shared.clone().unwrap_or_else(|| root.join("sim/target")).join("sim");
        let sim = env::var_os("VKGDR_SIM_DIR").map_or(default, |folder| root.join(folder));
        if let Some(folder) = shared {
            sh.set_var("CARGO_TARGET_DIR", folder);
        }
        sh.set_var("VKGDR_SIM_DIR", &sim);
        Ok(Self { sh, target })
    }

    /// A command line, split at spaces, that is not echoed.
    pub(crate) fn command(&self, line: &str) -> Cmd<'_> {
        let mut words = line.split_whitespace();
        self.sh.cmd(words.next().unwrap_or_default()).args(words).quiet()
    }

    /// A command of `cargo` with `--locked`, which is an option of the subcommand.
    pub(crate) fn cargo(&self, line: &str) -> Cmd<'_> {
        let (subcommand, options) = line.split_once(' ').unwrap_or((line, ""));
        self.command("cargo").arg(subcommand).arg("--locked").args(options.split_whitespace())
    }

    /// Chooses the driver, once for all children.
    pub(crate) fn choose_driver(&self) -> Result {
        let driver = self.command("sim/run --driver").read()?;
        say(format!("CUDA driver: {}", if driver == "real" { "the real one" } else { "simulated, on lavapipe" }));
        self.sh.set_var("VKGDR_CUDA_DRIVER", driver);
        Ok(())
    }

    /// A program of `python/tools`, the environment that `scripts/setup.sh python` makes.
    pub(crate) fn tool(&self, name: &str) -> Cmd<'_> {
        self.sh.cmd(self.target.join("python/tools/bin").join(name)).quiet()
    }

    /// Sessions of `noxfile.py`.
    pub(crate) fn nox(&self, line: &str) -> Cmd<'_> {
        self.tool("nox").args(["--session"]).args(line.split_whitespace())
    }

    /// Empties a folder, or creates it.
    pub(crate) fn fresh(&self, folder: &Path) -> Result {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        Ok(fs::create_dir_all(folder)?)
    }
}

/// Announces a step.
pub(crate) fn say(text: impl AsRef<str>) {
    println!("==> {}", text.as_ref());
}

/// The names of the chores' parts that were asked for, or all of them.
pub(crate) fn parts<'a>(asked: &'a [String], all: &[&'a str]) -> Result<Vec<&'a str>> {
    if let Some(unknown) = asked.iter().find(|part| !all.contains(&part.as_str())) {
        return Err(Misuse(format!("there is no part '{unknown}', only: {}", all.join(" "))).into());
    }
    Ok(if asked.is_empty() { all.to_vec() } else { asked.iter().map(String::as_str).collect() })
}

/// Fails with a list of what failed, unless it is empty.
pub(crate) fn none_failed(failed: &[String]) -> Result {
    if failed.is_empty() { Ok(()) } else { Err(format!("FAILED: {}", failed.join(", ")).into()) }
}
