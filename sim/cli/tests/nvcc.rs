//! The script `nvcc`, which vkgdr-sim puts first on PATH, with scripts in place of NVIDIA's nvcc.

use std::error::Error;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A failure leaves files in the temporary folder only.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("vkgdr-nvcc-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    /// A program `nvcc` in a folder of its own, which is returned.
    fn nvcc(&self, name: &str, script: &[u8]) -> Result<PathBuf> {
        let folder = self.0.join(name);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("nvcc"), script)?;
        fs::set_permissions(folder.join("nvcc"), Permissions::from_mode(0o755))?;
        Ok(folder)
    }
}

fn ours() -> Result<Vec<u8>> {
    Ok(fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("nvcc"))?)
}

/// Runs the nvcc of the first folder, with a PATH of these folders alone.
fn run(folders: &[&Path], arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(folders[0].join("nvcc"));
    command.args(arguments).env("PATH", std::env::join_paths(folders)?).env_remove("VKGDR_SIM_NVCC");
    Ok(command.output()?)
}

/// What the real nvcc is called with.
fn passed(arguments: &[&str]) -> Result<String> {
    let folder = Folder::new("passed")?;
    let sim = folder.nvcc("sim", &ours()?)?;
    let real = folder.nvcc("real", b"#!/bin/sh\necho \"$@\"\n")?;
    let output = run(&[&sim, &real], arguments)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Neither cmp nor another program is on this PATH.
#[test]
fn copies_of_the_script_folders_and_files_that_are_not_programs_are_passed_over() -> Result {
    let folder = Folder::new("copies")?;
    let (sim, copy) = (folder.nvcc("sim", &ours()?)?, folder.nvcc("copy", &[&ours()?[..], b"# older\n"].concat())?);
    let text = folder.nvcc("text", b"#!/bin/sh\necho text\n")?;
    fs::set_permissions(text.join("nvcc"), Permissions::from_mode(0o644))?;
    fs::create_dir_all(folder.0.join("folder/nvcc"))?;
    let real = folder.nvcc("real", b"#!/bin/sh\necho real \"$@\"\n")?;
    let output = run(&[&sim, &copy, &folder.0.join("folder"), &text, &real], &["-c", "x.cu"])?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "real -c x.cu\n", "{output:?}");
    Ok(())
}

#[test]
fn a_program_that_starts_the_nvcc_of_path_is_started_once() -> Result {
    let folder = Folder::new("wrapper")?;
    let (sim, wrapper) = (folder.nvcc("sim", &ours()?)?, folder.nvcc("wrapper", b"#!/bin/sh\nexec nvcc \"$@\"\n")?);
    let real = folder.nvcc("real", b"#!/bin/sh\necho real \"$@\"\n")?;
    let output = run(&[&sim, &wrapper, &real], &["-c", "x.cu"])?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "real -c x.cu\n", "{output:?}");
    let output = run(&[&sim, &wrapper, Path::new("/usr/bin"), Path::new("/bin")], &["-c", "x.cu"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        eprintln!("skipped: the system has an nvcc");
        return Ok(());
    }
    assert!(said.contains(&format!("what starts the nvcc of PATH: {}", wrapper.join("nvcc").display())), "{said}");
    Ok(())
}

#[test]
fn what_would_be_a_cubin_is_ptx_where_the_cubin_would_be() -> Result {
    for (arguments, expected) in [
        ("--cubin x.cu", "--ptx x.cu -o x.cubin"),
        ("--cubin -o y x.cu", "--ptx -o y x.cu"),
        ("--cubin -o=y x.cu", "--ptx -o=y x.cu"),
        ("--cubin --output-file=y x.cu", "--ptx --output-file=y x.cu"),
        ("-cubin -odir d src/x.cu", "--ptx -odir d src/x.cu -o d/x.cubin"),
        ("-cubin --output-directory=d x.cu", "--ptx --output-directory=d x.cu -o d/x.cubin"),
        ("-cubin -objtemp x.cu", "--ptx -objtemp x.cu -o x.cubin"),
        ("-cubin -optf file x.cu", "--ptx -optf file x.cu -o x.cubin"),
        ("-c x.cu", "-c x.cu"),
    ] {
        assert_eq!(passed(&arguments.split(' ').collect::<Vec<_>>())?, expected, "{arguments}");
    }
    Ok(())
}
