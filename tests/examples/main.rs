//! The examples as users run them: output and failures.
//!
//! The programs are in `../examples` relative to this test's program, or in `VKGDR_EXAMPLES_DIR`.

mod receive_packets;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use support::{Result, profile, simcuda, skip, tempdir};
use vkgdr::{Memory, MemoryKind, OpenFlags, Vkgdr, ipc};

/// The path of an example's program, if it was built.
fn find(name: &str) -> Result<Option<PathBuf>> {
    let folder = match std::env::var_os("VKGDR_EXAMPLES_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => {
            let test = std::env::current_exe()?;
            let profile = test.parent().and_then(Path::parent).ok_or("the test has no folder")?;
            profile.join("examples")
        }
    };
    Ok(Some(folder.join(name)).filter(|path| path.is_file()))
}

/// The path of an example's program; skips the test without it.
macro_rules! example {
    ($name:literal) => {
        match find($name)? {
            Some(path) => path,
            None => {
                return skip(concat!(
                    $name,
                    " is not built: cargo build -p examples --examples, or set VKGDR_EXAMPLES_DIR"
                ))
            }
        }
    };
}
use example;

fn run<A: AsRef<OsStr>>(program: &Path, arguments: &[A]) -> Result<Output> {
    Ok(Command::new(program).args(arguments).stdin(Stdio::null()).env_remove("COLUMNS").output()?)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

/// Fails unless the program succeeded, printed nothing on stderr, and stayed within 80 columns.
#[track_caller]
fn assert_success(output: &Output, path: &Path) -> Vec<String> {
    let (out, err) = (lines(&output.stdout), lines(&output.stderr));
    assert!(output.status.success(), "{}: {out:#?} {err:#?}", output.status);
    assert_eq!(err, [""; 0], "on stderr, without a terminal");
    for line in &out {
        // Lines with a path may be longer.
        let line = line.replace(&path.display().to_string(), "");
        assert!(line.chars().count() <= 80, "more than 80 columns: {line}");
        assert!(!line.contains('\u{1b}') && !line.contains('\r'), "control characters without a terminal: {line:?}");
    }
    out
}

/// Fails unless the program exited with 1 and printed one line on stderr that contains all of `parts`.
#[track_caller]
fn assert_failure(output: &Output, parts: &[&str]) {
    let (out, err) = (lines(&output.stdout), lines(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out:#?} {err:#?}");
    assert_eq!(out, [""; 0], "on stdout");
    assert_eq!(err.len(), 1, "{err:#?}");
    for part in parts {
        assert!(err[0].contains(part), "{:?} does not say {part:?}", err[0]);
    }
}

/// There is no RDMA device, or no rdma-core, on most machines: then the example says so.
#[test]
fn register_memory_says_whether_there_is_such_memory_and_a_card() -> Result {
    let Some(simulator) = profile::simulator()? else { return Ok(()) };
    let program = example!("register_memory");
    for (profile, expected) in [
        ("dma-buf", &["1048576 bytes of mapped memory", "registered"][..]),
        ("rebar", &["this GPU has no mapped memory that a card can register", "CUDA 13.3"]),
    ] {
        let mut command = Command::new(&simulator);
        command.args(["--profile", profile, "--"]).arg(&program).env_remove("VK_INSTANCE_LAYERS");
        let output = command.output()?;
        let report = lines(&output.stdout).join("\n");
        assert!(output.status.success(), "{report} {}", String::from_utf8_lossy(&output.stderr));
        assert!(expected.iter().all(|part| report.contains(part)), "{profile}: {report}");
    }
    Ok(())
}

#[test]
fn the_demo_runs_on_a_gpu_without_vulkan() -> Result {
    let Some(simulator) = profile::simulator()? else { return Ok(()) };
    let program = example!("vector_add");
    let mut command = Command::new(&simulator);
    command.args(["--profile", "no-vulkan", "--"]).arg(&program).env_remove("VK_INSTANCE_LAYERS");
    let report = assert_success(&command.output()?, &program);
    assert!(
        ["without Vulkan", "sums are right"].iter().all(|text| report.iter().any(|line| line.contains(text))),
        "{report:#?}"
    );
    Ok(())
}

#[test]
fn picture_writes_what_vulkan_drew() -> Result {
    let program = example!("picture");
    let folder = tempdir()?;
    let file = folder.path().join("flower.png");
    let text = assert_success(&run(&program, &[&file])?, &file);
    if text.iter().any(|line| line.contains("without Vulkan")) {
        return Ok(());
    }
    let bytes = std::fs::read(&file)?;
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.len() > 10_000, "{} bytes", bytes.len());
    let nowhere = folder.path().join("no folder").join("flower.png");
    let output = run(&program, &[&nowhere])?;
    let errors = lines(&output.stderr);
    assert!(!output.status.success() && errors.len() == 1, "{errors:#?}");
    assert!(["picture: ", "no folder", "No such file"].iter().all(|part| errors[0].contains(part)), "{errors:#?}");
    Ok(())
}

#[test]
fn receive_memory_doubles_the_numbers_that_another_process_sends() -> Result {
    let program = example!("receive_memory");
    let folder = tempdir()?;
    let path = folder.path().join("socket");
    let mut child = Command::new(&program).arg(&path).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    assert_eq!(out.next().transpose()?, Some(format!("listening at {}", path.display())));
    let mut socket = UnixStream::connect(&path)?;
    let gpu = Vkgdr::open_primary_context(0, OpenFlags::empty())?;
    let memory = Memory::allocate(&gpu, 12, MemoryKind::Mapped)?;
    memory.write(0, &[1.5_f32, 2.0, -3.0])?;
    memory.flush(..)?;
    ipc::send(&socket, &memory)?;
    socket.read_exact(&mut [0])?;
    memory.invalidate(..)?;
    let mut numbers = [0_f32; 3];
    memory.read(0, &mut numbers)?;
    assert_eq!(numbers.map(|number| format!("{number}")), ["3", "4", "-6"]);
    assert!(child.wait()?.success());
    let rest = out.collect::<std::io::Result<Vec<_>>>()?;
    assert_eq!(rest, ["received 12 bytes of mapped memory", "they were [1.5, 2.0, -3.0] ..."]);
    Ok(())
}

#[test]
fn ring_echo_compares_every_answer_and_prints_latency_and_rate() -> Result {
    let program = example!("ring_echo");
    for (messages, size) in [("1", "1"), ("300", "100"), ("70", "5000")] {
        let text = assert_success(&run(&program, &["--messages", messages, "--size", size])?, &program);
        assert!(text.iter().any(|line| line.contains(&format!("round trips of {size} bytes: "))), "{text:#?}");
        assert!(text.iter().any(|line| line.starts_with(&format!("{messages} messages in batches: "))), "{text:#?}");
        assert_eq!(text.iter().any(|line| line.starts_with("simulated: ")), simcuda().is_some(), "{text:#?}");
    }
    assert_failure(&run(&program, &["--size", "0"])?, &["'0' is no number from 1"]);
    assert_failure(&run(&program, &["--nonsense"])?, &["--nonsense"]);
    Ok(())
}

/// A line without its numbers, addresses and the width of its columns.
fn shape(line: &str) -> String {
    let is_number =
        |word: &str| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).starts_with(|c: char| c.is_ascii_digit());
    line.split_whitespace().map(|word| if is_number(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_heads_of_the_examples_show_what_they_print() -> Result {
    if simcuda().is_none() || std::env::var("VKGDR_TEST_PROFILE").is_ok_and(|profile| profile != "none") {
        return skip("the output shown is that of the simulated GPU without a profile");
    }
    let folder = tempdir()?;
    for (source, program, arguments) in [
        (include_str!("../../examples/picture.rs"), example!("picture"), &["flower.png"][..]),
        (include_str!("../../examples/vector_add.rs"), example!("vector_add"), &[]),
        (
            include_str!("../../examples/receive_packets.rs"),
            example!("receive_packets"),
            &["--send", "--packets", "500"],
        ),
        (include_str!("../../examples/ring_echo.rs"), example!("ring_echo"), &["--messages", "500"]),
    ] {
        let head = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
        let shown = head.skip_while(|line| !line.starts_with("$ ")).skip(1).take_while(|line| *line != "```");
        let output = Command::new(&program).args(arguments).current_dir(folder.path()).stdin(Stdio::null()).output()?;
        let printed = assert_success(&output, &program);
        // Rates are printed each second.
        let shapes = |lines: Vec<&str>| {
            lines.into_iter().filter(|line| !line.contains("packets/s")).map(shape).collect::<Vec<_>>()
        };
        assert_eq!(shapes(printed.iter().map(String::as_str).collect()), shapes(shown.collect()));
    }
    Ok(())
}
