//! The environment variables by which a program finds the simulated GPU.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::driver::Driver;
use crate::fault::Fault;
use crate::installation::Installation;
use crate::options::Options;
use crate::profile::Profile;

/// Libraries that stand in for NVIDIA's, of both versions of CUDA. The newer runtime is first, for programs that look its
/// functions up in no library in particular.
const PRELOADED: [&str; 4] = ["libnvJitLink.so.12", "libnvJitLink.so.13", "libcudart.so.13", "libcudart.so.12"];

/// Environment variables for a program.
#[derive(Debug)]
pub(crate) struct Environment(Vec<(&'static str, OsString)>);

impl Environment {
    /// The variables for these options. Values that are already set stay behind ours. Refuses a folder that the variables
    /// cannot hold.
    pub(crate) fn new(
        options: &Options,
        installation: &Installation,
        set: &dyn Fn(&'static str) -> Option<OsString>,
    ) -> Result<Self, String> {
        let folder = &installation.folder;
        let preloads = set("VKGDR_SIM_PRELOAD").is_none_or(|value| value != "0");
        check(folder, preloads)?;
        let before = |name, paths: &[PathBuf]| (name, prepended(paths, set(name).as_deref()));
        let gpus = options.profile.map_or(1, |profile| profile.gpus);
        let mut variables = vec![
            before("LD_LIBRARY_PATH", std::slice::from_ref(folder)),
            before("PATH", &[folder.join("bin")]),
            ("VK_DRIVER_FILES", joined(&drivers(installation, gpus))),
        ];
        if preloads {
            variables.push(("LD_PRELOAD", preloaded(folder, set("LD_PRELOAD").as_deref())));
        }
        let faults_of = |driver| options.faults.iter().filter(move |fault| fault.driver == driver).collect::<Vec<_>>();
        let (cuda, vulkan) = (faults_of(Driver::Cuda), faults_of(Driver::Vulkan));
        if !cuda.is_empty() {
            variables.push(("SIMCUDA_FAIL", entries(&cuda)));
        }
        if !vulkan.is_empty() {
            variables.push(("VKLAYER_FAIL", entries(&vulkan)));
        }
        if let Some(profile) = options.profile {
            // For pytest's option.
            variables.push(("VKGDR_SIM_PROFILE", profile.name.into()));
            variables.push(if profile.late {
                ("SIMCUDA_LATE", "1".into())
            } else {
                ("VKLAYER_PROFILE", profile.name.into())
            });
            variables.push(("SIMCUDA_DEVICES", profile.gpus.to_string().into()));
        }
        variables.extend(Layer::variables(!vulkan.is_empty(), options.profile, installation, set));
        Ok(Self(variables))
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &OsStr)> {
        self.0.iter().map(|(name, value)| (*name, value.as_os_str()))
    }
}

/// Refuses a folder whose path would be taken for several: the dynamic linker splits `LD_PRELOAD` at spaces, `LD_LIBRARY_PATH`
/// at semicolons and both at colons, and nothing protects these (ld.so(8)).
fn check(folder: &Path, preloads: bool) -> Result<(), String> {
    let path = folder.as_os_str().as_bytes();
    let refused = |what, remedy| Err(format!("its folder '{}' has a {what} in its path: {remedy}", folder.display()));
    if path.iter().any(|byte| b":;".contains(byte)) {
        return refused("colon or semicolon", "install vkgdr-sim in another one, since LD_LIBRARY_PATH cannot hold it");
    }
    if preloads && path.contains(&b' ') {
        let remedy = "install vkgdr-sim in another one, since LD_PRELOAD cannot hold it, or set VKGDR_SIM_PRELOAD=0";
        return refused("space", remedy);
    }
    Ok(())
}

/// One manifest for each GPU, since lavapipe has one device. The loader counts two paths to one file as two drivers.
/// Without Vulkan it is a file that does not exist, so that the loader searches nowhere else.
fn drivers(installation: &Installation, gpus: usize) -> Vec<PathBuf> {
    let Some(manifest) = &installation.lavapipe else { return vec![installation.folder.join("no-driver.json")] };
    let (folder, name) = (manifest.parent().unwrap_or(Path::new("/")), manifest.file_name().unwrap_or_default());
    (0..gpus).map(|gpu| folder.join("./".repeat(gpu)).join(name)).collect()
}

/// What is set, followed by our libraries, since Python packages take a library that is loaded before they look for their own
/// copy. Last, so that a runtime that must be first stays first.
fn preloaded(folder: &Path, set: Option<&OsStr>) -> OsString {
    let ours = PRELOADED.map(|name| folder.join(name));
    let mut all = set.map_or_else(OsString::new, OsStr::to_owned);
    if !all.is_empty() {
        all.push(":");
    }
    all.push(joined(&ours));
    all
}

/// A Vulkan layer of ours.
struct Layer {
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
    /// before or after the system's. `VK_LAYER_PATH` is not used: it would replace the loader's own search.
    fn variables(
        faults: bool,
        profile: Option<&Profile>,
        installation: &Installation,
        set: &dyn Fn(&'static str) -> Option<OsString>,
    ) -> Vec<(&'static str, OsString)> {
        let mut names = entries_of(set("VK_INSTANCE_LAYERS"));
        let mut folders = entries_of(set("VK_ADD_LAYER_PATH"));
        let has = |layer: &Self| names.iter().any(|set| set == layer.name);
        let first = Some(Self::FAULTS).filter(|layer| faults && !has(layer));
        let semaphores = profile.is_none_or(|profile| profile.vulkan);
        let last = [(Self::SEMAPHORES, semaphores), (Self::PROFILE, profile.is_some_and(Profile::has_layer))];
        let last: Vec<_> = last.into_iter().filter(|(layer, wanted)| *wanted && !has(layer)).collect();
        if first.is_none() && last.is_empty() {
            return Vec::new();
        }
        let system = installation.layers.iter().map(|folder| folder.as_os_str().to_owned());
        let missing: Vec<_> = system.filter(|folder| !folders.contains(folder)).collect();
        folders.extend(missing);
        let folder = |layer: &Self| installation.folder.join("vklayers").join(layer.folder).into_os_string();
        if let Some(layer) = first {
            names.insert(0, layer.name.into());
            folders.insert(0, folder(&layer));
        }
        for (layer, _) in last {
            names.push(layer.name.into());
            folders.push(folder(&layer));
        }
        let colon = OsStr::new(":");
        // Disables Mesa's implicit device-selection layer, which calls the driver and crashes on an injected failure.
        let selection = ("NODEVICE_SELECT", "1".into());
        vec![("VK_INSTANCE_LAYERS", names.join(colon)), ("VK_ADD_LAYER_PATH", folders.join(colon)), selection]
    }
}

/// The non-empty entries of a colon-separated list.
fn entries_of(list: Option<OsString>) -> Vec<OsString> {
    let list = list.unwrap_or_default();
    let parts = list.as_bytes().split(|byte| *byte == b':').filter(|part| !part.is_empty());
    parts.map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

fn entries(faults: &[&Fault]) -> OsString {
    faults.iter().map(|fault| fault.entry()).collect::<Vec<_>>().join(",").into()
}

fn joined(paths: &[PathBuf]) -> OsString {
    paths.iter().map(|path| path.as_os_str().to_owned()).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// The paths followed by those already set. No empty entry, which would mean the current folder.
fn prepended(paths: &[PathBuf], set: Option<&OsStr>) -> OsString {
    let mut all = joined(paths);
    if let Some(set) = set.filter(|set| !set.is_empty()) {
        all.push(":");
        all.push(set);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The variables for a command line, given those that are already set.
    fn variables(line: &str, set: &[(&str, &str)]) -> HashMap<&'static str, String> {
        let arguments = line.split_whitespace().chain(["prog"]).map(OsString::from).collect();
        let options = match crate::options::parse(arguments) {
            Ok(crate::options::Request::Run(options)) => options,
            other => panic!("{line}: {other:?}"),
        };
        let installation = Installation {
            folder: "/sim".into(),
            lavapipe: options.profile.is_none_or(|p| p.vulkan).then(|| "/icd/lvp_icd.x86_64.json".into()),
            layers: vec!["/system".into()],
        };
        let set = |name: &str| set.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value));
        let environment = Environment::new(&options, &installation, &set).unwrap_or_else(|error| panic!("{error}"));
        environment.variables().map(|(name, value)| (name, value.to_string_lossy().into_owned())).collect()
    }

    fn get<'a>(variables: &'a HashMap<&str, String>, name: &str) -> Option<&'a str> {
        variables.get(name).map(String::as_str)
    }

    #[test]
    fn a_plain_run_sets_the_search_paths_and_the_layer_of_semaphores() {
        let plain = variables("", &[]);
        let mut names: Vec<_> = plain.keys().copied().collect();
        names.sort_unstable();
        let set = ["NODEVICE_SELECT", "VK_ADD_LAYER_PATH", "VK_DRIVER_FILES", "VK_INSTANCE_LAYERS"];
        assert_eq!(names, [&["LD_LIBRARY_PATH", "LD_PRELOAD"], &set[..1], &["PATH"], &set[1..]].concat());
        assert_eq!(get(&plain, "VK_INSTANCE_LAYERS"), Some("VK_LAYER_VKGDR_semaphores"));
        assert_eq!(get(&plain, "VK_ADD_LAYER_PATH"), Some("/system:/sim/vklayers/semaphores"));
        assert_eq!(get(&plain, "LD_LIBRARY_PATH"), Some("/sim"));
        assert_eq!(get(&plain, "VK_DRIVER_FILES"), Some("/icd/lvp_icd.x86_64.json"));
    }

    #[test]
    fn what_is_set_already_stays_behind_ours() {
        let set = [("LD_LIBRARY_PATH", "/mine:/yours"), ("PATH", "/usr/bin"), ("VK_INSTANCE_LAYERS", "A:B")];
        let some = variables("-p rebar", &set);
        assert_eq!(get(&some, "LD_LIBRARY_PATH"), Some("/sim:/mine:/yours"));
        assert_eq!(get(&some, "PATH"), Some("/sim/bin:/usr/bin"));
        assert_eq!(get(&some, "VK_INSTANCE_LAYERS"), Some("A:B:VK_LAYER_VKGDR_semaphores:VK_LAYER_VKGDR_profile"));
        assert_eq!(get(&variables("", &[("LD_LIBRARY_PATH", "")]), "LD_LIBRARY_PATH"), Some("/sim"));
    }

    #[test]
    fn our_libraries_are_preloaded_last_unless_that_is_turned_off() {
        let ours = "/sim/libnvJitLink.so.12:/sim/libnvJitLink.so.13:/sim/libcudart.so.13:/sim/libcudart.so.12";
        assert_eq!(get(&variables("", &[]), "LD_PRELOAD"), Some(ours));
        let set = format!("/mine.so:{ours}");
        assert_eq!(get(&variables("", &[("LD_PRELOAD", "/mine.so")]), "LD_PRELOAD"), Some(set.as_str()));
        assert_eq!(get(&variables("", &[("VKGDR_SIM_PRELOAD", "0")]), "LD_PRELOAD"), None);
        assert_eq!(get(&variables("", &[("VKGDR_SIM_PRELOAD", "1")]), "LD_PRELOAD"), Some(ours));
    }

    #[test]
    fn a_folder_that_the_variables_cannot_hold_is_refused() {
        for (folder, preloads, word) in [
            ("/opt/sim", true, None),
            ("/my sim", true, Some("VKGDR_SIM_PRELOAD=0")),
            ("/my sim", false, None),
            ("/a:b", true, Some("colon")),
            ("/a:b", false, Some("colon")),
            ("/a;b", false, Some("colon")),
        ] {
            match (check(Path::new(folder), preloads), word) {
                (Ok(()), None) => {}
                (Err(said), Some(word)) => assert!(said.contains(word) && said.contains(folder), "{said}"),
                (other, _) => panic!("{folder}: {other:?}"),
            }
        }
    }

    #[test]
    fn faults_go_to_their_drivers() {
        let last = "VK_LAYER_VKGDR_semaphores:VK_LAYER_VKGDR_profile";
        let both = variables("-f cuInit:100 -f vkMapMemory:-5 -f cuMemAlloc:2:2 -p bar256", &[]);
        assert_eq!(get(&both, "SIMCUDA_FAIL"), Some("cuInit:1:100,cuMemAlloc:2:2"));
        assert_eq!(get(&both, "VKLAYER_FAIL"), Some("vkMapMemory:1:-5"));
        assert_eq!(get(&both, "VK_INSTANCE_LAYERS"), Some(format!("VK_LAYER_VKGDR_faults:{last}").as_str()));
        let folders = "/sim/vklayers/faults:/system:/sim/vklayers/semaphores:/sim/vklayers/profile";
        assert_eq!(get(&both, "VK_ADD_LAYER_PATH"), Some(folders));
        assert_eq!(get(&variables("-f cuInit:100", &[]), "VK_INSTANCE_LAYERS"), Some("VK_LAYER_VKGDR_semaphores"));
        let both = variables("-f vkMapMemory:-5 -p rebar", &[("VK_INSTANCE_LAYERS", "A:B")]);
        assert_eq!(get(&both, "VK_INSTANCE_LAYERS"), Some(format!("VK_LAYER_VKGDR_faults:A:B:{last}").as_str()));
        // Layers that are already listed are not listed again, nor are their folders.
        let listed = "VK_LAYER_VKGDR_faults:VK_LAYER_VKGDR_semaphores";
        let set = [("VK_INSTANCE_LAYERS", listed), ("VK_ADD_LAYER_PATH", "/a:/system:/b")];
        assert_eq!(get(&variables("-f vkMapMemory:-5", &set), "VK_INSTANCE_LAYERS"), None);
        let more = variables("-f vkMapMemory:-5 -p rebar", &set);
        assert_eq!(get(&more, "VK_ADD_LAYER_PATH"), Some("/a:/system:/b:/sim/vklayers/profile"));
    }

    #[test]
    fn without_vulkan_the_loader_finds_no_driver_and_no_layer() {
        let none = variables("-p no-vulkan", &[]);
        assert_eq!(get(&none, "VK_DRIVER_FILES"), Some("/sim/no-driver.json"));
        assert_eq!(get(&none, "VK_INSTANCE_LAYERS"), None);
        assert_eq!(get(&none, "VKLAYER_PROFILE"), Some("no-vulkan"));
    }

    #[test]
    fn the_profile_late_is_the_drivers_alone() {
        let late = variables("-p late", &[]);
        assert_eq!(get(&late, "SIMCUDA_LATE"), Some("1"));
        assert_eq!(get(&late, "VKGDR_SIM_PROFILE"), Some("late"));
        assert_eq!(get(&late, "VKLAYER_PROFILE"), None);
        assert_eq!(get(&late, "VK_INSTANCE_LAYERS"), Some("VK_LAYER_VKGDR_semaphores"));
    }

    #[test]
    fn two_gpus_are_two_drivers_and_two_devices() {
        let two = variables("-p two-gpus", &[]);
        assert_eq!(get(&two, "VK_DRIVER_FILES"), Some("/icd/lvp_icd.x86_64.json:/icd/./lvp_icd.x86_64.json"));
        assert_eq!(get(&two, "SIMCUDA_DEVICES"), Some("2"));
        assert_eq!(get(&two, "VKLAYER_PROFILE"), Some("two-gpus"));
    }
}
