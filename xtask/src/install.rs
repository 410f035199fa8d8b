//! Installs and uninstalls the C library with the command vkgdr.
//!
//! | variable | meaning |
//! |---|---|
//! | `PREFIX` | the prefix; default `/usr/local` |
//! | `LIBDIR` | the folder of the libraries; default `$PREFIX/lib` |
//! | `GDRAPI` | 1: also gdrcopy's names for the library, and its header; in place of gdrcopy's own, if that is there |
//! | `DESTDIR` | a staging folder, prepended to every path for packagers; it is in no installed file |
//!
//! A user builds, and may leave the installation to root, who needs no cargo: this program, not started by cargo,
//! installs the user's build.

mod command;
mod folders;

use std::fs;
use std::path::{Path, PathBuf};

use xshell::cmd;

use crate::Result;
use crate::context::{Context, say, variable};
use folders::{Folders, is_searched, lexical, relative};

/// The value of a key in a table of a manifest.
fn setting(manifest: &str, table: &str, key: &str) -> Result<String> {
    let (_, rest) =
        manifest.split_once(&format!("[{table}]\n")).ok_or_else(|| format!("no [{table}] in Cargo.toml"))?;
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    let mut values =
        lines.filter_map(|line| line.strip_prefix(key)?.trim().strip_prefix('=')?.trim().strip_prefix('"'));
    let value = values.find_map(|value| value.strip_suffix('"')).ok_or_else(|| format!("no {key} in [{table}]"))?;
    Ok(value.to_owned())
}

/// The empty library with gdrcopy's soname, as it is built.
const GDRAPI: &str = "libgdrapi.so.2";

/// The C library's build and versions.
struct Library {
    built: PathBuf,
    version: String,
    /// The C API's version; the soname ends in its major number.
    so_version: String,
    /// The version of gdrcopy's interface, if that is installed as well.
    gdrapi: Option<String>,
}

impl Library {
    fn new(context: &Context) -> Result<Self> {
        let read = |path: &str| fs::read_to_string(context.root.join(path));
        Ok(Self {
            built: context.target.join(variable("CARGO_BUILD_TARGET").unwrap_or_default()).join("release"),
            version: setting(&read("Cargo.toml")?, "workspace.package", "version")?,
            so_version: setting(&read("ffi/c/Cargo.toml")?, "package.metadata.vkgdr", "library-version")?,
            gdrapi: match variable("GDRAPI").as_deref() {
                None | Some("" | "0") => None,
                Some("1") => Some(setting(&read("ffi/c/Cargo.toml")?, "package.metadata.vkgdr", "gdrapi-version")?),
                Some(other) => return Err(format!("GDRAPI must be 0 or 1, unlike '{other}'").into()),
            },
        })
    }

    fn so_major(&self) -> &str {
        self.so_version.split('.').next().unwrap_or_default()
    }

    /// The list of libraries that `libvkgdr.a` needs, as rustc prints it, is kept beside it.
    fn libs_file(&self) -> PathBuf {
        self.built.join("libvkgdr_c.libs")
    }

    fn build(&self, context: &Context) -> Result {
        say("building the C library");
        // rustc prints the note even if nothing has to be built.
        let command = context.cargo("rustc --color never --release --package vkgdr-c -- --print native-static-libs");
        let output = command.ignore_status().output()?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        let note = log.lines().rev().find_map(|line| line.strip_prefix("note: native-static-libs: "));
        let Some(libs) = note.filter(|_| output.status.success()) else {
            eprintln!("{log}");
            return Err("the C library could not be built".into());
        };
        // Each once, except those that compilers link by default: libc, and the unwinder (libgcc_s, or libgcc_eh with
        // -static).
        let mut needed: Vec<&str> = Vec::new();
        for lib in libs.split_whitespace().filter(|lib| !["-lc", "-lgcc_s"].contains(lib)) {
            if !needed.contains(&lib) {
                needed.push(lib);
            }
        }
        if self.gdrapi.is_some() {
            self.build_gdrapi(context)?;
        }
        Ok(fs::write(self.libs_file(), needed.join(" "))?)
    }

