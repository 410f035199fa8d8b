//! The command line: help, wrong arguments, closed pipes, other programs.

use std::fs;
use std::io::pipe;
use std::process::Command;

use support::Result;

use crate::machine::{Machine, Printed, need_simulator};

#[test]
fn help_and_version_need_no_driver_and_fit_the_terminal() -> Result {
    let machine = Machine::bare()?.with_variable("COLUMNS", "60");
    for command in [&[][..], &["info"], &["doctor"], &["completions"], &["bench", "bw"], &["bench", "alloc"]] {
        let printed = machine.run(&[command, &["--help"]].concat())?;
        assert_eq!((printed.code, printed.err.as_str()), (Some(0), ""), "{command:?}");
        let has_json = !command.contains(&"completions");
        assert!(printed.out.contains("Usage: vkgdr"), "{}", printed.out);
        assert_eq!(printed.out.contains("--json"), has_json, "{}", printed.out);
        for line in printed.out.lines() {
            assert!(line.chars().count() <= 60, "{command:?}: {line}");
        }
    }
    assert_eq!(machine.run(&["--version"])?.out, format!("vkgdr {}\n", env!("CARGO_PKG_VERSION")));
    Ok(())
}

#[test]
fn wrong_arguments_are_refused_on_stderr() -> Result {
    let machine = Machine::bare()?;
    for (arguments, word) in [
        (&["--nonsense"][..], "--nonsense"),
        (&["nonsense"], "nonsense"),
        (&["docter"], "doctor"),
        (&["doctor", "now"], "now"),
        (&["--js"], "--js"),
        (&["completions"], "SHELL"),
        (&["completions", "cmd"], "bash"),
        (&["completions", "bash", "--json"], "--json"),
        (&["--json", "completions", "bash"], "--json"),
        (&["--json", "sim", "--", "true"], "--json"),
    ] {
        let printed = machine.run(arguments)?;
        assert_eq!((printed.code, printed.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(printed.err.contains(word), "{arguments:?}: {}", printed.err);
    }
    Ok(())
}

#[test]
fn a_reader_that_goes_early_is_no_error_and_does_not_change_the_answer() -> Result {
    let check = |machine: &Machine, arguments: &[&str], code| -> Result {
        let (reader, writer) = pipe()?;
        drop(reader);
        let printed = Printed::from(machine.command(arguments)?.stdout(writer).output()?);
        assert_eq!((printed.code, printed.err.as_str()), (Some(code), ""), "{arguments:?}");
        Ok(())
    };
    let machine = Machine::bare()?;
    for (arguments, code) in [
        (&["doctor"][..], 2),
        (&["doctor", "--json"], 2),
        (&["info"], 1),
        (&["--json"], 1),
        (&["completions", "bash"], 0),
        (&["--help"], 0),
    ] {
        check(&machine, arguments, code)?;
    }
    need_simulator!();
    check(&Machine::simulated("rebar")?, &["bench", "latency"], 0)
}

#[test]
fn json_is_asked_for_before_or_after_the_command() -> Result {
    let machine = Machine::bare()?;
    for arguments in [&["--json"][..], &["--json", "info"], &["info", "--json"]] {
        assert!(machine.run(arguments)?.json()?["devices"].is_array(), "{arguments:?}");
    }
    for arguments in [["--json", "doctor"], ["doctor", "--json"]] {
        assert_eq!(machine.run(&arguments)?.json()?["exit_code"], 2, "{arguments:?}");
    }
    need_simulator!();
    let machine = Machine::simulated("rebar")?;
    let options = ["--from", "64", "--to", "64", "--kind", "host", "--direction", "read"];
    for command in [["--json", "bench", "latency"], ["bench", "--json", "latency"], ["bench", "latency", "--json"]] {
        assert_eq!(machine.run(&[&command[..], &options].concat())?.json()?["bench"], "latency", "{command:?}");
    }
    Ok(())
}

#[test]
fn a_full_disk_is_an_error() -> Result {
    let full = || fs::File::options().write(true).open("/dev/full");
    let machine = Machine::bare()?;
    for arguments in
        [&["doctor"][..], &["--help"], &["--version"], &["bench", "bw", "--help"], &["completions", "fish"]]
    {
        let printed = Printed::from(machine.command(arguments)?.stdout(full()?).output()?);
        assert_eq!(printed.code, Some(1), "{arguments:?}");
        assert!(printed.err.starts_with("vkgdr: ") && printed.err.contains("No space left"), "{}", printed.err);
        let printed = Printed::from(machine.command(arguments)?.stdout(full()?).stderr(full()?).output()?);
        assert_eq!(printed.code, Some(1), "{arguments:?}, and nowhere to say it");
    }
    Ok(())
}

#[test]
fn completions_name_the_commands() -> Result {
    let machine = Machine::bare()?;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let printed = machine.run(&["completions", shell])?;
        assert_eq!(printed.code, Some(0), "{shell}");
        assert!(printed.out.contains("doctor"), "{shell}: {}", printed.out);
    }
    let file = machine.folder().join("vkgdr.bash");
    fs::write(&file, machine.run(&["completions", "bash"])?.out)?;
    // Complete `vkgdr doc`.
    let script = format!(
        "source '{}'; COMP_WORDS=(vkgdr doc) COMP_CWORD=1; _vkgdr vkgdr doc vkgdr; echo \"${{COMPREPLY[@]}}\"",
        file.display()
    );
    match Command::new("bash").args(["-c", &script]).output() {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), "doctor\n"),
        Err(error) => eprintln!("skipped the completion itself: bash: {error}"),
    }
    Ok(())
}

