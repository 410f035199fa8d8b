//! Programs started by `vkgdr-sim`, as `build.sh` built it.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, Output};

use ash::vk::{MemoryHeap, MemoryPropertyFlags as Properties};
use support::cuda::PrimaryContext;
use support::driver;
use support::vulkan::Vulkan;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// What this test itself was started with.
const OUTER: [&str; 6] = [
    "SIMCUDA_DEVICES",
    "SIMCUDA_LATE",
    "VKGDR_SIM_PROFILE",
    "VKLAYER_PROFILE",
    "VK_ADD_LAYER_PATH",
    "VK_INSTANCE_LAYERS",
];

/// The launcher in the folder that `sim/run` names.
struct Launcher(PathBuf);

impl Launcher {
    /// None with a real driver: the simulator is not built then, or has no lavapipe.
    fn find() -> Result<Option<Self>> {
        if std::env::var_os("VKGDR_CUDA_DRIVER").is_some_and(|driver| driver == "real") {
            eprintln!("skipped: the driver is a real one");
            return Ok(None);
        }
        let folder = std::env::var_os("VKGDR_SIM_DIR").ok_or("not started by sim/run, as cargo does")?;
        Ok(Some(Self(PathBuf::from(folder).join("vkgdr-sim"))))
    }

    fn launch(&self, arguments: &[&str]) -> Result<Output> {
        Ok(Command::new(&self.0).args(arguments).output()?)
    }

    /// Starts [`reports`] with these options.
    fn start(&self, options: &[&str]) -> Result<Output> {
        let this = std::env::current_exe()?;
        let test = ["--ignored", "--exact", "reports", "--nocapture"];
        let mut command = Command::new(&self.0);
        command.args(options).arg("--").arg(this).args(test);
        OUTER.iter().for_each(|name| {
            command.env_remove(name);
        });
        Ok(command.output()?)
    }

    /// What [`reports`] prints when it is started with these options.
    fn report(&self, options: &[&str]) -> Result<String> {
        let output = self.start(options)?;
        assert!(output.status.success(), "{options:?}: {}", text(&output.stderr));
        let lines = text(&output.stdout);
        let line = lines.lines().find_map(|line| line.split_once("report: "));
        Ok(line.ok_or_else(|| format!("no report in {lines}"))?.1.to_owned())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The memory of the simulated GPU in Vulkan, or why a program cannot use it.
fn seen() -> String {
    let code = driver::init();
    if code != 0 {
        return format!("cuInit failed ({})", driver::error_name(code));
    }
    let vulkan = match Vulkan::open(0) {
        Ok(vulkan) => vulkan,
        Err(error) => return error.to_string(),
    };
    let mapped = Properties::DEVICE_LOCAL | Properties::HOST_VISIBLE;
    let host = vulkan.largest_heap(Properties::HOST_VISIBLE, Properties::DEVICE_LOCAL);
    let size = |heap: Option<MemoryHeap>| heap.map_or("none".to_owned(), |heap| format!("{} MiB", heap.size >> 20));
    format!(
        "mapped {}, host {}, device {}",
        size(vulkan.largest_heap(mapped, Properties::empty())),
        size(host),
        size(vulkan.largest_heap(Properties::DEVICE_LOCAL, Properties::empty())),
    )
}

#[test]
#[ignore = "what the other tests start"]
fn reports() {
    println!("\nreport: {}", seen());
}

#[test]
#[ignore = "what another test starts"]
fn allocates() -> Result {
    let _context = PrimaryContext::retain_and_push(0);
    let vulkan = Vulkan::open(0)?;
    let memory = vulkan.memory(4096)?;
    println!("\nreport: {} on {}", 4 * memory.words().len(), driver::pci_bus_id(0));
    Ok(())
}

/// Its ordinal, 0, is not its number among all.
#[test]
fn a_gpu_that_the_environment_chose_imports_its_own_memory() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    for profile in ["two-gpus", "two-gpus-swapped"] {
        let mut command = Command::new(&sim.0);
        command.args(["-p", profile, "--"]).arg(std::env::current_exe()?);
        command.args(["--ignored", "--exact", "allocates", "--nocapture"]).env("CUDA_VISIBLE_DEVICES", "1");
        let output = command.env_remove("VK_INSTANCE_LAYERS").env_remove("VK_ADD_LAYER_PATH").output()?;
        let said = text(&output.stdout);
        assert!(said.contains("report: 4096 on 0000:01:00.0"), "{profile}: {said}{}", text(&output.stderr));
    }
    Ok(())
}

#[test]
fn a_program_finds_the_simulated_gpu() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let plain = sim.report(&[])?;
    assert!(plain.starts_with("mapped ") && !plain.contains("none"), "{plain}");
    Ok(())
}

