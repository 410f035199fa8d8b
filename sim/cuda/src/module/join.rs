#![forbid(unsafe_code)]
//! [`join`] makes one PTX text of several, as a linker does.

use super::private::separated;

/// The functions of libcudadevrt.a that the simulator has.
pub(super) const DEVICE_RUNTIME: &str = include_str!("device_runtime.ptx");

// Directives that a module has once, at its start.
const HEADER: [&str; 3] = [".version", ".target", ".address_size"];

/// One module, with the header of the first text. The device runtime comes once, and last, since its header is not
/// the program's.
pub(super) fn join(inputs: &[String]) -> String {
    let is_runtime = |text: &&String| *text == DEVICE_RUNTIME;
    let runtime = inputs.iter().find(is_runtime);
    let inputs: Vec<String> = inputs.iter().filter(|text| !is_runtime(text)).chain(runtime).cloned().collect();
    let inputs = separated(&inputs);
    let is_header = |line: &str| HEADER.iter().any(|word| line.trim_start().starts_with(word));
    let mut all = inputs.first().cloned().unwrap_or_default();
    for line in inputs.iter().skip(1).flat_map(|text| text.lines()).filter(|line| !is_header(line)) {
        all.push('\n');
        all.push_str(line);
    }
    all
}
