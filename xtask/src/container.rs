//! Tests the container image of the guide, `examples/container/Dockerfile`: builds it with buildah and runs `vkgdr doctor` in
//! it, without a GPU and on the simulated one.
//!
//! Needs root, buildah, the wheel of `make wheel` and a Debian mirror. Where the base image is not there it is made by
//! debootstrap. `VKGDR_CONTAINER_OPTIONS` are further options of `buildah build`, such as the mount of a pip.conf.

use std::fs;

use xshell::Cmd;

use crate::Result;
use crate::context::{Context, has, say, variable};

const BASE: &str = "docker.io/library/debian:bookworm-slim";
const DOCKERFILE: &str = "examples/container/Dockerfile";
const IMAGE: &str = "localhost/vkgdr";
/// Neither needs a daemon or privileges beyond root's.
const ISOLATED: [&str; 2] = ["--isolation", "chroot"];

/// Builds and runs the image.
pub(crate) fn run(context: &Context) -> Result {
    for program in ["buildah", "debootstrap"] {
        if !has(program) {
            return Err(format!("needs {program} (Debian, Ubuntu: apt install buildah debootstrap)").into());
        }
    }
    let wheels = context.target.join("python/wheel");
    let has_wheel = fs::read_dir(&wheels).is_ok_and(|mut files| files.next().is_some());
    if !has_wheel {
        return Err("there is no wheel: run `make wheel` first".into());
    }
    let dockerfile = fs::read_to_string(context.root.join(DOCKERFILE))?;
    if !dockerfile.contains("\nFROM debian:bookworm-slim\n") {
        return Err(format!("{DOCKERFILE} is not from {BASE}, which this chore makes").into());
    }
    base(context)?;
    say("building the image");
    let options = variable("VKGDR_CONTAINER_OPTIONS").unwrap_or_default();
    let build = context.command("buildah build --pull-never").args(ISOLATED).args(options.split_whitespace());
    build.args(["-t", IMAGE, "-f", DOCKERFILE]).arg(&wheels).ignore_stdout().run()?;

    let container = context.command("buildah from --pull-never").arg(IMAGE).read()?;
    let result = doctor(context, container.trim());
    context.command("buildah rm").arg(container.trim()).ignore_stdout().run()?;
    result
}

/// Makes the base image, where there is none.
fn base(context: &Context) -> Result {
    if context.command("buildah inspect --type image").arg(BASE).ignore_stdout().ignore_stderr().run().is_ok() {
        return Ok(());
    }
    say(format!("making {BASE} by debootstrap (a minute or more, once)"));
    let root = context.target.join("container-base");
    context.fresh(&root)?;
    context.command("debootstrap --variant=minbase bookworm").arg(&root).ignore_stdout().run()?;
    let container = context.command("buildah from scratch").read()?;
    context.command("buildah add -q").arg(container.trim()).arg(&root).arg("/").ignore_stdout().run()?;
    context.command("buildah config --cmd bash").arg(container.trim()).run()?;
    context.command("buildah commit -q --rm").arg(container.trim()).arg(BASE).ignore_stdout().run()?;
    Ok(fs::remove_dir_all(root)?)
}

/// Runs `vkgdr doctor` in a container: without a GPU, with CUDA alone, and with Vulkan as well.
fn doctor(context: &Context, container: &str) -> Result {
    let simulator = format!("{}:/sim:ro", context.sim.display());
    let within = |words: &str| -> Cmd<'_> {
        let command = context.command("buildah run").args(ISOLATED).args(["-v", &simulator]);
        command.arg(container).arg("--").args(words.split(' '))
    };
    let expect = |words: &str, code: i32, text: &str| -> Result {
        say(words);
        let output = within(words).ignore_status().output()?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.code() == Some(code) && out.contains(text) {
            return Ok(());
        }
        Err(format!("{}, expected {code} and '{text}':\n{out}", output.status).into())
    };
    expect("vkgdr doctor", 2, "libcuda.so.1 cannot be loaded")?;
    expect("/sim/vkgdr-sim --profile no-vulkan -- vkgdr doctor", 1, "host memory     pages registered with CUDA")?;
    let packages = "apt-get update -qq && apt-get install -qq --no-install-recommends mesa-vulkan-drivers";
    let install =
        context.command("buildah run --user root").args(ISOLATED).args([container, "--", "sh", "-c", packages]);
    install.ignore_stdout().ignore_stderr().run()?;
    expect("/sim/vkgdr-sim -- vkgdr doctor", 0, "mapped memory")
}
