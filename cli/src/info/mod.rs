//! `vkgdr info`: every CUDA device with the memory that can be allocated on it.

mod facts;
mod page;

use vkgdr::diagnosis::System;

use crate::screen::{Screen, unless_closed};
use crate::{FAILURE, Result, SUCCESS};

pub(crate) use facts::is_simulated;

pub(crate) fn run(screen: &mut Screen, system: &System, json: bool) -> Result<u8> {
    let facts = facts::gather(system);
    let printed = if json { screen.print_json(&facts) } else { screen.print(&page::text(&facts, screen.width())) };
    unless_closed(printed)?;
    let has_error = |value: &serde_json::Value| value.get("error").is_some();
    let failed = has_error(&facts) || facts["devices"].as_array().is_some_and(|devices| devices.iter().any(has_error));
    Ok(if failed { FAILURE } else { SUCCESS })
}
