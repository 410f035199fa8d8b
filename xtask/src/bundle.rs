//! Packs the tests and benches into one folder of less than 40 MiB (`BUNDLE`, default `dist/gpu-bundle`), for a machine
//! with an NVIDIA GPU and driver but without Rust, internet access or a Vulkan loader. Usage there:
//!
//! ```text
//! gpu-bundle/run.sh OUTPUT-FOLDER                what fits into 9 minutes, most benches in quick mode
//! gpu-bundle/run.sh OUTPUT-FOLDER facts bench    the benches, in full (run.sh documents more)
//! ```
//!
//! The tests are a nextest archive (tests.tar.zst), all other binaries are in programs.tar.gz; run.sh unpacks both. The
//! GPU machine needs a glibc at least as new as this machine's. The Python tests use its Python if that is 3.11 or newer
//! and has numpy; their other requirements are packed as wheels.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use xshell::{Cmd, cmd};

use crate::Result;
use crate::context::{Context, has, say, variable};
use crate::wheel;

const LIMIT_MIB: u64 = 40;
/// The loader, vulkaninfo and the validation layer, then those libraries of vulkaninfo and NVIDIA's Vulkan driver that are
/// missing on a machine without a desktop.
const PACKAGES: &str = "libvulkan1 vulkan-tools vulkan-validationlayers \
    libx11-6 libxext6 libxcb1 libxau6 libxdmcp6 libbsd0 libmd0 libwayland-client0 libffi8 \
    libglvnd0 libegl1 libglx0 libgl1 libopengl0 libgles2";
/// What the Python tests need beside numpy.
const PYTHON: [&str; 6] = ["iniconfig", "packaging", "pluggy", "Pygments", "pytest", "pytest-timeout"];

/// Makes the bundle.
pub(crate) fn run(context: &Context) -> Result {
    let bundle = context.root.join(variable("BUNDLE").unwrap_or_else(|| "dist/gpu-bundle".into()));
    check(context, &bundle)?;
    let new = context.target.join("gpu-bundle.new");
    let programs = context.target.join("gpu-bundle.programs");
    context.fresh(&new)?;
    context.fresh(&programs)?;
    for folder in ["bench", "bin", "examples", "layers", "lib", "python", "sim", "workspace"] {
        fs::create_dir(programs.join(folder))?;
    }
    context.need_nextest()?;
    let nextest = PathBuf::from(context.command("sh -c").arg("command -v cargo-nextest").read()?);
    build(context, &nextest, &new, &programs)?;
    python(context, &programs.join("python"))?;
    let packages = vulkan(context, &programs)?;
    workspace(context, &programs)?;
    let sh = &context.sh;
    let archive = new.join("programs.tar.gz");
    cmd!(sh, "tar -C {programs} --owner=0 --group=0 -I 'gzip -9' -cf {archive} .").quiet().run()?;
    facts(context, &nextest, &packages, &new)?;

    let files = fs::read_dir(&new)?.map(|file| Ok(file?.metadata()?.len())).collect::<Result<Vec<u64>>>()?;
    let bytes: u64 = files.iter().sum();
    if bytes >= LIMIT_MIB << 20 {
        return Err(format!("the bundle is {} MiB; the limit is {LIMIT_MIB} MiB", bytes >> 20).into());
    }
    if bundle.exists() {
        fs::remove_dir_all(&bundle)?;
    }
    fs::create_dir_all(bundle.parent().unwrap_or(&bundle))?;
    context.command("mv").arg(&new).arg(&bundle).run()?;
    fs::remove_dir_all(&programs)?;
    say(format!("{}: {} MiB. On the GPU machine: run.sh OUTPUT-FOLDER", bundle.display(), bytes.div_ceil(1 << 20)));
    Ok(())
}

/// Fails if the destination holds something else, or if the machine has no Debian packages.
fn check(context: &Context, bundle: &Path) -> Result {
    let home = variable("HOME").unwrap_or_default();
    if context.root.starts_with(bundle) || bundle == Path::new(&home) {
        return Err(format!("BUNDLE={} would be replaced; name a separate folder", bundle.display()).into());
    }
    if !is_replaceable(bundle)? {
        return Err(
            format!("{} exists and is not a bundle; remove it or name another with BUNDLE=", bundle.display()).into()
        );
    }
    if !has("apt-get") || !has("dpkg-deb") {
        return Err("the bundle contains Debian packages: make it on Debian or Ubuntu".into());
    }
    Ok(())
}

