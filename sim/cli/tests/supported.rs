//! The page of what is supported, which `--supported` prints.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[test]
fn the_page_names_functions_and_instructions() -> Result {
    if env::var_os("VKGDR_CUDA_DRIVER").is_some_and(|driver| driver == "real") {
        eprintln!("skipped: the driver is a real one");
        return Ok(());
    }
    let folder = env::var_os("VKGDR_SIM_DIR").ok_or("not started by sim/run, as cargo does")?;
    let program = PathBuf::from(folder).join("vkgdr-sim");
    let output = Command::new(&program).arg("--supported").output()?;
    let printed = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for known in [
        "`cuMemAlloc`",
        "`cudaMalloc`",
        "| `mul.wide` | `.u16` `.u32` `.s16` `.s32` |",
        "| `bra` | yes |",
        "| `tex` | no |",
    ] {
        assert!(printed.contains(known), "{known} is missing");
    }
    for (name, said) in [
        ("cuMemAlloc_v2", "cuMemAlloc_v2: simulated (CUDA driver)"),
        ("cudaMallocArray", "refused as not supported (CUDA runtime 13)"),
        ("mul.wide", "mul.wide: .u16 .u32 .s16 .s32"),
        ("tex", "tex: no"),
    ] {
        let output = Command::new(&program).args(["--supported", name]).output()?;
        let printed = String::from_utf8(output.stdout)?;
        assert!(output.status.success() && printed.contains(said), "{name}: {printed}");
    }
    let output = Command::new(&program).args(["--supported", "cuMemAllok"]).output()?;
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8(output.stderr)?.contains("did you mean cuMemAlloc?"));
    Ok(())
}
