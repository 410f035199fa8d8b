//! Why Vulkan does not know a GPU that CUDA knows, from evidence on the system.
#![forbid(unsafe_code)]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::driver::library;
use crate::driver::vulkan::icd::HEADLESS;

/// NVIDIA's Vulkan driver, as its manifest names it.
const DEFAULT: &str = "libGLX_nvidia.so.0";

/// What the dynamic loader says of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Library {
    Loads,
    NotInstalled,
    /// It is installed; the dynamic loader's message says why it cannot be loaded.
    Fails(String),
}

/// Facts about the system that tell why Vulkan does not know the GPU.
#[derive(Debug, Clone)]
pub(super) struct Evidence {
    /// The GPU's name, as CUDA gives it.
    name: String,
    wsl: bool,
    container: bool,
    /// `NVIDIA_DRIVER_CAPABILITIES`, by which the container toolkit mounts libraries.
    capabilities: Option<String>,
    default: Library,
    headless: Library,
    /// Whether a manifest names NVIDIA's driver to the loader.
    manifest: bool,
    /// GPUs that the kernel driver lists.
    gpus: usize,
    /// Device nodes `/dev/nvidia0` and so on.
    nodes: usize,
}

impl Evidence {
    /// Looks at the system.
    pub(super) fn gather(name: &str) -> Self {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let is_there = |path: &str| Path::new(path).exists();
        Self {
            name: name.to_owned(),
            wsl: kernel.to_lowercase().contains("microsoft"),
            container: is_there("/.dockerenv")
                || is_there("/run/.containerenv")
                || env::var_os("NVIDIA_VISIBLE_DEVICES").is_some(),
            capabilities: env::var("NVIDIA_DRIVER_CAPABILITIES").ok(),
            default: Library::probe(DEFAULT),
            headless: Library::probe(HEADLESS),
            manifest: manifests().iter().any(|path| names_nvidia(path)),
            gpus: entries("/proc/driver/nvidia/gpus").len(),
            nodes: entries("/dev").iter().filter(|path| is_gpu_node(path)).count(),
        }
    }

    /// The most probable cause with its remedy, in one line.
    pub(super) fn cause(&self) -> String {
        if self.wsl {
            return "NVIDIA has no Vulkan driver for WSL2".to_owned();
        }
        if self.name.contains("MIG ") {
            return "this is a MIG slice, which has no Vulkan device: use a whole GPU".to_owned();
        }
        match (&self.default, &self.headless) {
            (Library::NotInstalled, Library::NotInstalled) => self.not_installed(),
            (Library::NotInstalled | Library::Fails(_), Library::Fails(reason)) => fails(HEADLESS, reason),
            (Library::Fails(reason), Library::NotInstalled) => fails(DEFAULT, reason),
            _ if self.nodes < self.gpus => format!(
                "only {} of {} GPUs have a device node (/dev/nvidia0 and so on), and NVIDIA's Vulkan driver may find \
                 none then: pass all GPUs to the container and choose with CUDA_VISIBLE_DEVICES",
                self.nodes, self.gpus
            ),
            (Library::Loads, _) if !self.manifest => format!(
                "{DEFAULT} is installed, but no manifest names it: install nvidia_icd.json, or name its path in \
                 VK_DRIVER_FILES"
            ),
            _ => "NVIDIA's Vulkan driver can be loaded, but does not list this GPU: VK_LOADER_DEBUG=all and \
                  vulkaninfo say more"
                .to_owned(),
        }
    }

    fn not_installed(&self) -> String {
        let lacks_graphics =
            self.capabilities.as_ref().is_none_or(|list| !list.split(',').any(|one| one == "all" || one == "graphics"));
        let missing = format!("NVIDIA's Vulkan driver is not installed (neither {DEFAULT} nor {HEADLESS}): ");
        missing
            + if self.container && lacks_graphics {
                "start the container with NVIDIA_DRIVER_CAPABILITIES=all, so that the host's is mounted"
            } else {
                "install the driver's graphics libraries (Ubuntu: libnvidia-gl-VERSION, with -server for the server \
                 driver; others: without --compute-only), in a container with NVIDIA_DRIVER_CAPABILITIES=all"
            }
    }
}

/// The cause where a library is installed and cannot be loaded.
fn fails(library: &str, reason: &str) -> String {
    let remedy = if reason.contains("GLIBC_") {
        "this system's C library is older than the driver needs: use a newer one, such as a newer container image"
    } else if ["libX11", "libXext", "libxcb"].iter().any(|name| reason.contains(name)) {
        "install libx11-6 and libxext6"
    } else if ["libEGL.so", "libGLdispatch"].iter().any(|name| reason.contains(name)) {
        "install libegl1"
    } else {
        "reinstall the driver's graphics libraries"
    };
    format!("{library} is installed but cannot be loaded ({reason}): {remedy}")
}

impl Library {
    fn probe(name: &str) -> Self {
        match library::load(name) {
            Ok(_) => Self::Loads,
            Err(reason) => Self::failed(name, reason),
        }
    }

