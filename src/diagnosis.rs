//! Diagnoses why the CPU cannot map GPU memory: the cause, and its remedy, where Vulkan does not know a GPU that CUDA knows.
//!
//! The command `vkgdr doctor` shows them one by one. Files are read below a root folder, `/` except in tests; those
//! that `VK_DRIVER_FILES` and its like name, as they are.
#![forbid(unsafe_code)]

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::driver::cuda::{LIBRARY as LIBCUDA, cuda};
use crate::driver::load_library;
use crate::driver::vulkan::HEADLESS;

/// NVIDIA's Vulkan driver, as its manifest names it.
const DEFAULT: &str = "libGLX_nvidia.so.0";

/// The files of a system, below a root folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// The system that this process runs on.
    pub fn here() -> Self {
        Self::below("/")
    }

    /// The system whose `/proc`, `/sys`, `/dev`, `/etc`, `/run` and `/usr` are in the folder `root`.
    pub fn below(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The place of an absolute path.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file; `None` if it cannot be read.
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// [`entries`] of a folder of the system.
    fn entries(&self, folder: &str) -> Vec<PathBuf> {
        entries(&self.path(folder))
    }

    /// The version of NVIDIA's kernel module, such as `580.65.06`.
    ///
    /// `/proc/driver/nvidia/version` begins with `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  …`, or with
    /// `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  …`.
    pub fn kernel_module(&self) -> Option<String> {
        let text = self.text("/proc/driver/nvidia/version")?;
        text.lines().next()?.split_whitespace().find(|word| is_version(word)).map(str::to_owned)
    }

    /// The device nodes of GPUs: `/dev/nvidia0` and so on.
    pub fn gpu_nodes(&self) -> Vec<PathBuf> {
        let mut nodes = self.entries("/dev");
        let digits = |path: &PathBuf| Some(path.file_name()?.to_str()?.strip_prefix("nvidia")?.to_owned());
        let is_number = |digits: String| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        nodes.retain(|path| digits(path).is_some_and(is_number));
        nodes
    }

    /// The manifests that name NVIDIA's driver to the Vulkan loader. It looks in these folders ("Driver Discovery" in its
    /// documentation), and in some of the user's home.
    pub fn manifests(&self) -> Vec<PathBuf> {
        // Files, or folders of them.
        let files = |path: PathBuf| if path.is_dir() { entries(&path) } else { vec![path] };
        let listed =
            |name: &str| env::var_os(name).map(|list| env::split_paths(&list).flat_map(files).collect::<Vec<_>>());
        // With one of these two, the loader looks nowhere else.
        let only = listed("VK_DRIVER_FILES").or_else(|| listed("VK_ICD_FILENAMES"));
        let mut found = only.unwrap_or_else(|| {
            let folders = ["/etc", "/usr/local/share", "/usr/share"];
            let in_folders = folders.iter().flat_map(|folder| self.entries(&format!("{folder}/vulkan/icd.d")));
            listed("VK_ADD_DRIVER_FILES").unwrap_or_default().into_iter().chain(in_folders).collect()
        });
        found.retain(|path| fs::read_to_string(path).is_ok_and(|text| text.contains("_nvidia.so")));
        found
    }
}

/// The entries of a folder, in the order of their names; empty if it cannot be read.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

/// Whether a word is a driver's version: two or more numbers with dots between them.
fn is_version(word: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.contains('.') && word.split('.').all(is_number)
}

/// The version of the driver that a loaded library belongs to: its file is `libcuda.so.580.65.06`, for example. `library` is
/// the name that it is loaded by, and ends with one number.
fn loaded_version(library: &str) -> Option<String> {
    let (stem, _) = library.rsplit_once('.')?;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let files = maps.lines().filter_map(|line| line.rsplit_once('/')).map(|(_, file)| file);
    let mut versions = files.filter_map(|file| file.strip_prefix(stem)?.strip_prefix('.'));
    versions.find(|version| is_version(version)).map(str::to_owned)
}

