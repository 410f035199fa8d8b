//! The manylinux wheel of the Python package.

use std::fs;
use std::path::{Path, PathBuf};

use xshell::Cmd;

use crate::Result;
use crate::context::{Context, say};

/// A program of those in `wheel.txt`, by uv.
fn tool<'a>(context: &'a Context, program: &str) -> Cmd<'a> {
    let uv = context.tool("uv").args("run --no-project --python-preference system --with-requirements".split(' '));
    uv.arg(context.root.join("scripts/requirements/wheel.txt")).args(program.split(' '))
}

/// Builds the wheel into `python/wheel` in cargo's target folder. maturin links with zig for an older glibc than this
/// machine's, and checks that with its auditwheel.
pub(crate) fn build(context: &Context) -> Result<PathBuf> {
    let folder = context.target.join("python/wheel");
    context.fresh(&folder)?;
    say("building the wheel (manylinux2014; a minute the first time)");
    let options = "build --quiet --release --zig --auditwheel check --compatibility manylinux2014 \
        --manifest-path ffi/python/Cargo.toml --out";
    let maturin = tool(context, "maturin").args(options.split_whitespace()).arg(&folder);
    maturin.env("RUSTFLAGS", unwinder(context)?).env("CARGO_TARGET_DIR", objects(context)).run()?;
    let wheel = only_wheel(context, &folder, "-cp311-abi3-manylinux2014_")?;
    let unpacked = context.sh.create_temp_dir()?;
    context.command("python3 -m zipfile --extract").arg(&wheel).arg(unpacked.path()).run()?;
    let needed =
        context.command("readelf -d").arg(unpacked.path().join("vkgdr/_vkgdr.abi3.so")).env("LC_ALL", "C").read()?;
    if !needed.contains("[libgcc_s.so.1]") {
        return Err("the wheel does not use the system's unwinder".into());
    }
    report(&wheel)?;
    Ok(wheel)
}

/// Flags with which libraries use the system's unwinder, for which there is no option of maturin's: Python ends threads by
/// `pthread_exit`, which unwinds them with it and cannot cross frames of another. Linked by path, as zig resolves the name to
/// its own.
fn unwinder(context: &Context) -> Result<String> {
    let unwinder = context.command("cc -print-file-name=libgcc_s.so.1").read()?;
    if !unwinder.starts_with('/') {
        return Err("libgcc_s.so.1, the unwinder, is missing (package libgcc-s1)".into());
    }
    Ok(format!("-C link-arg={}", unwinder.trim()))
}

/// A target folder that keeps zig's objects apart from those of other builds.
fn objects(context: &Context) -> PathBuf {
    context.target.join("python/zig")
}

/// The wheel in a folder, which has these tags and valid metadata.
fn only_wheel(context: &Context, folder: &Path, tags: &str) -> Result<PathBuf> {
    let files: Vec<PathBuf> = fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    let [wheel] = files.as_slice() else { return Err("no wheel was built, or several".into()) };
    let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !name.contains(tags) {
        return Err(format!("the wheel's tags are wrong: {name}").into());
    }
    tool(context, "twine check --strict").arg(wheel).run()?;
    Ok(wheel.clone())
}

fn report(wheel: &Path) -> Result {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    say(format!("{name}: {} KiB", fs::metadata(wheel)?.len() >> 10));
    Ok(())
}
