//! The drivers: NVIDIA's in the kernel, CUDA's, and Vulkan's with its loader; and limits of the process.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use vkgdr::diagnosis::{Evidence, Library, System};
use vkgdr::{Error, in_units};

use super::{Check, Group, Level};
use crate::{linux, text};

/// The oldest CUDA driver that this library is made for (README.md), and the one from which all of it works.
const OLDEST: i32 = 11_040;
const COMPLETE: i32 = 12_000;

/// The kernel's driver, its device nodes, and libcuda.
pub(super) fn cuda(system: &System, evidence: &Evidence) -> Vec<Check> {
    let mut checks = Vec::new();
    if evidence.wsl {
        let check = |text| Check::ok("kernel-driver", "kernel driver", text).of(Group::Cuda);
        checks.push(if system.path("/dev/dxg").exists() {
            check("it is that of Windows, behind /dev/dxg")
        } else {
            let remedy = "install NVIDIA's driver in Windows, and update WSL (`wsl --update`)";
            check("there is no /dev/dxg").at(Level::Failed, remedy)
        });
    } else if let Some(version) = system.kernel_module() {
        checks.push(Check::ok("kernel-driver", "kernel driver", format!("NVIDIA {version}")));
        checks.push(device_nodes(system, evidence));
    } else {
        let check =
            Check::ok("kernel-driver", "kernel driver", "NVIDIA's is not loaded (no /proc/driver/nvidia/version)");
        let remedy = if evidence.container {
            "install NVIDIA's driver on the host"
        } else {
            "install NVIDIA's driver, then `modprobe nvidia` or restart"
        };
        checks.push(check.of(Group::Cuda).at(Level::Failed, remedy));
    }
    checks.push(library(evidence));
    checks
}

fn device_nodes(system: &System, evidence: &Evidence) -> Check {
    let (id, subject) = ("device-nodes", "device nodes");
    let of_all = ["/dev/nvidiactl", "/dev/nvidia-uvm"].map(|path| system.path(path));
    let nodes = system.gpu_nodes();
    let remedy = if evidence.container {
        "pass the GPUs to the container (`--gpus all`)"
    } else {
        "run `nvidia-smi` or `nvidia-modprobe -u -c 0` as root, which make them"
    };
    if let Some(missing) = of_all.iter().find(|path| !path.exists()) {
        let text = format!("there is no {}", missing.display());
        return Check::ok(id, subject, text).of(Group::Cuda).at(Level::Failed, remedy);
    }
    for node in of_all.iter().chain(&nodes) {
        if let Err(error) = openable(node) {
            let text = format!("{} cannot be opened: {error}", node.display());
            let check = Check::ok(id, subject, text).of(Group::Cuda);
            return check.at(Level::Failed, "let this user read and write it (see its owner, group and mode)");
        }
    }
    match evidence.device_nodes() {
        Some(_) if nodes.is_empty() => {
            Check::ok(id, subject, "no GPU has one (/dev/nvidia0 and so on)").of(Group::Cuda).at(Level::Failed, remedy)
        }
        Some(finding) => Check::found(id, subject, finding),
        None => Check::ok(id, subject, format!("{} of {} GPUs", nodes.len(), evidence.gpus)),
    }
}

fn openable(node: &Path) -> std::io::Result<()> {
    match File::options().read(true).write(true).open(node) {
        // A GPU in exclusive use, or one that has failed, is for CUDA to say.
        Err(error) if error.kind() == ErrorKind::PermissionDenied || error.kind() == ErrorKind::IsADirectory => {
            Err(error)
        }
        _ => Ok(()),
    }
}

fn library(evidence: &Evidence) -> Check {
    let (id, subject) = ("libcuda", "libcuda");
    let newer = "install a newer NVIDIA driver";
    match vkgdr::driver_version() {
        Ok(version) => {
            let named = text::cuda_version(version);
            let check = Check::ok(id, subject, format!("CUDA {named}"));
            if version < OLDEST {
                let text = format!("CUDA {named} is older than {}", text::cuda_version(OLDEST));
                Check { text, ..check }.at(Level::Limited, newer)
            } else if version < COMPLETE {
                let text = format!("CUDA {named}: before 12.0 the copy engine is used on request only");
                Check { text, ..check }.at(Level::Note, newer)
            } else {
                check
            }
        }
        Err(Error::Library { library, reason }) => {
            let check = Check::ok(id, subject, format!("{library} cannot be loaded ({reason})")).of(Group::Cuda);
            let remedy = if evidence.wsl {
                "install NVIDIA's driver in Windows; /usr/lib/wsl/lib must be searched"
            } else if evidence.container {
                "start the container with the GPU (`--gpus all`) and NVIDIA_DRIVER_CAPABILITIES=all"
            } else {
                "install the NVIDIA driver"
            };
            check.at(Level::Failed, remedy)
        }
        Err(Error::Symbol { library, symbol }) => {
            let text = format!("{library} is too old: it has no function {symbol}");
            Check::ok(id, subject, text).of(Group::Cuda).at(Level::Failed, newer)
        }
        Err(error) => Check { level: Level::Failed, ..Check::ok(id, subject, error.to_string()) },
    }
}