/// The variable that hides a manifest from the Vulkan loader, whose documentation calls it "Driver Select Filtering". Both have
/// lists of patterns for the file's name, and a driver that the first selects is not disabled by the second.
fn hidden_by(manifest: &Path) -> Option<&'static str> {
    const SELECT: &str = "VK_LOADER_DRIVERS_SELECT";
    const DISABLE: &str = "VK_LOADER_DRIVERS_DISABLE";
    let name = manifest.file_name()?.to_str()?.to_lowercase();
    let matches = |pattern: &str| {
        let pattern = pattern.to_lowercase();
        let part = pattern.trim_matches('*');
        match (pattern.starts_with('*'), pattern.ends_with('*')) {
            (true, true) => name.contains(part),
            (true, false) => name.ends_with(part),
            (false, true) => name.starts_with(part),
            (false, false) => name == part || part == "~all~",
        }
    };
    let set = |variable| env::var(variable).ok().filter(|list| !list.is_empty());
    let lists = |variable| set(variable).map(|list| list.split(',').any(matches));
    match (lists(SELECT), lists(DISABLE)) {
        (Some(false), _) => Some(SELECT),
        (None, Some(true)) => Some(DISABLE),
        _ => None,
    }
}

/// The dynamic loader's answer for a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Library {
    /// It can be loaded.
    Loads,
    /// There is no such file.
    NotInstalled,
    /// It is installed; the dynamic loader's message says why it cannot be loaded.
    Fails(String),
}

impl Library {
    /// Loads a driver's library for the life of the process.
    pub fn probe(name: &str) -> Self {
        let Err(reason) = load_library(name) else { return Self::Loads };
        // glibc's message begins with the library at fault, which may be one that this one needs.
        let is_missing = reason.starts_with(name) && reason.contains("cannot open shared object file");
        if is_missing { Self::NotInstalled } else { Self::Fails(reason) }
    }

    /// Loads NVIDIA's headless driver, and the library without which it does not start, and which it opens itself.
    fn headless() -> Self {
        let driver = Self::probe(HEADLESS);
        let version = if driver == Self::Loads { loaded_version(HEADLESS) } else { None };
        let opened = version.map(|version| load_library(&format!("libnvidia-eglcore.so.{version}")));
        if let Some(Err(reason)) = opened { Self::Fails(reason) } else { driver }
    }
}

/// A reason why GPU memory cannot be mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The problem, in one line without a full stop.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

impl Finding {
    fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { problem: problem.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.problem, self.remedy)
    }
}

/// Facts about the system that tell why Vulkan does not know a GPU.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Evidence {
    /// Whether the kernel is that of the Windows Subsystem for Linux.
    pub wsl: bool,
    /// Whether this looks like a container: by the files of Docker and Podman, or a variable of NVIDIA's container toolkit.
    pub container: bool,
    /// `NVIDIA_DRIVER_CAPABILITIES`, by which the container toolkit mounts libraries.
    pub capabilities: Option<String>,
    /// NVIDIA's Vulkan driver, as its manifest names it.
    pub default: Library,
    /// NVIDIA's Vulkan driver for machines without X11.
    pub headless: Library,
    /// Whether a manifest names NVIDIA's driver to the loader.
    pub manifest: bool,
    /// The variable that hides all these manifests from the loader.
    pub hidden_by: Option<&'static str>,
    /// The version of the kernel module, or else of libcuda's file.
    pub driver_version: Option<String>,
    /// The version of the Vulkan driver's file.
    pub vulkan_version: Option<String>,
    /// GPUs that the kernel driver lists.
    pub gpus: usize,
    /// Device nodes `/dev/nvidia0` and so on.
    pub nodes: usize,
}

