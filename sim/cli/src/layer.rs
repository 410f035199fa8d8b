//! The Vulkan layers of ours that a program gets, and their order among those that are set.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::driver::Driver;
use crate::environment::{self, Set, Variable};
use crate::installation::Installation;
use crate::options::Options;
use crate::profile::Profile;

/// A Vulkan layer of ours.
pub(crate) struct Layer {
    name: &'static str,
    /// Within `vklayers`.
    folder: &'static str,
}

impl Layer {
    const FAULTS: Self = Self { name: "VK_LAYER_VKGDR_faults", folder: "faults" };
    const SEMAPHORES: Self = Self { name: "VK_LAYER_VKGDR_semaphores", folder: "semaphores" };
    const PROFILE: Self = Self { name: "VK_LAYER_VKGDR_profile", folder: "profile" };

    /// The faults layer goes before the layers that are set, so that a validation layer's own calls do not consume the
    /// faults; the profile layer goes last, nearest the driver, so that all others see the profile, and the semaphores
    /// layer, which every Vulkan program gets, before it.
    ///
    /// Newer loaders order layers as listed, older ones (1.3.239) as found. Hence each of our layers has its own folder,
    /// before or after the system's. `VK_LAYER_PATH` is used where it is set, since the loader then searches its folders alone;
    /// otherwise it would replace the loader's own search.
    ///
    /// `VK_LOADER_LAYERS_DISABLE` does not disable our layers: `VK_LOADER_LAYERS_ENABLE` goes before it.
    ///
    /// A profile that is asked for decides which of the last two there are: one of an outer profile's goes. Nothing is set
    /// where nothing changes.
    pub(crate) fn variables(options: &Options, installation: &Installation, set: Set<'_>) -> Vec<Variable> {
        let mut names = entries_of(set("VK_INSTANCE_LAYERS"));
        let replaced = entries_of(set("VK_LAYER_PATH"));
        let (search, mut folders) = match replaced.is_empty() {
            true => ("VK_ADD_LAYER_PATH", entries_of(set("VK_ADD_LAYER_PATH"))),
            false => ("VK_LAYER_PATH", replaced),
        };
        let before = names.len();
        let folder = |layer: &Self| installation.folder.join("vklayers").join(layer.folder).into_os_string();
        let profile = environment::profile(options, set);
        let semaphores = profile.is_none_or(|profile| profile.vulkan);
        let last = [(Self::SEMAPHORES, semaphores), (Self::PROFILE, profile.is_some_and(Profile::has_layer))];
        for (layer, _) in last.iter().filter(|(_, wanted)| options.profile.is_some() && !wanted) {
            names.retain(|name| name != layer.name);
            folders.retain(|other| *other != folder(layer));
        }
        let has = |layer: &Self| names.iter().any(|set| set == layer.name);
        let faults = options.faults.iter().any(|fault| fault.driver == Driver::Vulkan);
        let first = Some(Self::FAULTS).filter(|layer| faults && !has(layer));
        let last: Vec<_> = last.into_iter().filter(|(layer, wanted)| *wanted && !has(layer)).collect();
        let colon = OsStr::new(":");
        let list = |name, entries: Vec<OsString>| (name, (!entries.is_empty()).then(|| entries.join(colon)));
        let mut variables = Vec::new();
        if !(first.is_none() && last.is_empty()) {
            if search == "VK_ADD_LAYER_PATH" {
                let system = installation.layers.iter().map(|folder| folder.as_os_str().to_owned());
                let missing: Vec<_> = system.filter(|folder| !folders.contains(folder)).collect();
                folders.extend(missing);
            }
            if let Some(layer) = first {
                names.insert(0, layer.name.into());
                folders.insert(0, folder(&layer));
            }
            for (layer, _) in last {
                names.push(layer.name.into());
                folders.push(folder(&layer));
            }
            // Disables Mesa's implicit device-selection layer, which calls the driver and crashes on an injected failure.
            variables.push(("NODEVICE_SELECT", Some("1".into())));
        }
        if set("VK_LOADER_LAYERS_DISABLE").is_some_and(|value| !value.is_empty()) {
            let ours = names.iter().filter(|name| name.as_bytes().starts_with(b"VK_LAYER_VKGDR_")).cloned();
            let enabled = set("VK_LOADER_LAYERS_ENABLE").filter(|value| !value.is_empty());
            let enabled: Vec<_> = enabled.into_iter().chain(ours).collect();
            variables.push(("VK_LOADER_LAYERS_ENABLE", Some(enabled.join(OsStr::new(",")))));
        }
        if names.len() != before || variables.iter().any(|(name, _)| *name == "NODEVICE_SELECT") {
            variables.extend([list("VK_INSTANCE_LAYERS", names), list(search, folders)]);
        }
        variables
    }
}

/// The non-empty entries of a colon-separated list.
pub(crate) fn entries_of(list: Option<OsString>) -> Vec<OsString> {
    let list = list.unwrap_or_default();
    let parts = list.as_bytes().split(|byte| *byte == b':').filter(|part| !part.is_empty());
    parts.map(|part| OsStr::from_bytes(part).to_owned()).collect()
}