/// Whether nothing but a bundle would be lost: it is recognised by files that no folder of sources has, unlike run.sh.
fn is_replaceable(bundle: &Path) -> Result<bool> {
    let is_bundle = ["bundle.txt", "tests.tar.zst"].iter().all(|name| bundle.join(name).is_file());
    Ok(is_bundle || !bundle.exists() || fs::read_dir(bundle)?.next().is_none())
}

/// The executables of one kind that a cargo command builds.
fn executables(command: Cmd<'_>, kind: &str) -> Result<Vec<PathBuf>> {
    let text = command.args(["--message-format", "json-render-diagnostics"]).read()?;
    let mut found = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        if message["target"]["kind"][0] == kind {
            found.extend(message["executable"].as_str().map(PathBuf::from));
        }
    }
    Ok(found)
}

/// Builds the simulator, the tests, the examples and the benches.
fn build(context: &Context, nextest: &Path, new: &Path, programs: &Path) -> Result {
    say("building the tests, examples and benches (profile \"bundle\"; minutes)");
    context.command("sim/build.sh bundle").env("VKGDR_SIM_DIR", programs.join("sim")).run()?;
    // Without the tests of the C library and of the command, which need compilers, and those of the simulator.
    let archive = "nextest archive --workspace --exclude vkgdr-c --exclude vkgdr-cli --exclude vkgdr-python --exclude xtask --locked \
        --cargo-profile bundle --zstd-level 19 --archive-file";
    context.sh.cmd(nextest).quiet().args(archive.split_whitespace()).arg(new.join("tests.tar.zst")).run()?;
    for file in executables(context.cargo("build --profile bundle --package examples --examples"), "example")? {
        fs::copy(&file, programs.join("examples").join(file.file_name().unwrap_or_default()))?;
    }
    let benches = context.cargo("bench --profile bundle --workspace --no-run --bench").arg("*");
    for file in executables(benches, "bench")? {
        // cargo appends a hash to a bench's file name.
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        fs::copy(&file, programs.join("bench").join(name.rsplit_once('-').map_or(&*name, |(name, _)| name)))?;
    }
    // The bench c_calls loads the C library from its own folder.
    let library = "libvkgdr_c.so";
    fs::copy(context.target.join("bundle/deps").join(library), programs.join("bench").join(library))?;
    let packed = programs.join("bin/cargo-nextest");
    fs::copy(nextest, &packed)?;
    if has("strip") {
        context.command("strip").arg(&packed).run()?;
    }
    Ok(())
}

/// Adds the package's wheel, and those of pytest.
fn python(context: &Context, folder: &Path) -> Result {
    let wheel = wheel::build(context)?;
    fs::copy(&wheel, folder.join(wheel.file_name().unwrap_or_default()))?;
    say("fetching pytest (wheels)");
    let all = fs::read_to_string(context.root.join("ffi/python/tests/requirements.txt"))?;
    let pins = all.lines().filter(|line| line.split_once("==").is_some_and(|(name, _)| PYTHON.contains(&name)));
    // Downloading is the one thing that uv lacks.
    let pip = "run --no-project --with pip python -m pip download --quiet --no-deps --only-binary :all: --dest";
    Ok(context.tool("uv").args(pip.split(' ')).arg(folder).args(pins).run()?)
}

