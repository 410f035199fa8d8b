//! A machine to run the command on: files of a system, libraries, a simulated GPU.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{Result, TempDir, tempdir};

/// Variables of the test's own run, and of the user, that the command must not see.
const UNSET: [&str; 14] = [
    "COLUMNS",
    "CUDA_VISIBLE_DEVICES",
    "NO_COLOR",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "SIMCUDA_DEVICES",
    "VKGDR_COPY",
    "VKLAYER_FAIL",
    "VKLAYER_PROFILE",
    "VK_ADD_LAYER_PATH",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_ADD_DRIVER_FILES",
    "VK_INSTANCE_LAYERS",
];

/// A folder with the files of a system in `root` and libraries in `lib`, removed on drop.
pub(crate) struct Machine {
    folder: TempDir,
    /// Arguments of vkgdr-sim; none without a CUDA driver.
    simulator: Option<Vec<String>>,
    variables: Vec<(&'static str, OsString)>,
    shell: String,
}

/// What the command printed.
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    pub(crate) fn json(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.out).map_err(|error| format!("{error}: {} {}", self.out, self.err))?)
    }

    /// The text with each run of white space as one space.
    pub(crate) fn words(&self) -> String {
        self.out.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl From<Output> for Printed {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// The folder of the simulator; none, with a message, where the driver is real.
pub(crate) fn simulator() -> Option<PathBuf> {
    let found =
        std::env::var_os("VKGDR_SIM_DIR").map(PathBuf::from).filter(|folder| folder.join("vkgdr-sim").is_file());
    let real = std::env::var_os("VKGDR_CUDA_DRIVER").is_some_and(|driver| driver == "real");
    if found.is_none() || real {
        eprintln!("skipped: needs the simulated GPU (make sim, VKGDR_CUDA_DRIVER=sim)");
    }
    found.filter(|_| !real)
}

/// Ends a test without the simulator.
macro_rules! need_simulator {
    () => {
        if $crate::machine::simulator().is_none() {
            return Ok(());
        }
    };
}
pub(crate) use need_simulator;

impl Machine {
    /// A bare system: no driver, no device, no container.
    pub(crate) fn bare() -> Result<Self> {
        let machine = Self { folder: tempdir()?, simulator: None, variables: Vec::new(), shell: String::new() };
        fs::create_dir(machine.folder().join("lib"))?;
        let limits = "Max locked memory 8388608 8388608 bytes\nMax open files 1024 524288 files\n";
        let machine = machine.with("/proc/self/limits", limits)?;
        // Where the machine of the test has a real one.
        machine.with_broken_library("libcuda.so.1")
    }

    /// The same with a simulated GPU of a profile.
    pub(crate) fn simulated(profile: &'static str) -> Result<Self> {
        let mut machine = Self::bare()?;
        fs::remove_file(machine.folder().join("lib/libcuda.so.1"))?;
        machine = machine.with_simulator(&["--profile", profile]);
        Ok(machine)
    }

    /// More arguments of vkgdr-sim.
    pub(crate) fn with_simulator(mut self, arguments: &[impl ToString]) -> Self {
        self.simulator.get_or_insert_default().extend(arguments.iter().map(ToString::to_string));
        self
    }

    /// A file of the system.
    pub(crate) fn with(self, path: &str, text: &str) -> Result<Self> {
        let file = self.root().join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap_or(Path::new("/")))?;
        fs::write(file, text)?;
        Ok(self)
    }

    pub(crate) fn with_folder(self, path: &str) -> Result<Self> {
        fs::create_dir_all(self.root().join(path.trim_start_matches('/')))?;
        Ok(self)
    }

    /// NVIDIA's kernel driver with these numbers of GPUs and of their device nodes.
    pub(crate) fn with_kernel_driver(mut self, gpus: usize, nodes: usize) -> Result<Self> {
        self =
            self.with("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  x\n")?;
        self = self.with("/dev/nvidiactl", "")?.with("/dev/nvidia-uvm", "")?;
        for gpu in 0..gpus {
            self = self.with_folder(&format!("/proc/driver/nvidia/gpus/0000:0{gpu}:00.0"))?;
        }
        for node in 0..nodes {
            self = self.with(&format!("/dev/nvidia{node}"), "")?;
        }
        Ok(self)
    }

    pub(crate) fn with_variable(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name, value.as_ref().to_owned()));
        self
    }

    /// Commands of the shell before the command.
    pub(crate) fn after(mut self, shell: &str) -> Self {
        self.shell = format!("{shell} && ");
        self
    }

    /// A library that can be loaded. If it `needs` another, that one is missing.
    pub(crate) fn with_library(self, name: &str, needs: Option<&str>) -> Result<Self> {
        let lib = self.folder().join("lib");
        let mut command = Command::new("cc");
        command.args(["-shared", "-x", "c", "/dev/null", "-Wl,--no-as-needed"]).arg("-o").arg(lib.join(name));
        if let Some(needed) = needs {
            let soname = format!("-Wl,-soname,{needed}");
            let other = lib.join(needed);
            let made =
                Command::new("cc").args(["-shared", "-x", "c", "/dev/null", &soname, "-o"]).arg(&other).status()?;
            assert!(made.success());
            let made = command.args(["-x", "none"]).arg(&other).status()?;
            fs::remove_file(other)?;
            assert!(made.success());
        } else {
            assert!(command.status()?.success());
        }
        Ok(self)
    }

    /// A library that was linked with a C library newer than any.
    pub(crate) fn with_library_for_newer_glibc(self, name: &str) -> Result<Self> {
        let (lib, newer) = (self.folder().join("lib"), self.folder().join("lib/libc.so.6"));
        fs::write(self.folder().join("newer.c"), "int newer;\n")?;
        fs::write(self.folder().join("newer.map"), "GLIBC_2.99 { newer; };\n")?;
        fs::write(self.folder().join("user.c"), "extern int newer;\nint *user(void) { return &newer; }\n")?;
        let cc = |arguments: &[&str], output: &Path| {
            let mut command = Command::new("cc");
            command.args(["-shared", "-nostdlib", "-fPIC", "-o"]).arg(output).args(arguments);
            command.current_dir(self.folder()).status().map(|status| assert!(status.success()))
        };
        cc(&["newer.c", "-Wl,--version-script=newer.map", "-Wl,-soname,libc.so.6"], &newer)?;
        cc(&["user.c", "lib/libc.so.6"], &lib.join(name))?;
        fs::remove_file(newer)?;
        Ok(self)
    }

    /// A file that the dynamic loader rejects.
    pub(crate) fn with_broken_library(self, name: &str) -> Result<Self> {
        fs::write(self.folder().join("lib").join(name), "not a library\n")?;
        Ok(self)
    }

    /// A copy of the simulated CUDA driver in which a text is replaced by another of the same length.
    pub(crate) fn with_patched_cuda(self, old: &[u8], new: &[u8]) -> Result<Self> {
        assert_eq!(old.len(), new.len());
        let original = simulator().ok_or("no simulator")?.join("libcuda.so.1");
        let mut bytes = fs::read(original)?;
        let places: Vec<_> =
            bytes.windows(old.len()).enumerate().filter(|(_, w)| *w == old).map(|(at, _)| at).collect();
        assert!(!places.is_empty(), "the simulated driver has no {:?}", String::from_utf8_lossy(old));
        places.into_iter().for_each(|at| bytes[at..at + new.len()].copy_from_slice(new));
        fs::write(self.folder().join("lib/libcuda.so.1"), bytes)?;
        Ok(self)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder().join("root")
    }

    /// A folder for the test's own files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command that runs `vkgdr ARGUMENTS` on this machine.
    pub(crate) fn command(&self, arguments: &[&str]) -> Result<Command> {
        let vkgdr = env!("CARGO_BIN_EXE_vkgdr");
        let mut command = match &self.simulator {
            None => Command::new("sh"),
            Some(options) => {
                let mut command = Command::new(simulator().ok_or("no simulator")?.join("vkgdr-sim"));
                command.args(options).args(["--", "sh"]);
                command
            }
        };
        // Ours first: vkgdr-sim prepends its own folder.
        let path = format!("export LD_LIBRARY_PATH=\"{}:$LD_LIBRARY_PATH\"; ", self.folder().join("lib").display());
        // A shell ignores interrupts for a job in the background, and what that starts would inherit it.
        let start = "exec env --default-signal=INT \"$0\" \"$@\"";
        command.arg("-c").arg(format!("{path}{}{start}", self.shell)).arg(vkgdr).args(arguments);
        UNSET.iter().for_each(|name| {
            command.env_remove(name);
        });
        command
            .env("LD_LIBRARY_PATH", "")
            .env("VKGDR_SYSTEM_ROOT", self.root())
            .envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command.current_dir(self.folder()).stdin(Stdio::null());
        Ok(command)
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Printed> {
        let printed = Printed::from(self.command(arguments)?.output()?);
        assert!(!printed.err.contains("panicked"), "{}", printed.err);
        Ok(printed)
    }
}
