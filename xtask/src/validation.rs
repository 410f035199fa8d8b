//! The tests again under the Khronos validation layer, which reports invalid use of Vulkan.

use crate::Result;
use crate::context::{Context, say};
use crate::stages::{Stages, python_again, rust};

/// Runs the tests in Rust, C, C++ and Python that call Vulkan.
pub(crate) fn run(context: &Context) -> Result {
    context.choose_driver()?;
    context.need_nextest()?;
    let mut stages = Stages::default();
    stages.layered("tests under the validation layer", "validation", rust(context).args(["--profile", "validation"]));
    stages.layered("Python: tests under the validation layer", "validation", python_again(context));
    stages.end()?;
    say("all passed, and Vulkan was used validly");
    Ok(())
}
