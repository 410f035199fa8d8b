//! `share_file`: its report, its progress on a terminal, and wrong arguments.
#![expect(unsafe_code, reason = "creates a pseudo-terminal")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::ptr::null_mut;

use support::{Result, pattern, simcuda, skip, test_all};
use vkgdr::{MemoryKind, OpenFlags, Vkgdr};

use crate::{Folder, assert_failure, assert_success, example, find, lines, run};

/// Fails unless the report of a file is complete and its checksums are right.
#[track_caller]
fn assert_report(report: &[String], path: &Path, content: &[u8]) {
    let starts = |word: &str| report.iter().find(|line| line.starts_with(word)).cloned().unwrap_or_default();
    assert!(starts("file ").contains(&path.display().to_string()), "{report:#?}");
    assert!(starts("memory ").contains("mapped") && starts("memory ").contains("coherent"), "{report:#?}");
    assert!(starts("heap").contains("iB"), "{report:#?}");
    assert!(starts("CPU's view").contains("0x") && starts("GPU's view").contains("0x"), "{report:#?}");
    assert_ne!(starts("CPU's view").split("0x").last(), starts("GPU's view").split("0x").last());
    assert!(starts("copied by the GPU").contains(&format!("{:08x}", crc32fast::hash(content))), "{report:#?}");
    let fill = crc32fast::hash(&vec![0xa5; content.len()]);
    assert!(starts("filled by the GPU").contains(&format!("{fill:08x}")), "{report:#?}");
    let says_simulated = report.iter().any(|line| line.contains("simulated"));
    assert_eq!(says_simulated, simcuda().is_some(), "{report:#?}");
    for step in ["open the GPU", "CPU: file to GPU memory", "GPU: copy", "GPU: fill", "CPU: read the second"] {
        assert!(starts(step).contains(" ms"), "{report:#?}");
    }
}

#[test]
fn share_file_sends_its_own_program_without_an_argument() -> Result {
    let program = example!("share_file");
    let output = run::<&str>(&program, &[])?;
    let report = assert_success(&output, &program);
    assert_report(&report, &program, &fs::read(&program)?);
    Ok(())
}

#[test]
fn share_file_sends_the_file_that_it_is_given() -> Result {
    let program = example!("share_file");
    let folder = Folder::create("given")?;
    for len in [1, 4095, 4097, (1 << 20) + 1, 5 << 20] {
        let content = pattern(len, len as u64);
        let file = folder.file("a file with spaces", &content)?;
        let report = assert_success(&run(&program, &[&file])?, &file);
        assert_report(&report, &file, &content);
    }
    Ok(())
}

#[test]
fn share_file_explains_itself() -> Result {
    let program = example!("share_file");
    for flag in ["-h", "--help"] {
        let text = assert_success(&run(&program, &[flag])?, Path::new("/"));
        assert!(text.first().is_some_and(|line| line.starts_with("usage: share_file")), "{text:#?}");
    }
    Ok(())
}

#[test]
fn share_file_refuses_a_path_that_is_not_there_in_one_line() -> Result {
    let program = example!("share_file");
    let folder = Folder::create("missing")?;
    let path = folder.0.join("nothing here");
    assert_failure(&run(&program, &[&path])?, &["share_file: ", "nothing here", "No such file"]);
    assert_failure(&run(&program, &[""])?, &["share_file: ", "No such file"]);
    Ok(())
}

#[test]
fn share_file_refuses_a_folder_and_what_is_no_file_in_one_line() -> Result {
    let program = example!("share_file");
    let folder = Folder::create("folder")?;
    assert_failure(&run(&program, &[&folder.0])?, &["vkgdr-folder", "not a regular file"]);
    assert_failure(&run(&program, &["/dev/null"])?, &["/dev/null", "not a regular file"]);
    Ok(())
}

#[test]
fn share_file_refuses_an_empty_file_in_one_line() -> Result {
    let program = example!("share_file");
    let folder = Folder::create("empty")?;
    let file = folder.file("empty", b"")?;
    assert_failure(&run(&program, &[&file])?, &["the file is empty"]);
    Ok(())
}

#[test]
fn share_file_refuses_a_file_larger_than_the_heap_in_one_line() -> Result {
    let program = example!("share_file");
    let folder = Folder::create("large")?;
    // Not every file system supports files of 100 TiB (ext4: 16 TiB).
    let file = [100_u64 << 40, 15 << 40].into_iter().find_map(|len| folder.sparse("large", len).ok());
    let Some(file) = file else {
        return skip("the file system of the temporary folder has no files of 15 TiB");
    };
    assert_failure(&run(&program, &[&file])?, &["large: needs", "TiB of mapped memory", "available"]);
    Ok(())
}

