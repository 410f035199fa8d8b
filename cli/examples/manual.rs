//! Writes a page of the manual for each command of vkgdr to `FOLDER/man`, and its completions to `FOLDER/completions`, for
//! `make install`:
//!
//! ```text
//! cargo run --package vkgdr-cli --example manual FOLDER
//! ```

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use clap_complete::{Shell, generate};

/// The shells, with the names by which they find a command's completions.
const SHELLS: [(Shell, &str); 3] = [(Shell::Bash, "vkgdr"), (Shell::Zsh, "_vkgdr"), (Shell::Fish, "vkgdr.fish")];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("give the folder to write to")?);
    let (pages, completions) = (folder.join("man"), folder.join("completions"));
    fs::create_dir_all(&pages)?;
    fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(vkgdr_cli::command(), &pages)?;
    for (shell, name) in SHELLS {
        generate(shell, &mut vkgdr_cli::command(), "vkgdr", &mut fs::File::create(completions.join(name))?);
    }
    Ok(())
}