/// Vulkan's loader, NVIDIA's driver for it and its manifest, and where NVIDIA has none.
pub(super) fn vulkan(system: &System, evidence: &Evidence) -> Vec<Check> {
    let mut checks = vec![container(evidence)];
    checks.extend(evidence.subsystem().map(|finding| Check::found("wsl", "WSL2", finding)));
    checks.push(loader());
    checks.push(match evidence.libraries().or_else(|| evidence.versions()) {
        Some(finding) => Check::found("vulkan-driver", "Vulkan driver", finding),
        None => Check::ok("vulkan-driver", "Vulkan driver", "NVIDIA's can be loaded"),
    });
    let (id, subject) = ("manifest", "manifest");
    checks.push(match (evidence.unnamed(), system.manifests().first()) {
        (Some(finding), _) => Check::found(id, subject, finding),
        (None, Some(first)) => Check::ok(id, subject, first.display().to_string()),
        // NVIDIA's driver is not installed, as said above, or the headless one works without a manifest.
        (None, None) => Check { level: Level::Note, ..Check::ok(id, subject, "none names NVIDIA's Vulkan driver") },
    });
    checks
}

fn container(evidence: &Evidence) -> Check {
    let (level, text) = match (&evidence.capabilities, evidence.container) {
        (Some(list), _) => (Level::Ok, format!("yes, with NVIDIA_DRIVER_CAPABILITIES={list}")),
        (None, true) => (Level::Note, "yes, without NVIDIA_DRIVER_CAPABILITIES".to_owned()),
        (None, false) => (Level::Ok, "no".to_owned()),
    };
    Check { level, ..Check::ok("container", "container", text) }
}

fn loader() -> Check {
    let (id, subject) = ("vulkan-loader", "Vulkan loader");
    let library = "libvulkan.so.1";
    let (text, remedy) = match Library::probe(library) {
        Library::Loads => return Check::ok(id, subject, library),
        Library::NotInstalled => (format!("{library} is not installed"), "install it (Debian, Ubuntu: libvulkan1)"),
        Library::Fails(reason) => {
            (format!("{library} cannot be loaded ({reason})"), "reinstall it (Debian, Ubuntu: libvulkan1)")
        }
    };
    Check::ok(id, subject, text).of(Group::Vulkan).at(Level::Limited, remedy)
}

/// The usual soft limit of open files.
const FILES: u64 = 1024;
/// Less page-locked memory, in bytes, is little.
const PINNED: u64 = 2 << 20;

pub(super) fn limits(system: &System) -> Vec<Check> {
    [files(system), locked(system)].into_iter().flatten().collect()
}

/// Each live allocation holds a descriptor on a real driver.
fn files(system: &System) -> Option<Check> {
    let limit = linux::limit(system, "Max open files")?;
    let check = |text: String| Check::ok("open-files", "open files", text);
    let Some(soft) = limit.soft else { return Some(check("no limit".to_owned())) };
    let found = check(format!("{soft}; each live allocation and each block of a pool holds one"));
    if soft >= FILES {
        return Some(found);
    }
    let raise = match limit.hard {
        // A process raises its limit up to the hard one.
        Some(hard) if hard <= soft => {
            "let root raise it (`LimitNOFILE=` of systemd, `--ulimit nofile=65536` of a container)".to_owned()
        }
        hard => format!("`ulimit -n {}`", hard.map_or_else(|| "unlimited".to_owned(), |hard| hard.to_string())),
    };
    Some(found.at(Level::Limited, format!("{raise}, or take small memory from a pool")))
}

/// Host memory is page-locked.
fn locked(system: &System) -> Option<Check> {
    let limit = linux::limit(system, "Max locked memory")?;
    let check = |text: String| Check::ok("locked-memory", "locked memory", text);
    let Some(soft) = limit.soft else { return Some(check("no limit".to_owned())) };
    if soft >= PINNED {
        return Some(check(in_units(soft)));
    }
    // CUDA's documentation names no such limit of page-locked memory.
    let text = format!("{}: little for host memory, if the driver counts it", in_units(soft));
    Some(check(text).at(Level::Note, "`ulimit -l unlimited`; for a container `--ulimit memlock=-1`"))
}
