//! The examples as users run them: output and failures.
//!
//! The programs are in `../examples` relative to this test's program, or in `VKGDR_EXAMPLES_DIR`.
#![expect(unsafe_code, reason = "creates a pseudo-terminal")]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::ptr::null_mut;
use std::time::Duration;

use support::{Result, pattern, simcuda, skip};
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

/// The path of an example's program; fails the test without it.
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

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn create(test: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("vkgdr-{test}-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, content)?;
        Ok(path)
    }

    /// A sparse file.
    fn sparse(&self, name: &str, len: u64) -> Result<PathBuf> {
        let path = self.0.join(name);
        File::create(&path)?.set_len(len)?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

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

/// There is no RDMA device, or no rdma-core, on most machines: then the example says so.
#[test]
fn register_memory_says_whether_there_is_such_memory_and_a_card() -> Result {
    if simcuda().is_none() {
        eprintln!("skipped: profiles are of the simulated driver only");
        return Ok(());
    }
    let simulator = PathBuf::from(std::env::var("VKGDR_SIM_DIR")?).join("vkgdr-sim");
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
    if simcuda().is_none() {
        eprintln!("skipped: profiles are of the simulated driver only");
        return Ok(());
    }
    let simulator = PathBuf::from(std::env::var("VKGDR_SIM_DIR")?).join("vkgdr-sim");
    for program in [example!("share_file"), example!("vector_add")] {
        let mut command = Command::new(&simulator);
        command.args(["--profile", "no-vulkan", "--"]).arg(&program).env_remove("VK_INSTANCE_LAYERS");
        let report = assert_success(&command.output()?, &program);
        let says = |text: &str| report.iter().any(|line| line.contains(text));
        assert!(says("without Vulkan"), "{report:#?}");
        assert!(says("as it should be") || says("sums are right"), "{report:#?}");
    }
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
    let output = Command::new(&program).env("LD_LIBRARY_PATH", "/nonexistent").stdin(Stdio::null()).output()?;
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
fn vector_add_adds_by_a_kernel() -> Result {
    let program = example!("vector_add");
    let text = assert_success(&run::<&str>(&program, &[])?, &program);
    assert!(text.iter().any(|line| line.contains("10000 sums are right, the last is 14998.5")), "{text:#?}");
    Ok(())
}

#[test]
fn vulkan_compute_takes_turns_with_cuda() -> Result {
    let program = example!("vulkan_compute");
    let text = assert_success(&run::<&str>(&program, &[])?, &program);
    let says = |part: &str| text.iter().any(|line| line.contains(part));
    assert!(says("10000 numbers are right, the last is 149985") || says("without Vulkan"), "{text:#?}");
    Ok(())
}

#[test]
fn picture_writes_what_vulkan_drew() -> Result {
    let program = example!("picture");
    let folder = Folder::create("picture")?;
    let file = folder.0.join("flower.png");
    let text = assert_success(&run(&program, &[&file])?, &file);
    if text.iter().any(|line| line.contains("without Vulkan")) {
        return Ok(());
    }
    let bytes = std::fs::read(&file)?;
    assert!(bytes.starts_with(b"\x89PNG\r\n\x1a\n") && bytes.len() > 10_000, "{} bytes", bytes.len());
    let nowhere = folder.0.join("no folder").join("flower.png");
    let output = run(&program, &[&nowhere])?;
    let errors = lines(&output.stderr);
    assert!(!output.status.success() && errors.len() == 1, "{errors:#?}");
    assert!(["picture: ", "no folder", "No such file"].iter().all(|part| errors[0].contains(part)), "{errors:#?}");
    Ok(())
}

#[test]
fn receive_memory_doubles_the_numbers_that_another_process_sends() -> Result {
    let program = example!("receive_memory");
    let folder = Folder::create("receive")?;
    let path = folder.0.join("socket");
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

#[test]
fn receive_packets_adds_up_the_packets_that_it_sends_itself() -> Result {
    let program = example!("receive_packets");
    let output = run(&program, &["--send", "--packets", "3000", "--threads", "3"])?;
    let text = assert_success(&output, &program);
    assert!(text.iter().any(|line| line.ends_with(" by 3 threads")), "{text:#?}");
    assert!(text.last().is_some_and(|line| line.ends_with(" bytes: the GPU's sums are right")), "{text:#?}");
    Ok(())
}

#[test]
fn receive_packets_adds_up_packets_of_every_length_from_another_process() -> Result {
    let program = example!("receive_packets");
    let mut child = Command::new(&program)
        .args(["--packets", "700", "--threads", "2"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut out = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    let line = out.nth(1).transpose()?.ok_or("no address")?;
    let port = line.split([':', ' ']).find_map(|word| word.parse::<u16>().ok()).ok_or(line)?;
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let mut number = 0;
    // The system may drop some.
    while child.try_wait()?.is_none() {
        socket.send_to(&pattern(number % 2100, 3), ("127.0.0.1", port))?;
        number += 1;
        if number % 32 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(child.wait()?.success());
    let last = out.last().transpose()?.unwrap_or_default();
    assert!(last.ends_with(" bytes: the GPU's sums are right"), "{last}");
    Ok(())
}

#[test]
fn receive_packets_refuses_wrong_arguments_and_a_taken_port_in_one_line() -> Result {
    let program = example!("receive_packets");
    assert_failure(&run(&program, &["--nonsense"])?, &["--nonsense"]);
    assert_failure(&run(&program, &["--packets"])?, &["--packets needs a number"]);
    assert_failure(&run(&program, &["--packets", "many"])?, &["'many' is not a number"]);
    assert_failure(&run(&program, &["--port", "70000"])?, &["receive_packets: "]);
    let taken = UdpSocket::bind("0.0.0.0:0")?;
    let port = taken.local_addr()?.port().to_string();
    let output = run(&program, &["--port", &port])?;
    assert!(!output.status.success());
    assert!(lines(&output.stderr).iter().all(|line| line.contains("in use")), "{:?}", lines(&output.stderr));
    Ok(())
}

/// A line without its numbers, addresses and the width of its columns.
fn shape(line: &str) -> String {
    let is_number = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        word.starts_with(|c: char| c.is_ascii_digit())
            || (word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    line.split_whitespace().map(|word| if is_number(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_heads_of_the_examples_show_what_they_print() -> Result {
    if simcuda().is_none() || std::env::var("VKGDR_TEST_PROFILE").is_ok_and(|profile| profile != "none") {
        return skip("the output shown is that of the simulated GPU without a profile");
    }
    let folder = Folder::create("heads")?;
    folder.file("photo.raw", &pattern(2 << 20, 1))?;
    for (source, program, arguments) in [
        (include_str!("../../examples/vulkan_compute.rs"), example!("vulkan_compute"), &[][..]),
        (include_str!("../../examples/picture.rs"), example!("picture"), &["flower.png"]),
        (include_str!("../../examples/vector_add.rs"), example!("vector_add"), &[]),
        (include_str!("../../examples/share_file.rs"), example!("share_file"), &["photo.raw"]),
        (
            include_str!("../../examples/receive_packets.rs"),
            example!("receive_packets"),
            &["--send", "--packets", "500"],
        ),
        (include_str!("../../examples/ring_echo.rs"), example!("ring_echo"), &["--messages", "500"]),
    ] {
        let head = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
        let shown = head.skip_while(|line| !line.starts_with("$ ")).skip(1).take_while(|line| *line != "```");
        let output = Command::new(&program).args(arguments).current_dir(&folder.0).stdin(Stdio::null()).output()?;
        let printed = assert_success(&output, &program);
        // Rates are printed each second.
        let shapes = |lines: Vec<&str>| {
            lines.into_iter().filter(|line| !line.contains("packets/s")).map(shape).collect::<Vec<_>>()
        };
        assert_eq!(shapes(printed.iter().map(String::as_str).collect()), shapes(shown.collect()));
    }
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
