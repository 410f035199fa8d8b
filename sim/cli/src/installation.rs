//! Locates the simulated driver, the Vulkan layers and lavapipe.

use std::path::{Path, PathBuf};

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
    pub(crate) fn find(vulkan: bool) -> Result<Self, String> {
        // Follows a link to the program, since the other files lie beside the program itself.
        let program = std::env::current_exe().map_err(|error| format!("cannot locate this program: {error}"))?;
        let folder = program.parent().unwrap_or(Path::new("/")).to_path_buf();
        let missing =
            ["libcuda.so.1", "vklayers/profile", "vklayers/semaphores"].iter().find(|file| !folder.join(file).exists());
        if let Some(file) = missing {
            return Err(format!(
                "{file} is not in {}: run 'make sim' in vkgdr's source tree, or install vkgdr-sim again",
                folder.display()
            ));
        }
        let manifests = || MANIFESTS.iter().find_map(|folder| lavapipe(&Path::new(folder).join("icd.d")));
        let lavapipe = if vulkan { manifests() } else { None };
        if vulkan && lavapipe.is_none() {
            return Err(
                "the simulated GPU needs lavapipe, Mesa's Vulkan driver for the CPU, and the Vulkan loader:\n  \
                        apt-get install mesa-vulkan-drivers libvulkan1   (Debian, Ubuntu)\n  \
                        dnf install mesa-vulkan-drivers vulkan-loader    (Fedora)\n\
                        A program that uses CUDA and not Vulkan needs neither with --profile no-vulkan."
                    .to_owned(),
            );
        }
        let sdk = std::env::var_os("VULKAN_SDK").map(|sdk| Path::new(&sdk).join("share/vulkan"));
        let folders = MANIFESTS.iter().map(PathBuf::from).chain(sdk).map(|folder| folder.join("explicit_layer.d"));
        Ok(Self { folder, lavapipe, layers: folders.filter(|folder| folder.is_dir()).collect() })
    }
}

/// The manifest of the 64-bit lavapipe in a folder. A 32-bit one may lie beside it.
fn lavapipe(folder: &Path) -> Option<PathBuf> {
    let names = std::fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let manifests = names.filter(|name| name.starts_with("lvp_icd") && name.ends_with(".json"));
    let name = manifests.filter(|name| !["i386", "i586", "i686"].iter().any(|other| name.contains(other))).min()?;
    Some(folder.join(name))
}
