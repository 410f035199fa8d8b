//! The command `vkgdr` with its manual and completions.

use std::fs;
use std::path::{Path, PathBuf};

use super::folders::{Folders, lexical};
use crate::Result;
use crate::context::{Context, say};

/// The pages of the manual.
const PAGES: [&str; 10] = [
    "vkgdr",
    "vkgdr-bench",
    "vkgdr-bench-alloc",
    "vkgdr-bench-bw",
    "vkgdr-bench-latency",
    "vkgdr-bench-pingpong",
    "vkgdr-completions",
    "vkgdr-doctor",
    "vkgdr-info",
    "vkgdr-sim",
];
/// The files of the shells' completions, and the folders below `share` where the shells look.
const COMPLETIONS: [(&str, &str); 3] = [
    ("vkgdr", "bash-completion/completions"),
    ("_vkgdr", "zsh/site-functions"),
    ("vkgdr.fish", "fish/vendor_completions.d"),
];

/// A file to copy: from, to, and its mode.
pub(super) type Copied = (PathBuf, PathBuf, u32);

/// The folder of the manual and the completions.
fn texts(context: &Context) -> PathBuf {
    context.target.join("vkgdr-texts")
}

/// Builds the command. This machine writes its manual, also where the command is for another one.
pub(super) fn build(context: &Context) -> Result {
    say("building the command vkgdr");
    context.cargo("build --quiet --release --package vkgdr-cli --bins").run()?;
    let for_host = context.cargo("build --quiet --release --package vkgdr-cli --example manual");
    for_host.env_remove("CARGO_BUILD_TARGET").run()?;
    let folder = texts(context);
    context.fresh(&folder)?;
    context.sh.cmd(context.target.join("release/examples/manual")).arg(&folder).quiet().run()?;
    let mut pages = fs::read_dir(folder.join("man"))?
        .map(|file| Ok(file?.file_name().to_string_lossy().trim_end_matches(".1").to_owned()))
        .collect::<Result<Vec<_>>>()?;
    pages.sort();
    if pages != PAGES { Err(format!("the manual has other pages: {}", pages.join(" ")).into()) } else { Ok(()) }
}

/// The command's files; `built` is the folder of the programs.
pub(super) fn files(context: &Context, folders: &Folders, built: &Path) -> Vec<Copied> {
    let below = |path: &str| lexical(&folders.prefix.join(path));
    let texts = texts(context);
    let mut files = vec![(built.join("vkgdr"), below("bin/vkgdr"), 0o755)];
    files.extend(PAGES.iter().map(|page| {
        let name = format!("{page}.1");
        (texts.join("man").join(&name), below("share/man/man1").join(name), 0o644)
    }));
    files.extend(
        COMPLETIONS.iter().map(|(name, folder)| {
            (texts.join("completions").join(name), below("share").join(folder).join(name), 0o644)
        }),
    );
    files
}