#[test]
fn sim_leaves_everything_to_vkgdr_sim() -> Result {
    need_simulator!();
    let folder = crate::machine::simulator().ok_or("no simulator")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let machine = Machine::bare()?.with_variable("PATH", path);
    let printed = machine.run(&["sim", "--profile", "rebar", "--", "sh", "-c", "echo $VKLAYER_PROFILE; exit 3"])?;
    assert_eq!((printed.code, printed.out.as_str()), (Some(3), "rebar\n"), "{}", printed.err);
    assert!(machine.run(&["sim", "--help"])?.out.contains("Usage: vkgdr-sim"));
    let printed = machine.run(&["sim"])?;
    assert_eq!(printed.code, Some(125));
    assert!(printed.err.contains("no program given"), "{}", printed.err);
    Ok(())
}

/// A copy of the command in a folder of its own: cargo may have built a vkgdr-sim beside the command, which lacks its files.
fn copy_of_vkgdr(machine: &Machine) -> Result<Command> {
    let copy = machine.folder().join("vkgdr");
    fs::copy(env!("CARGO_BIN_EXE_vkgdr"), &copy)?;
    let mut command = Command::new(copy);
    command.env("PATH", "/usr/bin:/bin");
    Ok(command)
}

#[test]
fn sim_finds_the_vkgdr_sim_beside_the_command() -> Result {
    let machine = Machine::bare()?;
    let mut command = copy_of_vkgdr(&machine)?;
    std::os::unix::fs::symlink("/bin/echo", machine.folder().join("vkgdr-sim"))?;
    let output = command.args(["sim", "--", "true"]).output()?;
    if output.status.code() == Some(0) && output.stdout != b"-- true\n" {
        eprintln!("skipped: vkgdr-sim is installed");
        return Ok(());
    }
    assert_eq!(output.stdout, b"-- true\n", "{output:?}");
    Ok(())
}

#[test]
fn sim_without_vkgdr_sim_says_how_to_install_it() -> Result {
    let machine = Machine::bare()?;
    let output = copy_of_vkgdr(&machine)?.args(["sim", "--", "true"]).output()?;
    if output.status.code() == Some(0) {
        eprintln!("skipped: vkgdr-sim is installed");
        return Ok(());
    }
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("vkgdr-sim is neither in a folder of PATH") && said.contains("make install-sim"), "{said}");
    Ok(())
}