impl Evidence {
    /// Looks at the system, and tries to load NVIDIA's Vulkan driver.
    pub fn gather(system: &System) -> Self {
        let kernel = system.text("/proc/sys/kernel/osrelease").unwrap_or_default();
        let marks = ["/.dockerenv", "/run/.containerenv"];
        let is_container = marks.iter().any(|path| system.path(path).exists());
        let (default, headless) = (Library::probe(DEFAULT), Library::headless());
        let manifests = system.manifests();
        let mut hiding = manifests.iter().map(|path| hidden_by(path));
        let first = hiding.next().flatten();
        Self {
            wsl: kernel.to_lowercase().contains("microsoft"),
            container: is_container || env::var_os("NVIDIA_VISIBLE_DEVICES").is_some(),
            capabilities: env::var("NVIDIA_DRIVER_CAPABILITIES").ok(),
            default,
            headless,
            manifest: !manifests.is_empty(),
            hidden_by: if hiding.all(|hidden| hidden.is_some()) { first } else { None },
            driver_version: system.kernel_module().or_else(|| cuda().ok().and_then(|_| loaded_version(LIBCUDA))),
            vulkan_version: [DEFAULT, HEADLESS].into_iter().find_map(loaded_version),
            gpus: system.entries("/proc/driver/nvidia/gpus").len(),
            nodes: system.gpu_nodes().len(),
        }
    }

    /// The most probable cause why Vulkan does not know the GPU that CUDA calls `name`, with its remedy. `headless` is the
    /// error of NVIDIA's driver without the loader.
    pub fn cause(&self, name: &str, headless: &Error) -> Finding {
        let slice = || Self::is_slice(name);
        let found = self.subsystem().or_else(slice).or_else(|| self.libraries()).or_else(|| self.versions());
        found.or_else(|| self.device_nodes()).or_else(|| self.unnamed()).unwrap_or_else(|| {
            Finding::new(
                format!("NVIDIA's Vulkan driver can be loaded, but does not list this GPU ({HEADLESS}: {headless})"),
                "VK_LOADER_DEBUG=all and vulkaninfo say more",
            )
        })
    }

    /// Windows' subsystem for Linux has no Vulkan driver.
    pub fn subsystem(&self) -> Option<Finding> {
        self.wsl.then(|| Finding::new("NVIDIA has no Vulkan driver for WSL2", "use host memory"))
    }

    /// The GPU that CUDA calls `name` is a MIG slice without graphics (NVIDIA's MIG User Guide, "Supported MIG Profiles").
    pub fn is_slice(name: &str) -> Option<Finding> {
        let remedy = "use a whole GPU, or a profile with \"+gfx\" in its name";
        let found = Finding::new("this is a MIG slice, which has no Vulkan device", remedy);
        (name.contains("MIG ") && !name.contains("+gfx")).then_some(found)
    }

    /// NVIDIA's Vulkan driver is not installed or cannot be loaded.
    pub fn libraries(&self) -> Option<Finding> {
        match (&self.default, &self.headless) {
            (Library::NotInstalled, Library::NotInstalled) => Some(self.not_installed()),
            (Library::NotInstalled | Library::Fails(_), Library::Fails(reason)) => Some(self.fails(HEADLESS, reason)),
            (Library::Fails(reason), Library::NotInstalled) => Some(self.fails(DEFAULT, reason)),
            _ => None,
        }
    }

    /// NVIDIA's Vulkan driver is of another version than the rest of the driver.
    pub fn versions(&self) -> Option<Finding> {
        let (driver, vulkan) = (self.driver_version.as_ref()?, self.vulkan_version.as_ref()?);
        (driver != vulkan).then(|| {
            let problem = format!("NVIDIA's Vulkan driver has version {vulkan}, and the rest of the driver {driver}");
            let remedy = if self.container {
                "take the driver out of the container's image, and start it with NVIDIA_DRIVER_CAPABILITIES=all, so that \
                 the host's is mounted"
            } else {
                "install the driver's graphics libraries of the same version; after an update, restart"
            };
            Finding::new(problem, remedy)
        })
    }

    /// Some GPUs have no device node.
    pub fn device_nodes(&self) -> Option<Finding> {
        (self.nodes < self.gpus).then(|| {
            let problem = format!(
                "only {} of {} GPUs have a device node (/dev/nvidia0 and so on), and NVIDIA's Vulkan driver may find \
                 none then",
                self.nodes, self.gpus
            );
            Finding::new(problem, "pass all GPUs to the container and choose with CUDA_VISIBLE_DEVICES")
        })
    }

