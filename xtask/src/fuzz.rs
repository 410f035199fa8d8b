//! The targets of `fuzz/` and `sim/fuzz/`, with AddressSanitizer, on the simulated driver.
//!
//! The corpus is in cargo's target folder, and later runs extend it; `seeds` has the first inputs. A failing input is written
//! to `artifacts`, and its path is printed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::Result;
use crate::context::{Context, has, none_failed, parts, say, variable};

const CARGO_FUZZ: &str = "cargo-fuzz@0.13.1";
const TARGETS: [&str; 4] = ["c_abi", "driver", "ipc", "ptx"];
/// The length of the longest PTX text in bytes. Reading takes as long as the text is.
const LONGEST: usize = 4096;

/// Fuzzes the targets for `SECONDS_EACH` seconds each.
pub(crate) fn run(context: &Context, asked: &[String]) -> Result {
    let targets = parts(asked, &TARGETS)?;
    let seconds = variable("SECONDS_EACH").unwrap_or_else(|| "60".into());
    if !has("cargo-fuzz") {
        say(format!("building {CARGO_FUZZ} (takes minutes, once)"));
        context.command("cargo install --quiet --locked").arg(CARGO_FUZZ).run()?;
    }
    context.command("sim/build.sh").run()?;
    let mut failed = Vec::new();
    for target in targets {
        if let Err(error) = fuzz(context, target, &seconds) {
            eprintln!("{target}: {error}");
            failed.push(target.to_owned());
        }
    }
    none_failed(&failed)
}

fn fuzz(context: &Context, target: &str, seconds: &str) -> Result {
    let (work, corpus) = (context.target.join("fuzz"), context.target.join("fuzz-corpus").join(target));
    let home = Path::new(home(target));
    let artifacts = home.join("artifacts").join(target);
    fs::create_dir_all(&corpus)?;
    fs::create_dir_all(context.root.join(&artifacts))?;
    seeds(context, target, &corpus)?;
    say(format!("fuzzing {target}: building"));
    let folder = context.sh.push_dir(home);
    // Comparisons are not traced, which takes a third of the time or more; the words of PTX come from a dictionary instead.
    let build = context.command("cargo +nightly fuzz build --no-trace-compares --fuzz-dir .").arg(target);
    build.env("CARGO_TARGET_DIR", &work).run()?;
    drop(folder);

    say(format!("fuzzing {target} for {seconds} s"));
    let log = context.target.join(format!("fuzz-{target}.log"));
    let output = File::create(&log)?;
    let mut child = Command::new(context.root.join("sim/run"))
        .current_dir(&context.root)
        .arg(work.join(context.host()?).join("release").join(target))
        .args([&format!("-max_total_time={seconds}"), "-rss_limit_mb=4096"])
        .args(options(context, target))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(&corpus)
        // Without a stack for each allocation. The failing input, run again without this, shows them.
        .env("ASAN_OPTIONS", "malloc_context_size=0")
        .env("VKGDR_CUDA_DRIVER", "sim")
        .env("CARGO_TARGET_DIR", &context.target)
        .env("VKGDR_SIM_DIR", &context.sim)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let status = loop {
        thread::sleep(Duration::from_secs(10));
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        let progress = text.lines().rev().find(|line| line.starts_with('#')).unwrap_or("starting");
        println!("  {}", progress.split(" lim:").next().unwrap_or(progress).replace('\t', " "));
        if let Some(status) = child.try_wait()? {
            break status;
        }
    };
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if !status.success() {
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("{}", lines[lines.len().saturating_sub(40)..].join("\n"));
        return Err(format!("{status}; see {}", log.display()).into());
    }
    let last = text.lines().rev().find(|line| line.starts_with('#') && line.contains("cov:")).unwrap_or_default();
    let after = |line: &str, word: &str| -> String {
        line.split(word).nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap_or_default().to_owned()
    };
    let done = text.lines().find(|line| line.starts_with("Done ")).unwrap_or_default();
    let (runs, coverage, features) = (after(done, "Done "), after(last, "cov:"), after(last, "ft:"));
    // Only the driver's target counts calls.
    let calls = text.lines().find(|line| line.starts_with("calls: ")).map(|line| after(line, "calls: "));
    let calls = calls.map_or_else(String::new, |calls| format!(" calls={calls}"));
    println!("fuzz target={target} seconds={seconds} executions={runs}{calls} coverage={coverage} features={features}");
    Ok(())
}

/// The folder of a target's crate.
fn home(target: &str) -> &'static str {
    if ["driver", "ptx"].contains(&target) { "sim/fuzz" } else { "fuzz" }
}

