//! Tests the installed C library: installs it as a packager would, moves it to a folder that no tool searches, builds the
//! C and C++ examples against it with CMake and pkg-config, and runs them with the driver chosen by `sim/run`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use xshell::{Cmd, Shell};

use crate::Result;
use crate::context::{Context, Driver, has, say, test_all};

/// What `make install` installs.
const FILES: &str = "bin/vkgdr include/vkgdr.h include/vkgdr.hpp include/vkgdr_base.hpp include/vkgdr_device.hpp \
    include/vkgdr_memory.hpp include/vkgdr_mr.hpp include/vkgdr_pool.hpp include/vkgdr_ring.cuh include/vkgdr_ring.hpp lib/cmake/vkgdr/vkgdrConfig.cmake \
    lib/cmake/vkgdr/vkgdrConfigVersion.cmake lib/libvkgdr.a lib/libvkgdr.so lib/libvkgdr.so.1 lib/libvkgdr.so.1.0.0 \
    lib/pkgconfig/vkgdr.pc share/bash-completion/completions/vkgdr share/fish/vendor_completions.d/vkgdr.fish \
    share/man/man1/vkgdr-bench-alloc.1 share/man/man1/vkgdr-bench-bw.1 share/man/man1/vkgdr-bench-latency.1 \
    share/man/man1/vkgdr-bench-pingpong.1 share/man/man1/vkgdr-bench.1 share/man/man1/vkgdr-completions.1 share/man/man1/vkgdr-doctor.1 share/man/man1/vkgdr-info.1 \
    share/man/man1/vkgdr-sim.1 share/man/man1/vkgdr.1 share/zsh/site-functions/_vkgdr";
/// Variables of the user's builds, which must not influence the test.
const UNSET: &str = "CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CMAKE_GENERATOR DESTDIR GDRAPI LIBDIR PREFIX \
    PKG_CONFIG_PATH CMAKE_PREFIX_PATH PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR";

struct Examples<'a> {
    context: &'a Context,
    /// The user's folder, and the installed tree in it.
    work: PathBuf,
    prefix: PathBuf,
}

macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+).into());
        }
    };
}

/// Runs everything.
pub(crate) fn run(context: &Context) -> Result {
    let driver = context.choose_driver()?;
    let folder = context.sh.create_temp_dir()?;
    let examples = Examples { context, work: folder.path().into(), prefix: folder.path().join("moved to here") };
    examples.install("install", "0")?;
    fs::rename(examples.work.join("stage/opt/vkgdr"), &examples.prefix)?;
    examples.installed_files()?;
    examples.cmake()?;
    examples.cmake_versions()?;
    examples.pkg_config()?;
    examples.static_linking(driver)?;
    examples.install("install", "1")?;
    examples.gdrapi()?;
    say("uninstall");
    examples.install("install --uninstall", "1")?;
    let left = context.command("find").arg(examples.work.join("stage")).args(["!", "-type", "d"]).read()?;
    ensure!(left.is_empty(), "uninstall leaves: {left}");
    Ok(())
}

