//! `output.cu`

use crate::common::{Argument, Bench};
use crate::compiled;
use ptx::FaultKind;

#[test]
fn a_failed_assertion_has_its_text() {
    for (way, source) in compiled!("output") {
        let mut bench = Bench::new(source);
        let at = bench.array(&[1i32, 2, -3, 4]);
        bench.run("checked", 1, 2, &[Argument::P(at)]);
        let fault = bench.try_run("checked", 1, 4, &[Argument::P(at)]).expect_err("an assertion fails");
        assert_eq!((fault.kind, fault.thread), (FaultKind::Assert, [2, 0, 0]), "{way}");
        assert!(fault.detail.contains("in[threadIdx.x] >= 0"), "{way}: {fault}");
        assert!(fault.detail.contains("output.cu"), "{way}: {fault}");
    }
}

#[test]
fn a_trap_ends_the_launch() {
    for (way, source) in compiled!("output") {
        let mut bench = Bench::new(source);
        let at = bench.array(&[1i32, 2, 3, 4]);
        let fault = bench.try_run("trapped", 1, 4, &[Argument::P(at)]).expect_err("a thread traps");
        assert_eq!(
            (fault.kind, fault.thread, fault.instruction.as_str()),
            (FaultKind::Trap, [2, 0, 0], "trap"),
            "{way}"
        );
    }
}

/// Starts this test again as a child, whose output it reads.
#[test]
fn printf_formats_as_c_does() {
    if std::env::var_os("PTX_PRINT").is_some() {
        for (_, source) in compiled!("output") {
            let mut bench = Bench::new(source);
            let at = bench.array(&[3i32]);
            bench.run("print", 1, 1, &[Argument::P(at)]);
        }
        return;
    }
    let program = std::env::current_exe().expect("the test has a path");
    let output = std::process::Command::new(program)
        .args(["--exact", "--nocapture", "output::printf_formats_as_c_does"])
        .env("PTX_PRINT", "1")
        .output()
        .expect("the test starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("thread 0 of 1:  1.50 half -5000000000%\n").count(), 4, "{text}");
}
