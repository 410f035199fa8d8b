//! Missing `libvulkan` and Vulkan drivers, and searches for them.
//!
//! The simulated CUDA driver needs Vulkan itself. To break Vulkan for this crate only, the simulated driver uses a copy
//! of the loader under another name, or is initialised before the environment changes.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vkgdr::ash::{self, vk};
use vkgdr::vulkan::Handles;
use vkgdr::{OpenFlags, Vkgdr};

use crate::folder::{Folder, simulator};
use crate::{
    OPEN, OPEN_WITH_OTHER_ICD, OPENS, OTHER_ICD, Result, USE_WITH_OTHER_ICD, change_icd, child, refused,
    refused_or_headless,
};

const LOADER: &str = "libvulkan.so.1";
/// A unique name of the same length.
const OTHER_LOADER: &str = "libvulkan.so.x";
/// A manifest that cannot exist.
const NO_ICD: &str = "/dev/null/icd.json";
/// The time for an open that waits for nobody.
const TIME_TO_OPEN: Duration = Duration::from_secs(10);

fn simulated() -> bool {
    support::simcuda().is_some()
}

/// The mapped file whose name contains `part`.
fn mapped_file(part: &str) -> Result<Option<PathBuf>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    Ok(maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| path.contains(part))
        .map(Into::into))
}

/// The Vulkan loader's file.
fn loader() -> Result<Option<PathBuf>> {
    // The simulated driver loads it when it is initialised.
    support::driver::initialise();
    mapped_file("/libvulkan.so")
}

/// The library that lavapipe's manifest names, and its file.
fn lavapipe<'a>(manifest: &str, text: &'a str) -> Option<(&'a str, PathBuf)> {
    let library = text.split('"').find(|word| word.ends_with(".so"))?;
    let beside = Path::new(manifest).with_file_name(library);
    let system = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH)).join(library);
    let found = [PathBuf::from(library), beside, system].into_iter().find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: {library} was not found");
    }
    found.map(|file| (library, file))
}

/// The child that changes the ICD after CUDA was initialised, and opens.
fn with_icd(icd: impl AsRef<Path>) -> Result<Command> {
    in_role(OPEN_WITH_OTHER_ICD, icd)
}

fn in_role(role: &str, icd: impl AsRef<Path>) -> Result<Command> {
    let mut command = child::command(role)?;
    command.env(OTHER_ICD, icd.as_ref());
    Ok(command)
}

#[test]
fn a_missing_libvulkan_is_an_error_that_says_what_to_install() -> Result {
    parent!();
    let folder = Folder::new()?;
    folder.broken(LOADER)?;
    if simulated() {
        let (Some(simulator), Some(loader)) = (simulator(), loader()?) else { return Ok(()) };
        let rename = [(LOADER.as_bytes(), OTHER_LOADER.as_bytes())];
        folder.patched(&simulator, "libcuda.so.1", &rename)?;
        folder.alias("libcuda.so.1", "libcuda.so")?;
        folder.patched(&loader, OTHER_LOADER, &rename)?;
    }
    let mut command = child::command(OPEN)?;
    folder.first_for(&mut command);
    refused_or_headless(
        command,
        &["libvulkan.so.1 could not be loaded", "install the Vulkan loader (Debian and Ubuntu: libvulkan1)"],
    )
}