#[test]
fn share_file_refuses_a_second_argument_in_one_line() -> Result {
    let program = example!("share_file");
    let arguments = [program.as_os_str(), OsStr::new("and this")];
    assert_failure(&run(&program, &arguments)?, &["one FILE is enough", "and this"]);
    Ok(())
}

#[test]
fn share_file_without_a_driver_says_so_in_one_line() -> Result {
    let program = example!("share_file");
    if simcuda().is_none() {
        return skip("a real driver cannot be hidden");
    }
    let output = Command::new(&program).env("LD_LIBRARY_PATH", "/dev/null/lib").stdin(Stdio::null()).output()?;
    if output.status.success() {
        return skip("there is a libcuda besides the simulated one");
    }
    assert_failure(&output, &["share_file: libcuda.so.1", "install the NVIDIA driver"]);
    Ok(())
}

/// Both ends of a pseudo-terminal of `columns` columns.
fn terminal(columns: u16) -> Option<(File, OwnedFd)> {
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut user, mut program) = (-1, -1);
    // SAFETY: the descriptors are valid outputs, the size is a live local, and null asks for the defaults.
    let code = unsafe { libc::openpty(&raw mut user, &raw mut program, null_mut(), null_mut(), &raw const size) };
    if code != 0 {
        return None;
    }
    // SAFETY: the call created the descriptor for its caller.
    let user = unsafe { OwnedFd::from_raw_fd(user) };
    // SAFETY: as above.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    Some((File::from(user), program))
}

/// The program's output on a terminal as stderr; its stdout is a pipe. None if no pseudo-terminal can be created.
fn run_on_terminal(program: &Path, file: &Path, columns: u16) -> Result<Option<(Output, String)>> {
    let Some((mut user, stderr)) = terminal(columns) else { return Ok(None) };
    let child = Command::new(program)
        .arg(file)
        .env("TERM", "xterm")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()?;
    let reader = std::thread::spawn(move || {
        let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
        // Reading a terminal fails once the other end is closed.
        while let Ok(n @ 1..) = user.read(&mut buffer) {
            text.extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let output = child.wait_with_output()?;
    Ok(Some((output, reader.join().map_err(|_| "the reader panicked")?)))
}

/// The text of each drawn line, without control sequences (`ESC [ … letter`).
fn drawn(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            plain.push('\n');
            let _ = rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(if c == '\r' { '\n' } else { c });
        }
    }
    plain.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn share_file_draws_its_progress_within_a_narrow_terminal() -> Result {
    let program = example!("share_file");
    if simcuda().is_none() {
        return skip("reading 512 MiB back through a BAR takes a minute and covers nothing new");
    }
    if !test_all() {
        return skip("copies of 256 MiB are slow (set VKGDR_TEST_ALL=1)");
    }
    let folder = Folder::create("narrow")?;
    let file = folder.sparse("zeros", (256 << 20) + 1)?;
    let available = Vkgdr::open(0, OpenFlags::empty())?.memory_info(MemoryKind::Mapped)?.available;
    if available < 1 << 30 {
        return skip("a progress bar needs a file of 256 MiB, three of which do not fit into mapped memory");
    }
    // The width of the table of steps.
    let columns = 48;
    let Some((output, text)) = run_on_terminal(&program, &file, columns)? else {
        return skip("no terminal can be made here (is /dev/pts mounted?)");
    };
    assert!(output.status.success(), "{text}");
    let drawn = drawn(&text);
    assert!(drawn.iter().any(|line| line.contains("writing the file")), "no progress: {text:?}");
    for line in drawn {
        assert!(line.chars().count() <= usize::from(columns), "{columns} columns: {line:?}");
    }
    assert!(lines(&output.stdout).iter().any(|line| line.starts_with("copied by the GPU")));
    Ok(())
}

#[test]
fn share_file_draws_no_progress_for_a_small_file() -> Result {
    let program = example!("share_file");
    let folder = Folder::create("small")?;
    let file = folder.file("small", &pattern(1000, 1))?;
    let Some((output, text)) = run_on_terminal(&program, &file, 80)? else {
        return skip("no terminal can be made here (is /dev/pts mounted?)");
    };
    assert!(output.status.success(), "{text}");
    assert_eq!(text, "");
    Ok(())
}

#[test]
fn sharing_a_file_ends_quietly_when_nobody_reads_the_report() -> Result {
    let program = example!("share_file");
    let mut command = Command::new(&program);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(lines(&output.stderr), [""; 0]);
    Ok(())
}