    /// Makes `libgdrapi.so.2`: without a symbol of its own, but the dynamic linker finds those of the library that it needs.
    fn build_gdrapi(&self, context: &Context) -> Result {
        let compiler = variable("CC").unwrap_or_else(|| "cc".into());
        let command = context.command(&format!("{compiler} -shared -nostdlib -Wl,--no-as-needed"));
        // Its neighbour is found also where no tool searches their folder.
        let options = ["-Wl,-soname,libgdrapi.so.2", "-Wl,-rpath,$ORIGIN", "-o"];
        Ok(command.args(options).arg(self.built.join(GDRAPI)).arg(self.built.join("libvkgdr_c.so")).run()?)
    }

    /// For root without cargo: the user's build must exist and be newer than the sources.
    fn check(&self, context: &Context) -> Result {
        if !self.libs_file().exists() {
            return Err("the C library is not built: first run this as a user who has cargo, then as root".into());
        }
        if self.gdrapi.is_some() && !self.built.join(GDRAPI).exists() {
            return Err("libgdrapi is not built: first run this as a user who has cargo, then as root".into());
        }
        let sources = "src cli/src cli/Cargo.toml ffi/c/src ffi/c/build.rs ffi/c/Cargo.toml";
        not_older(context, "the C library", &self.libs_file(), sources)
    }

    /// A template with its `@PLACEHOLDERS@` filled in.
    fn fill(&self, template: &Path, folders: &Folders, include: &Path) -> Result<String> {
        let libs = fs::read_to_string(self.libs_file())?;
        let text = |path: &Path| path.display().to_string();
        let (mut prefix_from_pc, mut include_from_lib) = (text(&folders.prefix), text(include));
        // Relative paths let the installed tree be moved; impossible if LIBDIR is outside PREFIX.
        if folders.libdir.starts_with(&folders.prefix) && folders.libdir != folders.prefix {
            let pkgconfig = folders.libdir.join("pkgconfig");
            prefix_from_pc = format!("${{pcfiledir}}/{}", text(&relative(&folders.prefix, &pkgconfig)));
            include_from_lib = text(&relative(include, &folders.libdir));
        }
        let values = [
            ("@PREFIX_FROM_PC@", prefix_from_pc.replace(' ', "\\ ")),
            ("@INCLUDE_FROM_LIB@", include_from_lib),
            ("@VERSION@", self.version.clone()),
            ("@VERSION_MAJOR@", self.version.split('.').next().unwrap_or_default().into()),
            ("@SO_VERSION@", self.so_version.clone()),
            ("@SO_MAJOR@", self.so_major().into()),
            ("@GDRAPI_VERSION@", self.gdrapi.clone().unwrap_or_default()),
            ("@STATIC_LIBS@", libs.clone()),
            ("@STATIC_LIBS_LIST@", libs.replace("-l", "").replace(' ', ";")),
            ("@POINTER_BYTES@", (usize::BITS / 8).to_string()),
        ];
        let template = fs::read_to_string(template)?;
        Ok(values.into_iter().fold(template, |text, (name, value)| text.replace(name, &value)))
    }
}

/// Fails if a source is newer than a build: cargo would build it anew.
fn not_older(context: &Context, what: &str, built: &Path, sources: &str) -> Result {
    let find = context.command("find Cargo.toml Cargo.lock").args(sources.split_whitespace()).arg("-newer").arg(built);
    let newer = find.args(["-print", "-quit"]).read()?;
    if newer.is_empty() {
        return Ok(());
    }
    Err(format!("{newer} has changed since {what} was built: first run this as a user who has cargo").into())
}

