//! `output.cu`

use crate::common::{Argument, Bench};
use ptx::FaultKind;

const SOURCE: &str = include_str!("../fixtures/nvrtc12-sm_70/output.ptx");

#[test]
fn a_failed_assertion_has_its_text() {
    let mut bench = Bench::new(SOURCE);
    let at = bench.array(&[1i32, 2, -3, 4]);
    bench.run("checked", 1, 2, &[Argument::P(at)]);
    let fault = bench.try_run("checked", 1, 4, &[Argument::P(at)]).expect_err("an assertion fails");
    assert_eq!((fault.kind, fault.thread), (FaultKind::Assert, [2, 0, 0]));
    assert!(fault.detail.contains("in[threadIdx.x] >= 0"), "{fault}");
    assert!(fault.detail.contains("output.cu"), "{fault}");
}

#[test]
fn a_trap_ends_the_launch() {
    let mut bench = Bench::new(SOURCE);
    let at = bench.array(&[1i32, 2, 3, 4]);
    let fault = bench.try_run("trapped", 1, 4, &[Argument::P(at)]).expect_err("a thread traps");
    assert_eq!((fault.kind, fault.thread, fault.instruction.as_str()), (FaultKind::Trap, [2, 0, 0], "trap"));
}

/// Runs a test in a process of its own, which prints.
fn printed_by(test: &str) -> std::process::Output {
    let program = std::env::current_exe().expect("the test has a path");
    let mut command = std::process::Command::new(program);
    command.args(["--exact", "--nocapture", test]).env("PTX_PRINT", "1").output().expect("the test starts")
}

#[test]
fn printf_formats_as_c_does() {
    if std::env::var_os("PTX_PRINT").is_some() {
        let mut bench = Bench::new(SOURCE);
        let at = bench.array(&[3i32]);
        bench.run("print", 1, 1, &[Argument::P(at)]);
        return;
    }
    let output = printed_by("output::printf_formats_as_c_does");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("thread 0 of 1:  1.50 half -5000000000%\n"), "{text}");
}

/// Prints, and stores what `vprintf` returns with a format and arguments, with one that has none, and without a format.
fn printer() -> String {
    let text = |name: &str, text: &str| {
        let bytes: Vec<_> = text.bytes().chain([0]).map(|byte| byte.to_string()).collect();
        format!(".global .align 1 .b8 {name}[{}] = {{{}}};\n", bytes.len(), bytes.join(", "))
    };
    let data = [text("many", "%g|%g|%*d|%-4d|%+d|%#x|%.2s|%hd|%e|%a\n"), text("half", "half"), text("none", "100%%\n")];
    let call = |to: u32, format: &str| {
        format!(
            "{format}\n{{ .param .b64 f; .param .b64 a; .param .b32 r; st.param.b64 [f], %f; st.param.b64 [a], %a; \
             call.uni (r), vprintf, (f, a); ld.param.b32 %r, [r]; st.global.u32 [%out+{to}], %r; }}\n"
        )
    };
    let generic = |name: &str| format!("mov.u64 %f, {name}; cvta.global.u64 %f, %f;");
    let calls = [call(0, &generic("many")), call(4, &generic("none")), call(8, "mov.u64 %f, 0;")];
    format!(
        ".version 7.0\n.target sm_70\n.address_size 64\n\
         .extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n{}\
         .visible .entry p(.param .u64 out) {{\n.local .align 8 .b8 buffer[72]; .reg .b64 %out, %f, %a, %s; .reg .b32 %r;\n\
         ld.param.u64 %out, [out]; cvta.to.global.u64 %out, %out; mov.u64 %a, buffer; cvta.local.u64 %a, %a;\n\
         st.local.f64 [buffer], 0d3FB99999A0000000; st.local.f64 [buffer+8], 0d4415AF1D78B58C40;\n\
         st.local.u32 [buffer+16], 5; st.local.u32 [buffer+20], 42; st.local.u32 [buffer+24], 7;\n\
         st.local.u32 [buffer+28], 5; st.local.u32 [buffer+32], 255;\n\
         mov.u64 %s, half; cvta.global.u64 %s, %s; st.local.u64 [buffer+40], %s; st.local.u32 [buffer+48], 70000;\n\
         st.local.f64 [buffer+56], 0d7FF8000000000000; st.local.f64 [buffer+64], 0d3FF0000000000000;\n{}ret; }}\n",
        data.concat(),
        calls.concat()
    )
}

#[test]
fn printf_takes_all_of_cs_flags_and_returns_the_number_of_arguments() {
    if std::env::var_os("PTX_PRINT").is_some() {
        let mut bench = Bench::new(&printer());
        let out = bench.room(12);
        bench.run("p", 1, 1, &[Argument::P(out)]);
        assert_eq!(bench.ram.read::<u32>(out, 3), [11, 0, u32::MAX]);
        return;
    }
    let output = printed_by("output::printf_takes_all_of_cs_flags_and_returns_the_number_of_arguments");
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "0.1|1e+20|   42|7   |+5|0xff|ha|4464|nan|0x1p+0\n100%\n";
    assert!(output.status.success() && text.contains(expected), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

/// Prints bytes that are not UTF-8, in the format and as an argument, and an argument that is long.
#[test]
fn printf_leaves_bytes_as_they_are() {
    const LONG: usize = 5000;
    if std::env::var_os("PTX_PRINT").is_some() {
        let long = vec!["120"; LONG].join(", ");
        let bench = Bench::new(&format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);
            .global .b8 format[] = {{60, 0xff, 0x25, 0x73, 0xc3, 0x25, 0x73, 62, 10, 0}};
            .global .b8 word[] = {{0xe9, 0x80, 0}}; .global .b8 long[] = {{{long}, 0}};
            .visible .entry p() {{ .local .align 8 .b8 buffer[16]; .reg .b64 %f, %a; .param .b64 f; .param .b64 a; .param .b32 r;
            cvta.global.u64 %a, word; st.local.u64 [buffer], %a; cvta.global.u64 %a, long; st.local.u64 [buffer+8], %a;
            cvta.global.u64 %f, format; st.param.b64 [f], %f; cvta.local.u64 %a, buffer; st.param.b64 [a], %a;
            call (r), vprintf, (f, a); ret; }}"
        ));
        bench.run("p", 1, 1, &[]);
        return;
    }
    let output = printed_by("output::printf_leaves_bytes_as_they_are");
    let expected = [b"<\xff\xe9\x80\xc3".as_slice(), &[b'x'; LONG], b">\n"].concat();
    let found = output.stdout.windows(expected.len()).any(|window| window == expected);
    assert!(output.status.success() && found, "{}", String::from_utf8_lossy(&output.stdout));
}