    /// NVIDIA's Vulkan driver is installed, and the loader is not told, or told to leave it out.
    pub fn unnamed(&self) -> Option<Finding> {
        if let Some(variable) = self.hidden_by {
            let problem = format!("{variable} hides NVIDIA's Vulkan driver from the loader");
            return Some(Finding::new(problem, format!("unset {variable}, or let it allow nvidia_icd.json")));
        }
        (self.default == Library::Loads && !self.manifest).then(|| {
            let problem = format!("{DEFAULT} is installed, but no manifest names it");
            Finding::new(problem, "install nvidia_icd.json, or name its path in VK_DRIVER_FILES")
        })
    }

    /// This is a container to which the toolkit gave no graphics libraries.
    fn lacks_graphics(&self) -> bool {
        let has = |list: &String| list.split(',').any(|one| one == "all" || one == "graphics");
        self.container && !self.capabilities.as_ref().is_some_and(has)
    }

    fn not_installed(&self) -> Finding {
        let missing = format!("NVIDIA's Vulkan driver is not installed (neither {DEFAULT} nor {HEADLESS})");
        let remedy = if self.lacks_graphics() {
            GRAPHICS
        } else {
            "install the driver's graphics libraries (Ubuntu: libnvidia-gl-VERSION, with -server for the server driver; \
             others: without --compute-only), in a container with NVIDIA_DRIVER_CAPABILITIES=all"
        };
        Finding::new(missing, remedy)
    }

    /// The cause where a library is installed and cannot be loaded, or one that it needs.
    fn fails(&self, library: &str, reason: &str) -> Finding {
        let remedy = if reason.contains("GLIBC_") {
            "this system's C library is older than the driver needs: use a newer one, such as a newer container image"
        } else if ["libX11", "libXext", "libxcb"].iter().any(|name| reason.contains(name)) {
            "install libx11-6 and libxext6"
        } else if self.lacks_graphics() {
            GRAPHICS
        } else if self.container {
            "update NVIDIA's container toolkit, which mounts the driver's libraries, or reinstall the driver on the host"
        } else {
            "reinstall the driver's graphics libraries"
        };
        Finding::new(format!("{library} is installed but cannot be loaded ({reason})"), remedy)
    }
}

/// The remedy in a container without graphics libraries.
const GRAPHICS: &str = "start the container with NVIDIA_DRIVER_CAPABILITIES=all, so that the host's is mounted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_loads_lacks_the_gpu_and_a_container_with_graphics_the_driver() {
        let evidence = |library: Library| Evidence {
            wsl: false,
            container: true,
            capabilities: Some("compute,graphics".to_owned()),
            default: library.clone(),
            headless: library,
            manifest: true,
            hidden_by: None,
            driver_version: None,
            vulkan_version: None,
            gpus: 1,
            nodes: 1,
        };
        let refusal = Error::vulkan("vkCreateInstance", ash::vk::Result::ERROR_INITIALIZATION_FAILED);
        let cause = |library| evidence(library).cause("NVIDIA A40", &refusal).to_string();
        assert!(cause(Library::Loads).contains("does not list this GPU (libEGL_nvidia.so.0: vkCreateInstance failed"));
        assert!(cause(Library::NotInstalled).contains("libnvidia-gl-VERSION"));
    }

    #[test]
    fn the_version_of_either_kernel_driver_is_found() {
        let root = env::temp_dir().join(format!("vkgdr-diagnosis-{}", std::process::id()));
        let file = root.join("proc/driver/nvidia/version");
        fs::create_dir_all(root.join("proc/driver/nvidia")).expect("a folder of the test's own");
        for (text, version) in [
            (
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\nGCC version: 12.2",
                Some("535.183.01"),
            ),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", Some("580.65.06")),
            ("NVRM version: unknown", None),
            ("", None),
        ] {
            fs::write(&file, text).expect("a file of the test's own");
            assert_eq!(System::below(&root).kernel_module().as_deref(), version);
        }
        fs::remove_dir_all(root).expect("it is there");
    }
}
