//! `vkgdr completions`.

use clap_complete::Shell;

use crate::Result;
use crate::command;

/// The completions of a shell.
pub(crate) fn completions(shell: Shell) -> Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "vkgdr", &mut text);
    Ok(String::from_utf8(text)?)
}