/// Adds the Vulkan loader, vulkaninfo, the validation layer, and libraries; returns the names of their packages.
fn vulkan(context: &Context, programs: &Path) -> Result<String> {
    say("fetching the Vulkan loader and tools (Debian packages)");
    let cache = context.target.join("gpu-bundle.debs");
    let unpacked = context.target.join("gpu-bundle.unpacked");
    fs::create_dir_all(&cache)?;
    context.fresh(&unpacked)?;
    let folder = context.sh.push_dir(&cache);
    let user = context.command("id -un").read()?;
    for package in PACKAGES.split_whitespace() {
        let fetched = files(&cache)?.iter().any(|file| file.starts_with(&format!("{package}_")));
        if !fetched {
            let download = context.command("apt-get -qq -o").arg(format!("APT::Sandbox::User={user}"));
            let failed =
                format!("{package} could not be fetched; are the package lists present (sudo apt-get update)?");
            download.args(["download", package]).run().map_err(|_| failed)?;
        }
    }
    let packages = files(&cache)?;
    for package in &packages {
        context.command("dpkg-deb --extract").arg(package).arg(&unpacked).run()?;
    }
    drop(folder);
    fs::copy(unpacked.join("usr/bin/vulkaninfo"), programs.join("bin/vulkaninfo"))?;
    let libraries = context.command("find").arg(&unpacked).args(["-name", "lib*.so*"]).read()?;
    for file in libraries.lines().map(Path::new) {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Under their sonames, the names that programs link to.
        let is_soname =
            name.rsplit_once(".so.").is_some_and(|(_, version)| version.chars().all(|c| c.is_ascii_digit()));
        if is_soname {
            fs::copy(file, programs.join("lib").join(&name))?;
        } else if name == "libVkLayer_khronos_validation.so" {
            fs::copy(file, programs.join("layers").join(&name))?;
        }
    }
    if !programs.join("lib/libvulkan.so.1").exists() {
        return Err(
            format!("the packages in {} have no Vulkan loader; remove them and try again", cache.display()).into()
        );
    }
    let manifest = "VkLayer_khronos_validation.json";
    let text = fs::read_to_string(unpacked.join("usr/share/vulkan/explicit_layer.d").join(manifest))?;
    let mut layer: Value = serde_json::from_str(&text)?;
    layer["layer"]["library_path"] = "./libVkLayer_khronos_validation.so".into();
    fs::write(programs.join("layers").join(manifest), serde_json::to_string_pretty(&layer)?)?;
    fs::remove_dir_all(unpacked)?;
    Ok(packages.join(" "))
}

/// The names of a folder's files, sorted.
fn files(folder: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .map(|file| Ok(file?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Adds the files that tests and examples read. nextest starts each test in its package's folder; the files are found
/// relative to it.
fn workspace(context: &Context, programs: &Path) -> Result {
    let workspace = programs.join("workspace");
    context
        .command("cp --parents Cargo.toml README.md .cargo/config.toml .config/nextest.toml")
        .arg(&workspace)
        .run()?;
    let find = "find examples sim/run sim/test-layers.sh tests benches ffi/python/tests ffi/python/pyproject.toml -type f ! -name *.rs \
        ! -name *.pyc ! -path tests/gpu/* ! -path benches/results/* -exec cp --parents {}";
    context.command(find).arg(&workspace).arg(";").run()?;
    let bundle = context.target.join("gpu-bundle.new");
    for script in files(&context.root.join("tests/gpu"))?.iter().filter(|name| name.ends_with(".sh")) {
        fs::copy(context.root.join("tests/gpu").join(script), bundle.join(script))?;
    }
    Ok(())
}

/// Writes `bundle.txt`.
fn facts(context: &Context, nextest: &Path, packages: &str, new: &Path) -> Result {
    let commit =
        context.command("git describe --always --dirty").ignore_stderr().read().unwrap_or_else(|_| "unknown".into());
    let made = context.command("date -u +%Y-%m-%dT%H:%MZ").read()?;
    let rustc = context.command("rustc --version").read()?;
    let version = context.sh.cmd(nextest).arg("--version").quiet().read()?;
    let glibc = context.command("getconf GNU_LIBC_VERSION").read()?;
    let text = format!(
        "vkgdr GPU bundle\ncommit   {commit}\nmade     {made}\nrustc    {rustc}\nnextest  {}\n\
         glibc    {} or newer needed\npackages {packages}\n",
        version.lines().next().unwrap_or_default(),
        glibc.trim_start_matches("glibc "),
    );
    Ok(fs::write(new.join("bundle.txt"), text)?)
}

#[test]
fn only_a_bundle_or_an_empty_folder_is_replaced() -> Result {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("no parent folder")?;
    assert!(!is_replaceable(&root.join("tests/gpu"))?, "the sources of run.sh");
    let folder = xshell::Shell::new()?.create_temp_dir()?;
    let bundle = folder.path().join("bundle");
    assert!(is_replaceable(&bundle)?);
    fs::create_dir(&bundle)?;
    assert!(is_replaceable(&bundle)?);
    for name in ["run.sh", "bundle.txt"] {
        fs::write(bundle.join(name), "")?;
        assert!(!is_replaceable(&bundle)?, "{name}");
    }
    fs::write(bundle.join("tests.tar.zst"), "")?;
    assert!(is_replaceable(&bundle)?);
    Ok(())
}
