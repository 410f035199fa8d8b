//! `scripts/setup.sh` on machines that lack Rust: the programs that they call are stand-ins, which write
//! their arguments to a log.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::{Result, folder, root};

/// Programs of the system that the scripts use as they are.
const PLAIN: [&str; 8] = ["bash", "cat", "cut", "dirname", "grep", "head", "sed", "sort"];

/// A machine: a folder with its only programs.
struct Machine {
    folder: PathBuf,
}

impl Machine {
    fn new(name: &str) -> Result<Self> {
        let folder = folder(name)?;
        fs::create_dir_all(folder.join("bin"))?;
        let path = std::env::var_os("PATH").ok_or("no PATH")?;
        for program in PLAIN {
            let mut found = std::env::split_paths(&path).map(|bin| bin.join(program));
            symlink(found.find(|path| path.is_file()).ok_or(program)?, folder.join("bin").join(program))?;
        }
        let machine = Self { folder };
        machine.program("cc", "")?;
        machine.user(1000)?;
        Ok(machine)
    }

    fn user(&self, id: u32) -> Result {
        self.program("id", &format!("echo {id}"))
    }

    /// A program that logs its arguments, then runs `script`, in which `$HERE` is the machine's folder.
    fn program(&self, name: &str, script: &str) -> Result {
        let path = self.folder.join("bin").join(name);
        let here = self.folder.display();
        let text = format!("#!/bin/sh\nHERE='{here}'\necho \"{name} $*\" >>\"$HERE/log\"\n{script}\n");
        fs::write(&path, text)?;
        Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
    }

    /// rustup, and the cargo of Debian's package, which fails as long as there is no toolchain.
    fn rustup_without_toolchain(&self) -> Result {
        self.program("cargo", "[ -e \"$HERE/default\" ] || exit 1\necho cargo 1.99.0")?;
        self.program(
            "rustup",
            "case \"$*\" in
             default) [ -e \"$HERE/default\" ] ;;
             'toolchain install stable --profile minimal') : >\"$HERE/toolchain\" ;;
             'default stable') [ -e \"$HERE/toolchain\" ] && : >\"$HERE/default\" ;;
             *) exit 2 ;;
             esac",
        )
    }

    /// A package manager that knows these packages only.
    fn packages(&self, known: &str) -> Result {
        self.program("apt-get", "")?;
        self.program("apt-cache", &format!("case ' {known} ' in *\" $2 \"*) echo '  Candidate: 1' ;; esac"))
    }

    fn setup(&self, variables: &[(&str, &str)]) -> Result<Output> {
        let mut command = Command::new("scripts/setup.sh");
        command
            .arg("rust")
            .current_dir(root())
            .env_clear()
            .env("PATH", self.folder.join("bin"))
            .env("HOME", &self.folder)
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            // A release without a package `rustup`.
            .env("VKGDR_TEST_OS_RELEASE", "/dev/null")
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        Ok(command.output()?)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn debians_rustup_gets_a_toolchain() -> Result {
    let machine = Machine::new("debians-rustup")?;
    machine.rustup_without_toolchain()?;
    let output = machine.setup(&[])?;
    assert!(output.status.success(), "{}", errors(&output));
    assert!(machine.log().contains("rustup toolchain install stable --profile minimal\nrustup default stable\n"));
    Ok(())
}

#[test]
fn a_rust_that_works_is_left_alone_and_one_that_is_too_old_refused() -> Result {
    for (version, is_enough) in [("1.88.0", true), ("1.85.0", false)] {
        let machine = Machine::new(version)?;
        machine.program("cargo", &format!("echo cargo {version}"))?;
        machine.program("rustup", "exit 1")?;
        let output = machine.setup(&[])?;
        assert_eq!(output.status.success(), is_enough, "{}", errors(&output));
        assert_eq!(errors(&output).contains("cargo 1.85.0 is older than 1.88"), !is_enough, "{}", errors(&output));
        assert!(!is_enough || !machine.log().contains("rustup"), "{}", machine.log());
    }
    Ok(())
}

#[test]
fn one_command_installs_all_packages() -> Result {
    let machine = Machine::new("one-command")?;
    fs::remove_file(machine.folder.join("bin/cc"))?;
    machine.packages("rustup")?;
    let output = machine.setup(&[])?;
    let command = "sudo apt-get update && sudo apt-get install -y gcc libc6-dev rustup\n";
    assert!(errors(&output).contains(command), "{}", errors(&output));
    assert!(!machine.log().contains("apt-get"), "an ordinary user does not install: {}", machine.log());
    Ok(())
}

#[test]
fn the_official_installer_needs_curl_and_runs_on_request() -> Result {
    let machine = Machine::new("curl")?;
    machine.packages("")?;
    let output = machine.setup(&[])?;
    assert!(errors(&output).contains("apt-get install -y curl ca-certificates\n"), "{}", errors(&output));
    // root is told both commands at once: the installer is run on request only, and nothing before it.
    machine.user(0)?;
    let output = machine.setup(&[])?;
    let commands = "    apt-get update && apt-get install -y curl ca-certificates\n    curl ";
    assert!(errors(&output).contains(commands), "{}", errors(&output));
    assert!(errors(&output).contains("or set INSTALL_RUST=1 for the last"), "{}", errors(&output));
    assert!(!machine.log().contains("apt-get"), "{}", machine.log());

    machine.user(1000)?;
    symlink("/bin/sh", machine.folder.join("bin/sh"))?;
    machine.program("curl", "exit 6")?;
    let output = machine.setup(&[("INSTALL_RUST", "1")])?;
    assert!(errors(&output).contains("the installer of Rust failed"), "{}", errors(&output));
    let made = "printf '#!/bin/sh\\necho cargo 1.99.0' >\"$HERE/bin/cargo\"; /bin/chmod +x \"$HERE/bin/cargo\"";
    machine.program("rustup-init", made)?;
    machine.program("curl", "echo rustup-init")?;
    let output = machine.setup(&[("INSTALL_RUST", "1")])?;
    assert!(output.status.success(), "{}", errors(&output));
    Ok(())
}