/// The headers for C and C++. `vkgdr.hpp` includes those with the names of its classes.
const HEADERS: [&str; 8] = [
    "vkgdr.h",
    "vkgdr.hpp",
    "vkgdr_base.hpp",
    "vkgdr_device.hpp",
    "vkgdr_memory.hpp",
    "vkgdr_mr.hpp",
    "vkgdr_pool.hpp",
    "vkgdr_ring.hpp",
];

/// Installs or uninstalls the C library and the command.
pub(crate) fn library(context: &Context, uninstall: bool) -> Result {
    let folders = Folders::new()?;
    let library = Library::new(context)?;
    let (lib, include) = (&folders.libdir, lexical(&folders.prefix.join("include")));
    let shared = format!("libvkgdr.so.{}", library.so_version);
    let soname = format!("libvkgdr.so.{}", library.so_major());
    let mut templates = vec![
        ("ffi/c/vkgdr.pc.in", lib.join("pkgconfig/vkgdr.pc")),
        ("ffi/c/cmake/vkgdrConfig.cmake.in", lib.join("cmake/vkgdr/vkgdrConfig.cmake")),
        ("ffi/c/cmake/vkgdrConfigVersion.cmake.in", lib.join("cmake/vkgdr/vkgdrConfigVersion.cmake")),
    ];
    let mut copies = vec![
        (library.built.join("libvkgdr_c.so"), lib.join(&shared), 0o755),
        (library.built.join("libvkgdr_c.a"), lib.join("libvkgdr.a"), 0o644),
        (context.root.join("src/ring/vkgdr_ring.cuh"), include.join("vkgdr_ring.cuh"), 0o644),
    ];
    let headers = context.root.join("ffi/c/include");
    copies.extend(HEADERS.map(|name| (headers.join(name), include.join(name), 0o644)));
    copies.extend(command::files(context, &folders, &library.built));
    let mut links = vec![(lib.join(&soname), shared.clone()), (lib.join("libvkgdr.so"), soname.clone())];
    if let Some(version) = &library.gdrapi {
        let gdrapi = format!("libgdrapi.so.{version}");
        templates.push(("ffi/c/gdrapi.pc.in", lib.join("pkgconfig/gdrapi.pc")));
        copies.push((library.built.join(GDRAPI), lib.join(&gdrapi), 0o755));
        copies.push((headers.join("gdrapi.h"), include.join("gdrapi.h"), 0o644));
        // Linkers do not look for a program's symbols in what a library needs, and programs also load this name, so that it can be
        // no script of the linker's: it is the library itself.
        links.extend([(lib.join(GDRAPI), gdrapi), (lib.join("libgdrapi.so"), soname.clone())]);
    }
    let copied = copies.iter().map(|(_, to, _)| to);
    let installed: Vec<PathBuf> =
        copied.chain(links.iter().map(|(to, _)| to)).chain(templates.iter().map(|(_, to)| to)).cloned().collect();
    if uninstall {
        folders.remove(&installed)?;
        let _ = fs::remove_dir(folders.staged(&lib.join("cmake/vkgdr")));
        return update_linker_cache(context, &folders);
    }
    if context.by_cargo {
        command::build(context)?;
        // Last: it leaves the file whose time `check` compares.
        library.build(context)?
    } else {
        library.check(context)?
    }
    folders.create(&installed)?;
    for (from, to, mode) in &copies {
        folders.put(to, read(from)?, *mode)?;
    }
    for (to, target) in &links {
        folders.put_link(to, target.as_ref())?;
    }
    for (template, to) in &templates {
        folders.put(to, library.fill(&context.root.join(template), &folders, &include)?, 0o644)?;
    }
    update_linker_cache(context, &folders)?;
    folders.list(&installed);
    explain(context, &folders, &soname)?;
    explain_path(&folders, &lexical(&folders.prefix.join("bin")));
    Ok(())
}

fn is_root(context: &Context) -> Result<bool> {
    Ok(context.command("id -u").read()? == "0")
}