#[test]
fn no_vulkan_driver_and_one_that_does_not_load_are_errors_that_say_what_to_install() -> Result {
    parent!();
    let folder = Folder::new()?;
    folder.broken("libbroken.so")?;
    let (icd, library) = (folder.path().join("icd.json"), folder.path().join("libbroken.so"));
    let driver = format!(r#"{{"library_path": {library:?}, "api_version": "1.3.0"}}"#);
    fs::write(&icd, format!(r#"{{"file_format_version": "1.0.0", "ICD": {driver}}}"#))?;
    for icd in [NO_ICD.as_ref(), icd.as_path()] {
        let parts = ["vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)", "found no Vulkan driver; ", "NVIDIA"];
        refused_or_headless(with_icd(icd)?, &parts)?;
    }
    Ok(())
}

#[test]
fn nvidias_headless_driver_is_used_where_the_loader_finds_none() -> Result {
    parent!();
    let manifest = std::env::var("VK_DRIVER_FILES").unwrap_or_default();
    if !simulated() || manifest.contains(':') {
        return support::skip("needs the simulated driver with lavapipe, which is taken for NVIDIA's");
    }
    let text = fs::read_to_string(&manifest)?;
    let Some((_, library)) = lavapipe(&manifest, &text) else { return Ok(()) };
    let folder = Folder::new()?;
    folder.alias(&library.to_string_lossy(), "libEGL_nvidia.so.0")?;
    let mut command = with_icd(NO_ICD)?;
    folder.first_for(&mut command);
    refused(command, &["opened "])?;
    let mut command = in_role(USE_WITH_OTHER_ICD, NO_ICD)?;
    folder.first_for(&mut command);
    assert_eq!(child::run(command)?, ["used"]);
    Ok(())
}

#[test]
fn a_headless_driver_that_does_not_load_is_an_error_with_the_reason() -> Result {
    parent!();
    let folder = Folder::new()?;
    folder.broken("libEGL_nvidia.so.0")?;
    folder.broken("libGLX_nvidia.so.0")?;
    let mut command = with_icd(NO_ICD)?;
    folder.first_for(&mut command);
    let reason = folder.path().join("libEGL_nvidia.so.0").display().to_string();
    refused(
        command,
        &[
            "vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)",
            "libEGL_nvidia.so.0 is installed but cannot be loaded (",
            &reason,
        ],
    )
}

#[test]
fn a_headless_driver_that_is_not_whole_is_an_error_with_the_reason() -> Result {
    parent!();
    let (true, Some(simulator), Some(library)) = (simulated(), simulator(), loader()?) else {
        return support::skip("needs the simulated driver");
    };
    // A library without the driver's functions stands in for it.
    let folder = Folder::new()?;
    let install = |name: &str, version: &str| {
        folder.patched(&library, &format!("{name}.so.{version}"), &[])?;
        folder.alias(&format!("{name}.so.{version}"), &format!("{name}.so.0"))
    };
    let says = |parts: &[&str], variables: &[(&str, &str)]| {
        let mut command = with_icd(folder.path().join("nvidia_icd.json"))?;
        folder.first_for(&mut command);
        command.envs(variables.iter().copied());
        refused(command, &[&["vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)"], parts].concat())
    };
    install("libEGL_nvidia", "4.5.06")?;
    says(&["libEGL_nvidia.so.0 is installed but cannot be loaded (libnvidia-eglcore.so.4.5.06: cannot open"], &[])?;
    install("libnvidia-eglcore", "4.5.06")?;
    fs::write(folder.path().join("nvidia_icd.json"), r#"{"ICD": {"library_path": "libEGL_nvidia.so.0"}}"#)?;
    let refusal = "does not list this GPU (libEGL_nvidia.so.0: libEGL_nvidia.so.0 has no function vk_icdNegotiate";
    says(&[refusal], &[])?;
    for pattern in ["*NVIDIA*", "none,nvidia_icd.json", "*icd.json"] {
        let parts = ["VK_LOADER_DRIVERS_DISABLE hides NVIDIA's Vulkan driver", "unset VK_LOADER_DRIVERS_DISABLE"];
        says(&parts, &[("VK_LOADER_DRIVERS_DISABLE", pattern)])?;
        let select = format!("lvp_*,{pattern}");
        says(&[refusal], &[("VK_LOADER_DRIVERS_DISABLE", pattern), ("VK_LOADER_DRIVERS_SELECT", &select)])?;
    }
    says(&["VK_LOADER_DRIVERS_SELECT hides NVIDIA's Vulkan driver"], &[("VK_LOADER_DRIVERS_SELECT", "lvp_*")])?;
    // As the loader itself, which removes no blanks.
    says(&[refusal], &[("VK_LOADER_DRIVERS_SELECT", ""), ("VK_LOADER_DRIVERS_DISABLE", "none, *nvidia*")])?;
    folder.patched(&simulator, "libcuda.so.1.2.03", &[])?;
    folder.alias("libcuda.so.1.2.03", "libcuda.so.1")?;
    folder.alias("libcuda.so.1", "libcuda.so")?;
    says(&["NVIDIA's Vulkan driver has version 4.5.06, and the rest of the driver "], &[])
}

#[test]
fn a_search_that_finds_no_driver_is_made_once() -> Result {
    parent!();
    let folder = Folder::new()?;
    // Of the two names, the library tries this one for the error's cause alone.
    folder.broken("libGLX_nvidia.so.0")?;
    let mut command = with_icd(NO_ICD)?;
    folder.first_for(&mut command);
    // The dynamic linker lists what it opens.
    let list = folder.path().join("opened");
    command.env("LD_DEBUG", "files").env("LD_DEBUG_OUTPUT", &list);
    let said = child::run(command)?;
    assert_eq!(said.len(), OPENS, "{said:#?}");
    if support::driver::is_real() && said[0].starts_with("opened ") {
        return support::skip("NVIDIA's headless driver serves without the loader");
    }
    let lists = fs::read_dir(folder.path())?.flatten().map(|entry| entry.path());
    let texts = lists.filter(|path| path.with_extension("") == list).map(fs::read_to_string);
    let text = texts.collect::<std::io::Result<String>>()?;
    let opened = |name: &str| text.matches(&format!("file={name} [0];  dynamically loaded by")).count();
    assert_eq!(opened("libGLX_nvidia.so.0"), 1);
    Ok(())
}

/// A Vulkan device that the program makes itself; none if there is no device that can share memory.
fn program() -> Result<Handles> {
    // SAFETY: the loader's initialisers may run.
    let entry = unsafe { ash::Entry::load() }?;
    let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
    let info = vk::InstanceCreateInfo::default().application_info(&application);
    // SAFETY: a valid description.
    let instance = unsafe { entry.create_instance(&info, None) }?;
    // SAFETY: a live instance.
    let physical = unsafe { instance.enumerate_physical_devices() }?[0];
    let queue = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
    let names = [ash::khr::external_memory_fd::NAME.as_ptr()];
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queue).enabled_extension_names(&names);
    // SAFETY: a valid description.
    let device = unsafe { instance.create_device(physical, &info, None) }?;
    Ok(Handles::new(entry, instance, physical, device, 0))
}

/// The child: one thread looks for the GPU's Vulkan device, and the dynamic linker reads a driver's library that has no end
/// yet. Meanwhile another thread uses the GPU by a device of the program's.
fn open_during_a_search(library: &Path) -> Result {
    let program = program()?;
    // SAFETY: the process ends before the device.
    let open_on = || unsafe { Vkgdr::open_on(&program, OpenFlags::empty()) };
    // Loads what it needs, which the dynamic linker does not do while it is busy. For the same reason the threads below begin
    // before the search, and use no channel.
    drop(open_on()?);
    change_icd()?;
    let (begun, searching, opened) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let wait_for = |event: &AtomicBool| {
        while !event.load(Ordering::SeqCst) {
            std::thread::yield_now()
        }
    };
    std::thread::scope(|scope| {
        let end_of_library = scope.spawn(|| {
            begun.store(true, Ordering::SeqCst);
            // There is a writer once there is a reader: the linker.
            let mut open = OpenOptions::new();
            open.write(true).custom_flags(libc::O_NONBLOCK);
            let writer = loop {
                match open.open(library) {
                    Err(error) if error.raw_os_error() == Some(libc::ENXIO) => std::thread::yield_now(),
                    opened => break opened,
                }
            };
            searching.store(true, Ordering::SeqCst);
            let begin = Instant::now();
            while !opened.load(Ordering::SeqCst) && begin.elapsed() < TIME_TO_OPEN {
                std::thread::yield_now();
            }
            // The next attempt to load it finds no file.
            fs::remove_file(library).and(writer).map(drop)
        });
        wait_for(&begun);
        let search = scope.spawn(|| Vkgdr::open(0, OpenFlags::empty()).map(|gpu| gpu.vulkan_handles().is_ok()));
        wait_for(&searching);
        let begin = Instant::now();
        let gpu = open_on();
        let in_time = begin.elapsed() < TIME_TO_OPEN;
        opened.store(true, Ordering::SeqCst);
        end_of_library.join().map_err(|_| "the writer panicked")??;
        assert!(!search.join().map_err(|_| "the search panicked")??, "found Vulkan without a driver");
        assert_eq!(gpu?.device(), 0);
        assert!(in_time, "waited for the search");
        child::say("opened");
        Ok(())
    })
}

#[test]
fn a_search_keeps_no_thread_from_the_gpu_that_does_not_search() -> Result {
    let library = |folder: &Path| folder.join("libEGL_nvidia.so.0");
    if child::role().is_some() {
        let path = std::env::var("LD_LIBRARY_PATH")?;
        return open_during_a_search(&library(path.split(':').next().ok_or("no folder")?.as_ref()));
    }
    if !simulated() {
        return support::skip("the simulated driver's Vulkan device is the only one");
    }
    let folder = Folder::new()?;
    assert!(Command::new("mkfifo").arg(library(folder.path())).status()?.success());
    let mut command = with_icd(NO_ICD)?;
    folder.first_for(&mut command);
    assert_eq!(child::run(command)?, ["opened"]);
    Ok(())
}
