//! The environment variables by which a program finds the simulated GPU.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::driver::Driver;
use crate::fault::Fault;
use crate::installation::Installation;
use crate::layer::Layer;
use crate::options::Options;
use crate::profile::Profile;

/// Libraries that stand in for NVIDIA's, of both versions of CUDA. The newer runtime is first, for programs that look its
/// functions up in no library in particular.
const PRELOADED: [&str; 4] = ["libnvJitLink.so.12", "libnvJitLink.so.13", "libcudart.so.13", "libcudart.so.12"];

/// Where programs are searched without `PATH`: the C library's default (execvp(3)), behind the administrator's own.
const DEFAULT_PATH: &str = "/usr/local/bin:/bin:/usr/bin";

/// The name of the profile, for pytest's option and for a vkgdr-sim that runs under this one.
const PROFILE: &str = "VKGDR_SIM_PROFILE";

/// The loader's filters of drivers and devices, which would hide the simulated GPU (the loader's LoaderInterfaceArchitecture).
const FILTERS: [&str; 5] = [
    "VK_LOADER_DRIVERS_SELECT",
    "VK_LOADER_DRIVERS_DISABLE",
    "VK_LOADER_DEVICE_ID_FILTER",
    "VK_LOADER_VENDOR_ID_FILTER",
    "VK_LOADER_DRIVER_ID_FILTER",
];