/// The options of libFuzzer that suit a target.
fn options(context: &Context, target: &str) -> Vec<String> {
    match target {
        // Else libFuzzer would look for leaks after each input, since the driver keeps tables from one to the next. The target
        // counts objects itself. Longer sequences, from the start, make more of the objects that each begins with. A schedule
        // by rare features takes a seventh of the time, and which features are rare depends on threads here.
        "driver" => ["-detect_leaks=0", "-max_len=1024", "-len_control=0", "-entropic=0"].map(str::to_owned).into(),
        "ptx" => vec![format!("-max_len={LONGEST}"), format!("-dict={}", dictionary(context).display())],
        _ => Vec::new(),
    }
}

/// The words of PTX for libFuzzer.
fn dictionary(context: &Context) -> PathBuf {
    context.target.join("fuzz-ptx.dict")
}

/// The seeds of a target in its corpus; those of `ptx` are the repository's kernels.
fn seeds(context: &Context, target: &str, corpus: &Path) -> Result {
    if target != "ptx" {
        let find = context.command("find").arg(Path::new(home(target)).join("seeds").join(target)).args(["-type", "f"]);
        return Ok(find.args(["-exec", "cp", "{}"]).arg(corpus).arg(";").run()?);
    }
    let mut words = BTreeSet::new();
    let files = context.command("find fuzz examples benches sim tests -name *.ptx ! -path */target/*").read()?;
    for file in files.lines() {
        let text = fs::read_to_string(context.root.join(file))?;
        words.extend(text.lines().flat_map(ptx_words).map(str::to_owned));
        for (index, piece) in pieces(&text).enumerate().filter(|(_, piece)| piece.len() <= LONGEST) {
            fs::write(corpus.join(format!("{}-{index}", file.replace('/', "-"))), piece)?;
        }
    }
    let lines: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    Ok(fs::write(dictionary(context), lines.join("\n"))?)
}

/// Each function of a module with the module's head: short texts are read fast, and a change of one leaves the others
/// valid.
fn pieces(text: &str) -> impl Iterator<Item = String> {
    let begins = |line: &&str| line.contains(".entry") || line.contains(".func") && !line.contains(".extern");
    let length = text.split_inclusive('\n').take_while(|line| !begins(line)).map(str::len).sum();
    let (head, functions) = text.split_at(length);
    functions.split_inclusive("\n}\n").map(move |function| format!("{head}{function}"))
}

/// The opcodes, the modifiers and the special registers of a line, not the names that a program gives.
fn ptx_words(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default().trim_start();
    // Without the predicate.
    let code = if code.starts_with('@') { code.split_once(' ').unwrap_or_default().1 } else { code };
    // Of the word whose first character may be a mark, up to the next mark.
    let word_at = |at: usize| {
        let inside = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        let len = code[at + 1..].find(|c| !inside(c)).unwrap_or(code.len() - at - 1);
        &code[at..=at + len]
    };
    let opcode = code.starts_with(|c: char| c.is_ascii_lowercase()).then(|| word_at(0));
    let marked = code.match_indices(['.', '%']).map(move |(at, _)| word_at(at));
    // Registers of the program have numbers; so have constants after their point.
    let is_known = |word: &&str| match word.strip_prefix('.') {
        Some(modifier) => modifier.starts_with(|c: char| !c.is_ascii_digit()),
        None => !(word.starts_with('%') && word.contains(|c: char| c.is_ascii_digit())),
    };
    let is_name = |word: &&str| word.len() > 1 && !word.ends_with(':');
    opcode.into_iter().chain(marked).filter(is_name).filter(is_known)
}

#[cfg(test)]
mod tests {
    use super::{pieces, ptx_words};

    #[test]
    fn each_function_of_a_module_becomes_a_piece_with_the_head() {
        let text = ".version 8.0\n.extern .func f;\n.visible .entry a()\n{\nret;\n}\n.func b()\n{\nret;\n}\n";
        let head = ".version 8.0\n.extern .func f;\n";
        let [a, b] = [".visible .entry a()\n{\nret;\n}\n", ".func b()\n{\nret;\n}\n"];
        assert_eq!(pieces(text).collect::<Vec<_>>(), [format!("{head}{a}"), format!("{head}{b}")]);
    }

    #[test]
    fn words_are_opcodes_modifiers_and_special_registers() {
        let words: Vec<&str> = ptx_words("\t@%p1 mad.lo.s32 %r1, %tid.x, 0f3F800000, %r2; // add.u32").collect();
        assert_eq!(words, ["mad", ".lo", ".s32", "%tid", ".x"]);
        assert_eq!(ptx_words("$L__BB0_1: bra.uni done;").collect::<Vec<_>>(), [".uni"]);
    }
}