    /// glibc's message begins with the library at fault, which may be one that this one needs.
    fn failed(name: &str, reason: String) -> Self {
        let is_missing = reason.starts_with(name) && reason.contains("cannot open shared object file");
        if is_missing { Self::NotInstalled } else { Self::Fails(reason) }
    }
}

/// Where the loader looks for manifests ("Driver Discovery" in its documentation), but for folders in the user's home.
fn manifests() -> Vec<PathBuf> {
    let named = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_ADD_DRIVER_FILES"];
    let named = named.iter().filter_map(env::var_os).flat_map(|list| env::split_paths(&list).collect::<Vec<_>>());
    let listed = ["/etc", "/usr/local/share", "/usr/share"];
    named.chain(listed.iter().flat_map(|folder| entries(&format!("{folder}/vulkan/icd.d")))).collect()
}

fn names_nvidia(manifest: &Path) -> bool {
    fs::read_to_string(manifest).is_ok_and(|text| text.contains("_nvidia.so"))
}

fn is_gpu_node(path: &Path) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("nvidia"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn entries(folder: &str) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A system with everything in place.
    fn complete() -> Evidence {
        Evidence {
            name: "NVIDIA A40".to_owned(),
            wsl: false,
            container: false,
            capabilities: None,
            default: Library::Loads,
            headless: Library::Loads,
            manifest: true,
            gpus: 1,
            nodes: 1,
        }
    }

    #[track_caller]
    fn says(evidence: &Evidence, parts: &[&str]) {
        let cause = evidence.cause();
        assert!(!cause.contains('\n') && !cause.ends_with('.'), "{cause}");
        parts.iter().for_each(|part| assert!(cause.contains(part), "{cause:?} does not say {part:?}"));
    }

    #[test]
    fn missing_libraries_are_told_apart_from_a_container_without_them() {
        let (default, headless) = (Library::NotInstalled, Library::NotInstalled);
        let bare = Evidence { default, headless, ..complete() };
        says(&bare, &["not installed", "libnvidia-gl-VERSION"]);
        let container = Evidence { container: true, capabilities: Some("compute,utility".to_owned()), ..bare };
        says(&container, &["start the container with NVIDIA_DRIVER_CAPABILITIES=all"]);
        says(&Evidence { capabilities: Some("compute,graphics".to_owned()), ..container }, &["libnvidia-gl-VERSION"]);
    }

    #[test]
    fn a_library_that_cannot_be_loaded_is_named_with_the_loaders_reason_and_a_remedy() {
        let broken = |reason: &str| {
            let fails = Library::Fails(reason.to_owned());
            Evidence { default: fails.clone(), headless: fails, ..complete() }
        };
        says(&broken("libXext.so.6: cannot open shared object file"), &[HEADLESS, "(libXext.so.6: ", "libxext6"]);
        says(&broken("/lib/libc.so.6: version `GLIBC_2.38' not found"), &["GLIBC_2.38", "newer container image"]);
        says(&broken("libGLdispatch.so.0: cannot open"), &["libegl1"]);
        let reason = Library::Fails("libX11.so.6: cannot open".to_owned());
        says(&Evidence { default: reason, headless: Library::NotInstalled, ..complete() }, &[DEFAULT, "libx11-6"]);
    }

    #[test]
    fn a_missing_library_is_told_apart_from_one_that_lacks_another() {
        let failed = |reason: &str| Library::failed("libEGL_nvidia.so.0", reason.to_owned());
        let missing = ": cannot open shared object file: No such file or directory";
        assert_eq!(failed(&format!("libEGL_nvidia.so.0{missing}")), Library::NotInstalled);
        assert!(matches!(failed(&format!("libEGL.so.1{missing}")), Library::Fails(_)));
        assert!(matches!(failed("/lib/libEGL_nvidia.so.0: file too short"), Library::Fails(_)));
    }

    #[test]
    fn what_hides_a_gpu_from_a_working_driver_is_named() {
        says(&Evidence { gpus: 8, nodes: 1, ..complete() }, &["only 1 of 8 GPUs", "pass all GPUs"]);
        says(&Evidence { manifest: false, ..complete() }, &["no manifest", "nvidia_icd.json"]);
        says(&Evidence { wsl: true, ..complete() }, &["WSL2"]);
        says(&Evidence { name: "NVIDIA A100 MIG 1g.5gb".to_owned(), ..complete() }, &["MIG slice"]);
        says(&complete(), &["does not list this GPU"]);
    }

    #[test]
    fn device_nodes_of_gpus_are_counted_and_no_others() {
        let gpus = ["/dev/nvidia0", "/dev/nvidia12"];
        let others = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia", "/dev/null"];
        assert!(gpus.iter().all(|path| is_gpu_node(Path::new(path))));
        assert!(!others.iter().any(|path| is_gpu_node(Path::new(path))));
    }
}