/// A variable of the environment, by its name.
pub(crate) type Set<'a> = &'a dyn Fn(&'static str) -> Option<OsString>;

/// A variable and its value; none, to remove it.
pub(crate) type Variable = (&'static str, Option<OsString>);

/// Environment variables for a program.
#[derive(Debug)]
pub(crate) struct Environment(Vec<Variable>);

/// The profile of a program: that of the options, else that of the vkgdr-sim under which this one runs.
pub(crate) fn profile(options: &Options, set: Set<'_>) -> Option<&'static Profile> {
    options.profile.or_else(|| outer(set))
}

/// The profile of the vkgdr-sim under which this one runs. None if it has none, or one of another version.
fn outer(set: Set<'_>) -> Option<&'static Profile> {
    Profile::find(set(PROFILE)?.to_str()?).ok()
}

impl Environment {
    /// The variables for these options. Lists keep what is set: `PATH` and `LD_LIBRARY_PATH` behind ours, `LD_PRELOAD` before
    /// ours, Vulkan's layers in between ([`Layer::variables`]). Vulkan's drivers are replaced, and filters of them removed.
    ///
    /// Under another vkgdr-sim, a profile replaces the outer one wholly; without one the outer profile stays, and what was set
    /// since. Failures replace the outer failures of the same driver. Refuses a folder that the variables cannot hold.
    pub(crate) fn new(options: &Options, installation: &Installation, set: Set<'_>) -> Result<Self, String> {
        let folder = &installation.folder;
        let preloads = set("VKGDR_SIM_PRELOAD").is_none_or(|value| value != "0");
        check(folder, preloads)?;
        let gpus = profile(options, set).map_or(1, |profile| profile.gpus);
        let drivers = joined(&drivers(installation, gpus));
        let path = set("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let mut variables = vec![
            ("LD_LIBRARY_PATH", Some(prepended(folder, set("LD_LIBRARY_PATH").as_deref()))),
            ("PATH", Some(prepended(&folder.join("bin"), Some(&path)))),
            // Loaders older than 1.3.207 know only the second name; newer ones prefer the first.
            ("VK_DRIVER_FILES", Some(drivers.clone())),
            ("VK_ICD_FILENAMES", Some(drivers)),
        ];
        variables.extend(FILTERS.iter().filter(|name| set(name).is_some()).map(|&name| (name, None)));
        if preloads {
            variables.push(("LD_PRELOAD", Some(preloaded(folder, set("LD_PRELOAD").as_deref()))));
        }
        let faults_of = |driver| options.faults.iter().filter(move |fault| fault.driver == driver).collect::<Vec<_>>();
        let (cuda, vulkan) = (faults_of(Driver::Cuda), faults_of(Driver::Vulkan));
        if !cuda.is_empty() {
            variables.push(("SIMCUDA_FAIL", Some(entries(&cuda))));
        }
        if !vulkan.is_empty() {
            variables.push(("VKLAYER_FAIL", Some(entries(&vulkan))));
        }
        if let Some(profile) = options.profile {
            variables.extend(of_profile(profile, outer(set)));
        }
        variables.extend(Layer::variables(options, installation, set));
        Ok(Self(variables))
    }

    /// The variables with their values; none of one that is to be removed.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, Option<&OsStr>)> {
        self.0.iter().map(|(name, value)| (*name, value.as_deref()))
    }
}

/// The variables of a profile, without what only the outer one sets. What the user sets beside a profile stays.
fn of_profile(profile: &Profile, outer: Option<&Profile>) -> Vec<Variable> {
    let mut variables =
        vec![(PROFILE, Some(profile.name.into())), ("SIMCUDA_DEVICES", Some(profile.gpus.to_string().into()))];
    let (name, value, other) = if profile.late {
        ("SIMCUDA_LATE", "1", "VKLAYER_PROFILE")
    } else {
        ("VKLAYER_PROFILE", profile.name, "SIMCUDA_LATE")
    };
    variables.push((name, Some(value.into())));
    if outer.is_some_and(|outer| outer.late != profile.late) {
        variables.push((other, None));
    }
    variables
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

fn entries(faults: &[&Fault]) -> OsString {
    faults.iter().map(|fault| fault.entry()).collect::<Vec<_>>().join(",").into()
}

fn joined(paths: &[PathBuf]) -> OsString {
    paths.iter().map(|path| path.as_os_str().to_owned()).collect::<Vec<_>>().join(OsStr::new(":"))
}

/// The path followed by those already set. No empty entry, which would mean the current folder.
fn prepended(path: &Path, set: Option<&OsStr>) -> OsString {
    let mut all = path.as_os_str().to_owned();
    if let Some(set) = set.filter(|set| !set.is_empty()) {
        all.push(":");
        all.push(set);
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;
    use crate::layer::entries_of;

    /// The variables that a command line sets, given those that are already set.
    fn variables(line: &str, set: &[(&str, &str)]) -> HashMap<&'static str, String> {
        let value = |name: &str| set.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value));
        let changes = changes(line, &value).into_iter();
        changes.filter_map(|(name, value)| Some((name, value?.to_string_lossy().into_owned()))).collect()
    }

    /// The variables of a program that is started by several command lines, each under the one before.
    fn nested(lines: &[&str], set: &[(&'static str, &str)]) -> BTreeMap<&'static str, OsString> {
        let mut all: BTreeMap<_, OsString> = set.iter().map(|(name, value)| (*name, value.into())).collect();
        for line in lines {
            for (name, value) in changes(line, &|name| all.get(name).cloned()) {
                match value {
                    Some(value) => all.insert(name, value),
                    None => all.remove(name),
                };
            }
        }
        all
    }

    fn changes(line: &str, set: Set<'_>) -> Vec<Variable> {
        let arguments = line.split_whitespace().chain(["prog"]).map(OsString::from).collect();
        let options = match crate::options::parse(arguments) {
            Ok(crate::options::Request::Run(options)) => options,
            other => panic!("{line}: {other:?}"),
        };
        let installation = Installation {
            folder: "/sim".into(),
            lavapipe: profile(&options, set).is_none_or(|p| p.vulkan).then(|| "/icd/lvp_icd.x86_64.json".into()),
            layers: vec!["/system".into()],
        };
        Environment::new(&options, &installation, set).unwrap_or_else(|error| panic!("{error}")).0
    }

    fn get<'a>(variables: &'a HashMap<&str, String>, name: &str) -> Option<&'a str> {
        variables.get(name).map(String::as_str)
    }

    #[test]
    fn a_plain_run_sets_the_search_paths_and_the_layer_of_semaphores() {
        let plain = variables("", &[]);
        let mut names: Vec<_> = plain.keys().copied().collect();
        names.sort_unstable();
        let set = ["NODEVICE_SELECT", "VK_ADD_LAYER_PATH", "VK_DRIVER_FILES", "VK_ICD_FILENAMES", "VK_INSTANCE_LAYERS"];
        assert_eq!(names, [&["LD_LIBRARY_PATH", "LD_PRELOAD"], &set[..1], &["PATH"], &set[1..]].concat());
        assert_eq!(get(&plain, "VK_INSTANCE_LAYERS"), Some("VK_LAYER_VKGDR_semaphores"));
        assert_eq!(get(&plain, "VK_ADD_LAYER_PATH"), Some("/system:/sim/vklayers/semaphores"));
        assert_eq!(get(&plain, "LD_LIBRARY_PATH"), Some("/sim"));
        assert_eq!(get(&plain, "PATH"), Some("/sim/bin:/usr/local/bin:/bin:/usr/bin"));
        assert_eq!(get(&plain, "VK_DRIVER_FILES"), Some("/icd/lvp_icd.x86_64.json"));
        assert_eq!(get(&plain, "VK_ICD_FILENAMES"), Some("/icd/lvp_icd.x86_64.json"));
    }

    #[test]
    fn lists_that_are_set_already_stay() {
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
    fn the_loaders_variables_hide_neither_our_layers_nor_the_gpu() {
        let ours = "VK_LAYER_VKGDR_semaphores,VK_LAYER_VKGDR_profile";
        let all = variables("-p bar256", &[("VK_LOADER_LAYERS_DISABLE", "~all~")]);
        assert_eq!(get(&all, "VK_LOADER_LAYERS_ENABLE"), Some(ours));
        let set = [("VK_LOADER_LAYERS_DISABLE", "~all~"), ("VK_LOADER_LAYERS_ENABLE", "A")];
        assert_eq!(get(&variables("-p bar256", &set), "VK_LOADER_LAYERS_ENABLE"), Some(format!("A,{ours}").as_str()));
        // Also of an outer vkgdr-sim's layers.
        let twice = nested(&["-p bar256", ""], &[("VK_LOADER_LAYERS_DISABLE", "~all~")]);
        assert_eq!(
            twice.get("VK_LOADER_LAYERS_ENABLE").map(|value| value.to_string_lossy().contains(ours)),
            Some(true)
        );

        let path = variables("-p bar256 -f vkMapMemory:-5", &[("VK_LAYER_PATH", "/sdk")]);
        let folders = "/sim/vklayers/faults:/sdk:/sim/vklayers/semaphores:/sim/vklayers/profile";
        assert_eq!(get(&path, "VK_LAYER_PATH"), Some(folders));
        assert_eq!(get(&path, "VK_ADD_LAYER_PATH"), None);

        let filtered = nested(&[""], &[("VK_LOADER_DRIVERS_SELECT", "*nvidia*"), ("VK_LOADER_DRIVERS_DISABLE", "*")]);
        assert!(filtered.keys().all(|name| !name.starts_with("VK_LOADER_DRIVERS")), "{filtered:?}");
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
    fn a_profile_under_another_leaves_nothing_of_it() {
        let profiles = ["rebar", "gb10", "late", "two-gpus", "no-vulkan"].map(|name| format!("-p {name}"));
        let set = [("PATH", "/usr/bin"), ("VK_INSTANCE_LAYERS", "A"), ("VKGDR_SIM_PRELOAD", "0")];
        for (outer, inner) in profiles.iter().flat_map(|outer| profiles.iter().map(move |inner| (outer, inner))) {
            let (alone, both) = (nested(&[inner], &set), nested(&[outer, inner], &set));
            // The folders of the system's layers stay, and the lists of folders get ours again.
            let kept = ["LD_LIBRARY_PATH", "NODEVICE_SELECT", "PATH", "VK_ADD_LAYER_PATH"];
            let of = |all: BTreeMap<&'static str, OsString>| {
                all.into_iter().filter(|(name, _)| !kept.contains(name)).collect::<Vec<_>>()
            };
            let folders = entries_of(both.get("VK_ADD_LAYER_PATH").cloned());
            let layers = entries_of(both.get("VK_INSTANCE_LAYERS").cloned());
            assert_eq!(of(both), of(alone), "{outer} {inner}");
            let ours =
                |list: &[OsString], part: &str| list.iter().filter(|x| x.to_string_lossy().contains(part)).count();
            assert_eq!(ours(&folders, "/sim/vklayers/"), ours(&layers, "VKGDR"), "{outer} {inner}");
        }
    }

    #[test]
    fn without_a_profile_the_outer_one_stays() {
        for profile in ["", "-p rebar", "-p late", "-p two-gpus", "-p no-vulkan"] {
            let mut twice = nested(&[profile, ""], &[("VKGDR_SIM_PRELOAD", "0")]);
            let mut once = nested(&[profile], &[("VKGDR_SIM_PRELOAD", "0")]);
            for all in [&mut twice, &mut once] {
                all.retain(|name, _| !["LD_LIBRARY_PATH", "PATH"].contains(name));
            }
            assert_eq!(twice, once, "{profile}");
        }
        let set = [("VKGDR_SIM_PROFILE", "two-gpus"), ("SIMCUDA_DEVICES", "1")];
        assert_eq!(get(&variables("", &set), "SIMCUDA_DEVICES"), None);
    }

    #[test]
    fn what_the_user_sets_beside_a_profile_stays() {
        let all = nested(&["-p rebar"], &[("SIMCUDA_LATE", "1"), ("VKGDR_SIM_PROFILE", "of another version")]);
        assert_eq!(all.get("SIMCUDA_LATE"), Some(&"1".into()));
        assert_eq!(all.get("VKGDR_SIM_PROFILE"), Some(&"rebar".into()));
    }

    #[test]
    fn failures_replace_those_of_the_same_driver() {
        let all = nested(&["-f cuInit:100 -f vkMapMemory:-5", "-p rebar -f cuMemAlloc:2"], &[]);
        assert_eq!(all.get("SIMCUDA_FAIL"), Some(&"cuMemAlloc:1:2".into()));
        assert_eq!(all.get("VKLAYER_FAIL"), Some(&"vkMapMemory:1:-5".into()));
        let layers = all.get("VK_INSTANCE_LAYERS").and_then(|layers| layers.to_str());
        assert_eq!(layers, Some("VK_LAYER_VKGDR_faults:VK_LAYER_VKGDR_semaphores:VK_LAYER_VKGDR_profile"));
    }

    #[test]
    fn two_gpus_are_two_drivers_and_two_devices() {
        let two = variables("-p two-gpus", &[]);
        assert_eq!(get(&two, "VK_DRIVER_FILES"), Some("/icd/lvp_icd.x86_64.json:/icd/./lvp_icd.x86_64.json"));
        assert_eq!(get(&two, "SIMCUDA_DEVICES"), Some("2"));
        assert_eq!(get(&two, "VKLAYER_PROFILE"), Some("two-gpus"));
    }
}