/// Updates the dynamic linker's cache, as root and without `DESTDIR`.
fn update_linker_cache(context: &Context, folders: &Folders) -> Result {
    if !folders.is_staged() && is_root(context)? {
        let sh = &context.sh;
        // On Debian, ldconfig is not in an ordinary user's PATH.
        let _ = cmd!(sh, "sh -c 'PATH=$PATH:/usr/sbin:/sbin ldconfig'").quiet().ignore_stderr().run();
    }
    Ok(())
}

/// Prints how to find a library outside the folders that tools search.
fn explain(context: &Context, folders: &Folders, soname: &str) -> Result {
    let sh = &context.sh;
    let cache =
        cmd!(sh, "sh -c 'PATH=$PATH:/usr/sbin:/sbin ldconfig -p'").quiet().ignore_status().ignore_stderr().read()?;
    let lib = folders.libdir.display();
    if folders.is_staged() || cache.contains(&format!(" {lib}/{soname}")) {
        return Ok(());
    }
    say("tools do not search this folder by default; set");
    println!("{}", in_front("PKG_CONFIG_PATH", &folders.libdir.join("pkgconfig")));
    match folders.cmake_variable() {
        (name @ "CMAKE_PREFIX_PATH", folder) => println!("{}", in_front(name, &folder)),
        (name, folder) => println!("    export {name}='{}'", folder.display()),
    }
    println!("{}", in_front("LD_LIBRARY_PATH", &folders.libdir));
    Ok(())
}

/// A line for a shell that puts a folder in front of those in a variable, which may not be set: an empty part of such a list
/// would be the current folder.
fn in_front(name: &str, folder: &Path) -> String {
    format!("    export {name}='{}'\"${{{name}:+:${name}}}\"", folder.display())
}

fn read(file: &Path) -> Result<Vec<u8>> {
    Ok(fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?)
}

/// Prints how to find programs outside the folders that shells search.
fn explain_path(folders: &Folders, bin: &Path) {
    if !folders.is_staged() && !is_searched(bin, &variable("PATH").unwrap_or_default()) {
        say("shells do not search this folder; set");
        println!("    export PATH='{}':\"$PATH\"", bin.display());
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_setting_is_read_from_its_own_table() {
        let manifest = "[package]\nversion = \"1\"\n\n[other]\nversion = \"2\"\n";
        assert_eq!(setting(manifest, "other", "version").ok().as_deref(), Some("2"));
        assert!(setting(manifest, "other", "name").is_err());
    }

    #[test]
    fn a_shell_keeps_what_its_variables_had() -> Result {
        let line = in_front("LD_LIBRARY_PATH", "/opt/my lib".as_ref());
        let script = format!("{line}; printf %s \"$LD_LIBRARY_PATH\"");
        let sh = xshell::Shell::new()?;
        let run = |command: xshell::Cmd<'_>| command.args(["-euc", &script]).quiet().read();
        assert_eq!(run(sh.cmd("sh").env("LD_LIBRARY_PATH", "/a:/b"))?, "/opt/my lib:/a:/b");
        assert_eq!(run(sh.cmd("sh").env_remove("LD_LIBRARY_PATH"))?, "/opt/my lib");
        Ok(())
    }

    #[test]
    fn a_source_that_is_newer_than_the_build_is_named() -> Result {
        let context = Context::new()?;
        let folder = context.sh.create_temp_dir()?;
        let built = folder.path().join("built");
        let file = fs::File::create(&built)?;
        let check = || not_older(&context, "it", &built, "src").map_err(|error| error.to_string());
        file.set_modified(SystemTime::now() + Duration::from_secs(3600))?;
        assert_eq!(check(), Ok(()));
        file.set_modified(SystemTime::UNIX_EPOCH)?;
        assert_eq!(
            check(),
            Err("Cargo.toml has changed since it was built: first run this as a user who has cargo".into())
        );
        Ok(())
    }
}
