//! Locates the simulated driver, the Vulkan layers and lavapipe.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::environment::Set;

/// The files of the simulator.
#[derive(Debug)]
pub(crate) struct Installation {
    /// The folder that holds this program, `libcuda.so.1`, `vklayers/` and `bin/`.
    pub(crate) folder: PathBuf,
    /// The manifest of lavapipe, Mesa's Vulkan driver for the CPU; none where the simulated GPU does without.
    pub(crate) lavapipe: Option<PathBuf>,
    /// The folders of the system's Vulkan layers.
    pub(crate) layers: Vec<PathBuf>,
}

/// Where Linux distributions keep the manifests of Vulkan's drivers and layers.
const MANIFESTS: [&str; 3] = ["/usr/share/vulkan", "/usr/local/share/vulkan", "/etc/vulkan"];

impl Installation {
    /// `vulkan`: whether the simulated GPU needs it.
    pub(crate) fn find(vulkan: bool, set: Set<'_>) -> Result<Self, String> {
        // Follows a link to the program, since the other files lie beside the program itself.
        let program = std::env::current_exe().map_err(|error| format!("cannot locate this program: {error}"))?;
        let folder = program.parent().unwrap_or(Path::new("/")).to_path_buf();
        let missing =
            ["libcuda.so.1", "vklayers/profile", "vklayers/semaphores"].iter().find(|file| !folder.join(file).exists());
        if let Some(file) = missing {
            return Err(format!(
                "{file} is not in {}: run 'make -C sim' in vkgdr's source tree, or install vkgdr-sim again",
                folder.display()
            ));
        }
        // What the user names first: another Mesa's, as of Nix or conda, lies in none of the folders.
        let named = || ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].iter().find_map(|name| named(&set(name)?));
        let installed = || MANIFESTS.iter().find_map(|folder| lavapipe(&Path::new(folder).join("icd.d")));
        let lavapipe = if vulkan { named().or_else(installed) } else { None };
        if vulkan && lavapipe.is_none() {
            return Err(
                "the simulated GPU needs lavapipe, Mesa's Vulkan driver for the CPU, and the Vulkan loader:\n  \
                        apt-get install mesa-vulkan-drivers libvulkan1   (Debian, Ubuntu)\n  \
                        dnf install mesa-vulkan-drivers vulkan-loader    (Fedora)\n\
                        VK_DRIVER_FILES may name the manifest of another Mesa, lvp_icd.*.json.\n\
                        A program that uses CUDA and not Vulkan needs neither with --profile no-vulkan."
                    .to_owned(),
            );
        }
        let sdk = set("VULKAN_SDK").map(|sdk| Path::new(&sdk).join("share/vulkan"));
        let folders = MANIFESTS.iter().map(PathBuf::from).chain(sdk).map(|folder| folder.join("explicit_layer.d"));
        Ok(Self { folder, lavapipe, layers: folders.filter(|folder| folder.is_dir()).collect() })
    }
}

/// The first manifest of lavapipe in a list of manifests and of folders with them, as the Vulkan loader takes it.
fn named(list: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(list).filter_map(|path| std::path::absolute(path).ok()).find_map(|path| {
        if path.is_dir() {
            return lavapipe(&path);
        }
        path.file_name().and_then(OsStr::to_str).and_then(rank)?;
        path.is_file().then_some(path)
    })
}

/// The manifest of this machine's lavapipe in a folder. Those of other architectures may lie beside it.
fn lavapipe(folder: &Path) -> Option<PathBuf> {
    let names = std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let (_, name) = names.filter_map(|name| Some((rank(&name)?, name))).min()?;
    Some(folder.join(name))
}

/// How well a file's name suits, less being better; none where it is no manifest of a 64-bit lavapipe. Best is the name of this
/// architecture, then a name without any; builds of Mesa may name the same architecture otherwise.
fn rank(name: &str) -> Option<u8> {
    let architecture = name.strip_prefix("lvp_icd")?.strip_suffix("json")?.trim_matches('.');
    match architecture {
        "i386" | "i586" | "i686" => None,
        std::env::consts::ARCH => Some(0),
        "" => Some(1),
        _ => Some(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_this_architecture_is_preferred() {
        let this = format!("lvp_icd.{}.json", std::env::consts::ARCH);
        let other = "lvp_icd.aaa64.json";
        for (names, best) in [
            (&[other, "lvp_icd.json", &this, "lvp_icd.i686.json"][..], Some(&*this)),
            (&[other, "lvp_icd.json"], Some("lvp_icd.json")),
            (&[other, "intel_icd.json"], Some(other)),
            (&["lvp_icd.i686.json", "lvp_icd.txt", "lvp_icd.json.bak"], None),
        ] {
            let found = names.iter().filter_map(|name| Some((rank(name)?, *name))).min();
            assert_eq!(found.map(|(_, name)| name), best, "{names:?}");
        }
    }

    #[test]
    fn a_list_names_lavapipe_by_its_manifest_or_by_a_folder() -> std::io::Result<()> {
        let folder = std::env::temp_dir().join(format!("vkgdr-sim-icd-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("more"))?;
        let [nvidia, lavapipe, of_folder] =
            ["nvidia_icd.json", "lvp_icd.json", "more/lvp_icd.json"].map(|name| folder.join(name));
        [&nvidia, &lavapipe, &of_folder].iter().try_for_each(|file| std::fs::write(file, ""))?;
        let of = |paths: &[&Path]| named(&std::env::join_paths(paths).unwrap_or_default());
        let found = [
            of(&[&nvidia, &lavapipe, &of_folder]),
            of(&[&nvidia, &folder.join("more"), &lavapipe]),
            of(&[&folder.join("lvp_icd.x86_64.json"), &nvidia]),
        ];
        std::fs::remove_dir_all(&folder)?;
        assert_eq!(found, [Some(lavapipe), Some(of_folder), None]);
        Ok(())
    }
}
