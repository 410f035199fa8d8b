//! `share_file`: its report, and wrong arguments.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Result, pattern, simcuda, skip};

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
