//! Python's manylinux wheel.

use std::fs;
use std::path::PathBuf;

use crate::Result;
use crate::context::{Context, say};

/// Builds the wheel into `python/wheel` in cargo's target folder. maturin links with zig for an older glibc than this
/// machine's, and checks that with its auditwheel.
pub(crate) fn build(context: &Context) -> Result<PathBuf> {
    let folder = context.target.join("python/wheel");
    context.fresh(&folder)?;
    say("building the wheel (manylinux2014; a minute the first time)");
    // No option of maturin: the wheel must use the system's unwinder, since Python ends threads by pthread_exit, which
    // unwinds them with it and cannot cross frames of another. Linked by path, as zig resolves the name to its own.
    let unwinder = context.command("cc -print-file-name=libgcc_s.so.1").read()?;
    if !unwinder.starts_with('/') {
        return Err("libgcc_s.so.1, the unwinder, is missing (package libgcc-s1)".into());
    }
    let tools = "run --no-project --python-preference system --with-requirements scripts/requirements/wheel.txt";
    let options = "build --quiet --release --zig --auditwheel check --compatibility manylinux2014 \
        --manifest-path ffi/python/Cargo.toml --out";
    let maturin =
        context.tool("uv").args(tools.split(' ')).arg("maturin").args(options.split_whitespace()).arg(&folder);
    // A separate target folder keeps zig's objects apart from those of other builds.
    let flags = format!("-C link-arg={}", unwinder.trim());
    maturin.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", context.target.join("python/zig")).run()?;
    let files: Vec<PathBuf> = fs::read_dir(&folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    let [wheel] = files.as_slice() else { return Err("maturin built no wheel, or several".into()) };
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let tags = format!("-cp311-abi3-manylinux2014_{}.", std::env::consts::ARCH);
    if !name.contains(&tags) {
        return Err(format!("the wheel's tags are wrong: {name}").into());
    }
    context.tool("uv").args(tools.split(' ')).args(["twine", "check", "--strict"]).arg(wheel).run()?;
    let unpacked = context.sh.create_temp_dir()?;
    context.command("python3 -m zipfile --extract").arg(wheel).arg(unpacked.path()).run()?;
    let needed =
        context.command("readelf -d").arg(unpacked.path().join("vkgdr/_vkgdr.abi3.so")).env("LC_ALL", "C").read()?;
    if !needed.contains("[libgcc_s.so.1]") {
        return Err("the wheel does not use the system's unwinder".into());
    }
    say(format!("{name}: {} KiB", fs::metadata(wheel)?.len() >> 10));
    Ok(wheel.clone())
}