impl Examples<'_> {
    fn sh(&self) -> &Shell {
        &self.context.sh
    }

    /// A command without the user's build settings.
    fn command(&self, program: impl AsRef<Path>) -> Cmd<'_> {
        let command = self.sh().cmd(program).quiet();
        UNSET.split_whitespace().fold(command, |command, name| command.env_remove(name))
    }

    /// Runs a command, whose output is printed only if it fails.
    fn quietly(&self, command: Cmd<'_>) -> Result {
        let text = command.to_string();
        let output = command.ignore_status().output()?;
        if !output.status.success() {
            eprintln!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        }
        ensure!(output.status.success(), "failed: {text}");
        Ok(())
    }

    fn install(&self, chore: &str, gdrapi: &str) -> Result {
        let command = self.command(std::env::current_exe()?).args(chore.split(' ')).env("GDRAPI", gdrapi);
        self.quietly(command.env("PREFIX", "/opt/vkgdr").env("DESTDIR", self.work.join("stage")))
    }

    /// Fails unless exactly the expected files are installed, without paths of the build and without placeholders.
    fn installed_files(&self) -> Result {
        let _folder = self.sh().push_dir(&self.prefix);
        let found = self.context.command("find . ( -type f -o -type l ) -printf %P\\n").read()?;
        let mut found: Vec<&str> = found.lines().collect();
        found.sort_unstable();
        ensure!(found == FILES.split_whitespace().collect::<Vec<_>>(), "installed is: {found:?}");
        let is_binary = |file: &str| file.starts_with("lib/libvkgdr") || file.starts_with("bin/");
        for file in found.iter().filter(|file| !is_binary(file)) {
            let text = fs::read_to_string(self.prefix.join(file))?;
            let folders =
                [&self.context.root, &self.context.target, &self.work].map(|folder| format!("{}/", folder.display()));
            // Matches the start of a path only, not the end of a longer one.
            let begins = |word: &str| {
                text.match_indices(word).any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
            };
            ensure!(!folders.iter().any(|folder| begins(folder)), "{file} contains build paths");
            ensure!(!begins("/opt/vkgdr"), "{file} contains the staging prefix");
            let placeholder = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            ensure!(!text.split('@').skip(1).any(placeholder), "{file} contains placeholders");
        }
        Ok(())
    }

    /// Fails unless a program shares its text with the GPU, and fails with one line for an empty text.
    fn run(&self, program: &Path) -> Result {
        let text = "a text for the GPU";
        let name = program.display();
        let out = self.command("sim/run").arg(program).arg(text).read()?;
        for line in [format!("GPU reads   {text}"), format!("CPU reads   {} bytes of 0xa5", text.len())] {
            ensure!(out.contains(&line), "{name} did not say '{line}' but: {out}");
        }
        self.is_head(&out)?;
        let address = |view: &str| out.split(view).nth(1).is_some_and(|rest| rest.trim_start().starts_with("0x"));
        ensure!(address("CPU's view ") && address("GPU's view "), "{name} prints no addresses: {out}");
        let output = self.command("sim/run").arg(program).arg("").ignore_status().output()?;
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(!output.status.success(), "{name} does not fail for an empty text");
        let one_line = error.trim_end().lines().count() == 1 && error.starts_with("share: ");
        ensure!(
            out.is_empty() && one_line && error.trim_end().ends_with("cannot allocate 0 bytes of mapped memory"),
            "{name} fails for an empty text with: {out} {error}"
        );
        Ok(())
    }

    /// Fails unless both examples show this output in their heads, numbers and the GPU's name aside.
    fn is_head(&self, out: &str) -> Result {
        let shape = |line: &str| {
            let line = line.split_once("  ").filter(|(word, _)| *word == "GPU").map_or(line, |(word, _)| word);
            line.split_whitespace()
                .filter(|word| word.len() < 6 || !word.starts_with("0x"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        for (file, comment) in [("c/share.c", " *     "), ("cpp/share.cpp", "//     ")] {
            let source = fs::read_to_string(self.context.root.join("examples").join(file))?;
            let lines = source.lines().skip_while(|line| !line.contains("$ ./share"));
            let shown: Vec<_> = lines.skip(1).map_while(|line| line.strip_prefix(comment)).map(shape).collect();
            let printed: Vec<_> = out.lines().map(shape).collect();
            ensure!(shown == printed, "the head of {file} shows {shown:?}, the program prints {printed:?}");
        }
        Ok(())
    }

    fn needs_shared_library(&self, program: &Path) -> Result<bool> {
        let text = self.command("ldd").arg(program).ignore_status().ignore_stderr().read()?;
        Ok(text.contains("libvkgdr.so.1"))
    }

    /// Configures and builds a CMake project.
    fn build(&self, source: &Path, build: &Path) -> Result {
        let prefix = format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display());
        let configure = self.command("cmake").arg("-S").arg(source).arg("-B").arg(build);
        self.quietly(configure.arg(prefix).arg("-DCMAKE_BUILD_TYPE=Release"))?;
        self.quietly(self.command("cmake").arg("--build").arg(build))
    }

    fn cmake(&self) -> Result {
        say("CMake");
        for language in ["c", "cpp"] {
            let build = self.work.join(format!("cmake {language}"));
            self.build(&self.context.root.join("examples").join(language), &build)?;
            let program = build.join("share");
            ensure!(self.needs_shared_library(&program)?, "examples/{language} is not linked to libvkgdr.so.1");
            self.run(&program)?;
        }
        let (source, build) = (self.work.join("static"), self.work.join("static/build"));
        fs::create_dir(&source)?;
        let project = fs::read_to_string(self.context.root.join("examples/c/CMakeLists.txt"))?;
        fs::write(source.join("CMakeLists.txt"), project.replace("vkgdr::vkgdr", "vkgdr::static"))?;
        fs::copy(self.context.root.join("examples/c/share.c"), source.join("share.c"))?;
        self.build(&source, &build)?;
        ensure!(!self.needs_shared_library(&build.join("share"))?, "vkgdr::static links to libvkgdr.so.1");
        self.run(&build.join("share"))?;
        // glibc 2.34 and newer contains libpthread, so that the programs above link without it.
        let link = fs::read_to_string(build.join("CMakeFiles/share.dir/link.txt"))?;
        ensure!(link.contains("-lpthread"), "vkgdr::static lists no libraries");
        Ok(())
    }

    /// Fails unless `find_package` accepts compatible versions only.
    fn cmake_versions(&self) -> Result {
        let source = self.work.join("version");
        let find = |version: &str| -> Result<bool> {
            let head = "cmake_minimum_required(VERSION 3.19)\nproject(version LANGUAGES C)\n";
            fs::create_dir_all(&source)?;
            fs::write(source.join("CMakeLists.txt"), format!("{head}find_package(vkgdr {version} REQUIRED)\n"))?;
            let prefix = format!("-DCMAKE_PREFIX_PATH={}", self.prefix.display());
            let command = self.command("cmake").arg("-S").arg(&source).arg("-B").arg(source.join("build")).arg(prefix);
            Ok(command.ignore_status().output()?.status.success())
        };
        for version in ["", "0.1", "0.1...0.9", "0.1...<9"] {
            ensure!(find(version)?, "find_package(vkgdr {version}) does not find the library");
        }
        for version in ["1.0", "0.999", "0.0...0.1", "0.1...<0.2.0"] {
            ensure!(!find(version)?, "find_package(vkgdr {version}) accepts an incompatible version");
        }
        Ok(())
    }

    /// The flags of `pkg-config`, split as a shell would: the folder's name contains spaces.
    fn flags(&self, options: &[&str]) -> Result<Vec<String>> {
        let pkgconfig = self.prefix.join("lib/pkgconfig");
        let text = self.command("pkg-config").args(options).arg("vkgdr").env("PKG_CONFIG_PATH", pkgconfig).read()?;
        let mut flags = vec![String::new()];
        let mut characters = text.trim().chars();
        while let Some(character) = characters.next() {
            match (character, flags.last_mut()) {
                (' ', _) => flags.push(String::new()),
                ('\\', Some(flag)) => flag.extend(characters.next()),
                (other, Some(flag)) => flag.push(other),
                (_, None) => {}
            }
        }
        Ok(flags.into_iter().filter(|flag| !flag.is_empty()).collect())
    }

    /// Compiles an example with warnings as errors.
    fn compile<S: AsRef<OsStr>>(
        &self,
        compiler: &str,
        standard: &str,
        language: &str,
        flags: &[S],
        program: &Path,
    ) -> Result {
        let source = format!("examples/{language}/share.{language}");
        let options = [&format!("-std={standard}"), "-Wall", "-Wextra", "-Wpedantic", "-Werror", &source, "-o"];
        self.quietly(self.command(compiler).args(options).arg(program).args(flags).arg("-ldl"))
    }

    fn pkg_config(&self) -> Result {
        say("pkg-config");
        let has_thread = |options: &[&str]| {
            Ok::<_, Box<dyn std::error::Error>>(self.flags(options)?.iter().any(|flag| flag == "-lpthread"))
        };
        ensure!(has_thread(&["--libs", "--static"])?, "vkgdr.pc lists no libraries for static linking");
        ensure!(!has_thread(&["--libs"])?, "vkgdr.pc lists the libraries for static linking without --static");
        let flags = self.flags(&["--cflags", "--libs"])?;
        let _path = self.sh().push_env("LD_LIBRARY_PATH", self.library_path());
        let all = [("cc gcc clang", "c", "gnu99 gnu11 gnu17"), ("c++ g++ clang++", "cpp", "c++17 c++20")];
        let quick = [("cc", "c", "gnu11"), ("c++", "cpp", "c++17")];
        for (compilers, language, standards) in if test_all() { all } else { quick } {
            for compiler in compilers.split(' ').filter(|compiler| has(compiler)) {
                for standard in standards.split(' ') {
                    let program = self.work.join(format!("{compiler}-{standard}"));
                    self.compile(compiler, standard, language, &flags, &program)?;
                    self.run(&program)?;
                }
            }
        }
        self.readme(&flags)
    }

    /// Builds and runs the C program in README.md.
    fn readme(&self, flags: &[String]) -> Result {
        let text = fs::read_to_string(self.context.root.join("README.md"))?;
        let code = text.split_once("```c\n").and_then(|(_, rest)| rest.split_once("```"));
        let (code, _) = code.ok_or("README.md has no program in C")?;
        let (source, program) = (self.work.join("readme.c"), self.work.join("readme"));
        fs::write(&source, code)?;
        self.quietly(
            self.command("cc").args(["-Wall", "-Wextra", "-Werror"]).arg(&source).arg("-o").arg(&program).args(flags),
        )?;
        let out = self.command("sim/run").arg(&program).read()?;
        ensure!(out.starts_with("device pointer for kernels: 0x"), "README.md's program in C prints: {out}");
        Ok(())
    }

    fn library_path(&self) -> String {
        let inherited = std::env::var("LD_LIBRARY_PATH").map(|path| format!(":{path}")).unwrap_or_default();
        format!("{}/lib{inherited}", self.prefix.display())
    }

    /// A program for gdrcopy, linked by `-lgdrapi` and by pkg-config, and loading the library by each of its names.
    fn gdrapi(&self) -> Result {
        say("gdrcopy's names");
        let prefix = self.work.join("stage/opt/vkgdr");
        let (lib, include) = (prefix.join("lib"), prefix.join("include"));
        let path = std::env::var("LD_LIBRARY_PATH").map(|path| format!(":{path}")).unwrap_or_default();
        let path = format!("{}{path}", lib.display());
        let flags = self.command("pkg-config").args(["--cflags", "--libs", "gdrapi"]);
        let flags = flags.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).read()?;
        let plain = format!("-I{} -L{} -lgdrapi", include.display(), lib.display());
        let program = self.work.join("gdrcopy");
        let build = |flags: &str| {
            let command = self.command("cc").args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
            self.quietly(command.arg("ffi/c/tests/fixtures/gdrcopy.c").args(flags.split_whitespace()).arg("-ldl"))
        };
        let run = |name: &str| self.command("sim/run").arg(&program).args([name, "vkgdr"]);
        for flags in [&*flags, &plain] {
            build(&format!("-DLINKED {flags}"))?;
            self.quietly(run("linked").env("LD_LIBRARY_PATH", &path))?;
        }
        build(&format!("-I{}", include.display()))?;
        for name in ["libgdrapi.so.2", "libgdrapi.so"] {
            self.quietly(run(name).env("LD_LIBRARY_PATH", &path))?;
            // Found by their path alone, with the library that they need.
            self.quietly(run(&lib.join(name).display().to_string()))?;
        }
        Ok(())
    }

    fn static_linking(&self, driver: Driver) -> Result {
        say("pkg-config --static");
        let flags = self.flags(&["--static", "--cflags", "--libs"])?;
        // From a folder without the shared library, which the linker would prefer.
        let archive = self.work.join("archive");
        fs::create_dir(&archive)?;
        fs::copy(self.prefix.join("lib/libvkgdr.a"), archive.join("libvkgdr.a"))?;
        let program = self.work.join("with-archive");
        let preferred = [vec![format!("-L{}", archive.display())], flags.clone()].concat();
        self.compile("gcc", "gnu11", "c", &preferred, &program)?;
        ensure!(!self.needs_shared_library(&program)?, "pkg-config --static links to libvkgdr.so.1");
        self.run(&program)?;
        if !Path::new(self.command("gcc").arg("-print-file-name=libc.a").read()?.trim()).is_absolute() {
            say("skipped: gcc -static has no libc.a");
            return Ok(());
        }
        let program = self.work.join("all-static");
        let all = [vec!["-static".to_owned()], flags].concat();
        self.compile("gcc", "gnu11", "c", &all, &program)?;
        let dynamic = self.command("ldd").arg(&program).ignore_status().output()?.status.success();
        ensure!(!dynamic, "gcc -static made a program that needs shared libraries");
        // glibc's dlopen works in such a program, but not every driver does. Without a driver the error must say so.
        if driver == Driver::Simulated {
            let output = self.command(&program).arg("text").env_remove("LD_LIBRARY_PATH").ignore_status().output()?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(!output.status.success(), "a static program succeeds without a driver");
            ensure!(error.contains("libcuda.so.1 could not be loaded"), "a static program fails with: {error}");
        }
        Ok(())
    }
}