#[test]
fn a_program_finds_the_gpu_that_a_profile_describes() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    for (profile, expected) in [
        ("rebar", "mapped 8192 MiB, host 16384 MiB, device 8192 MiB"),
        ("bar256", "mapped 246 MiB, host 16384 MiB, device 8192 MiB"),
        ("no-bar", "mapped none, host 16384 MiB, device 8192 MiB"),
    ] {
        assert_eq!(sim.report(&["--profile", profile])?, expected, "{profile}");
    }
    for (profile, expected) in [
        ("no-external-memory", "vkCreateDevice failed (VK_ERROR_EXTENSION_NOT_PRESENT)"),
        ("foreign-uuid", "Vulkan does not have CUDA's device"),
        ("no-vulkan", "vkCreateInstance failed (VK_ERROR_INCOMPATIBLE_DRIVER)"),
    ] {
        let missing = sim.report(&["-p", profile])?;
        assert!(missing.contains(expected), "{profile}: {missing}");
    }
    Ok(())
}

#[test]
fn a_profile_replaces_the_one_outside_which_stays_without_one() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let program = sim.0.to_str().ok_or("the folder's name is not UTF-8")?;
    let rebar = "mapped 8192 MiB, host 16384 MiB, device 8192 MiB";
    for outer in ["late", "two-gpus", "no-vulkan"] {
        assert_eq!(sim.report(&["-p", outer, "--", program, "-p", "rebar"])?, rebar, "{outer}");
    }
    assert_eq!(sim.report(&["-p", "rebar", "--", program])?, rebar);
    let variable = sim.launch(&["-p", "late", "--", program, "-p", "rebar", "--", "printenv", "SIMCUDA_LATE"])?;
    assert_eq!(text(&variable.stdout), "");
    Ok(())
}

#[test]
fn programs_are_found_without_path() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let output = Command::new(&sim.0).args(["--", "true"]).env_clear().output()?;
    assert!(output.status.success(), "{}", text(&output.stderr));
    Ok(())
}

#[test]
fn every_profile_of_the_list_is_known_to_the_layer() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let list = text(&sim.launch(&["--profiles"])?.stdout);
    let names: Vec<_> = list.lines().skip(2).filter(|line| !line.starts_with(' ')).collect();
    assert!(names.len() > 4, "{list}");
    for line in names {
        let name = line.split_whitespace().next().unwrap_or_default();
        sim.report(&["--profile", name])?;
    }
    Ok(())
}

#[test]
fn a_full_disk_is_a_failure_of_the_launcher() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let full = || std::fs::File::options().write(true).open("/dev/full");
    for argument in ["--help", "--version", "--profiles"] {
        let status = Command::new(&sim.0).arg(argument).stdout(full()?).stderr(full()?).status()?;
        assert_eq!(status.code(), Some(125), "{argument}");
    }
    let status = Command::new(&sim.0).arg("--nonsense").stderr(full()?).status()?;
    assert_eq!(status.code(), Some(125), "a message that cannot be printed");
    Ok(())
}

#[test]
fn a_program_sees_the_failures_that_were_asked_for() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let cuda = sim.report(&["--fail", "cuInit:CUDA_ERROR_NO_DEVICE"])?;
    assert!(cuda.contains("cuInit failed (CUDA_ERROR_NO_DEVICE)"), "{cuda}");
    let vulkan = sim.report(&["-p", "rebar", "--fail", "vkCreateDevice:VK_ERROR_TOO_MANY_OBJECTS"])?;
    assert!(vulkan.contains("vkCreateDevice failed (VK_ERROR_TOO_MANY_OBJECTS)"), "{vulkan}");
    Ok(())
}

#[test]
fn a_failure_of_a_function_that_there_is_not_is_refused_before_the_program_starts() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    for (failure, near) in [("cuMemAloc:2", "cuMemAlloc?"), ("vkAlocateMemory:-2", "vkAllocateMemory?")] {
        let output = sim.start(&["--fail", failure])?;
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(125) && said.contains(near), "{said}");
    }
    Ok(())
}

#[test]
fn the_exit_code_is_the_programs() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let output = sim.launch(&["--", "sh", "-c", "echo out; echo err >&2; exit 3"])?;
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".to_owned(), "err\n".to_owned()));
    Ok(())
}

#[test]
fn what_cannot_be_started_is_named_with_the_codes_of_env() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    for (arguments, code, word) in [
        (&["no-such-program"][..], 127, "no-such-program"),
        (&["/"], 126, "/"),
        (&["--profile", "gtx", "true"], 125, "bar256"),
        (&[], 125, "no program given"),
    ] {
        let output = sim.launch(arguments)?;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.starts_with("vkgdr-sim: ") && said.contains(word), "{arguments:?}: {said}");
    }
    Ok(())
}

#[test]
fn a_link_to_the_launcher_serves_as_well_and_a_lone_copy_says_what_it_lacks() -> Result {
    let Some(sim) = Launcher::find()? else { return Ok(()) };
    let folder = std::env::temp_dir().join(format!("vkgdr-sim-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let (link, copy) = (folder.join("link"), folder.join("copy"));
    std::os::unix::fs::symlink(&sim.0, &link)?;
    std::fs::copy(&sim.0, &copy)?;
    let [link, copy] = [link, copy].map(|program| Command::new(program).arg("true").output());
    std::fs::remove_dir_all(&folder)?;
    assert!(link?.status.success());
    let copy = copy?;
    assert_eq!(copy.status.code(), Some(125));
    assert!(text(&copy.stderr).contains("make -C sim"), "{}", text(&copy.stderr));
    Ok(())
}
