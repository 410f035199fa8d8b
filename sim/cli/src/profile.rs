//! The kinds of GPU that can be simulated.

use std::fmt::Write as _;

/// A kind of GPU to simulate, implemented by the layer `VK_LAYER_VKGDR_profile` and the driver.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    summary: &'static str,
    /// The number of GPUs.
    pub(crate) gpus: usize,
    /// Whether Vulkan has them.
    pub(crate) vulkan: bool,
    /// Whether the driver does no work before it has to. Vulkan is then lavapipe's own.
    pub(crate) late: bool,
}

impl Profile {
    const fn new(name: &'static str, summary: &'static str) -> Self {
        Self { name, summary, gpus: 1, vulkan: true, late: false }
    }

    const fn of_two(name: &'static str, summary: &'static str) -> Self {
        Self { name, summary, gpus: 2, vulkan: true, late: false }
    }

    const fn without_vulkan(name: &'static str, summary: &'static str) -> Self {
        Self { name, summary, gpus: 1, vulkan: false, late: false }
    }

    const fn late(name: &'static str, summary: &'static str) -> Self {
        Self { name, summary, gpus: 1, vulkan: true, late: true }
    }

    /// Whether the layer has a part in it.
    pub(crate) fn has_layer(&self) -> bool {
        self.vulkan && !self.late
    }

    /// The profile of that name.
    pub(crate) fn find(name: &str) -> Result<&'static Self, String> {
        let names = || PROFILES.iter().map(|profile| profile.name);
        PROFILES.iter().find(|profile| profile.name == name).ok_or_else(|| {
            let known = names().collect::<Vec<_>>().join(", ");
            format!("there is no profile '{name}'{}\nThe profiles are {known}.", nearest(name, names()))
        })
    }
}

const PROFILES: &[Profile] = &[
    Profile::new("rebar", "all of the GPU's memory can be mapped (Resizable BAR)"),
    Profile::new("bar256", "246 MiB of it can be mapped, less a desktop's share"),
    Profile::new("no-bar", "none of it can be mapped"),
    Profile::new("types-5", "214 MiB of it can be mapped; memory types of drivers 5xx"),
    Profile::new("types-11", "the same with the memory types of older drivers"),
    Profile::new("gb10", "one memory for CPU and GPU, which the CPU caches"),
    Profile::new("gh200", "all of it can be mapped, and the CPU caches it"),
    Profile::new("non-coherent", "the CPU and the GPU see each other's writes only\nafter a flush or an invalidate"),
    Profile::of_two("two-gpus", "two GPUs"),
    Profile::of_two("two-gpus-swapped", "two GPUs, which Vulkan lists in reverse order"),
    Profile::new("foreign-uuid", "Vulkan does not have the GPU that CUDA has"),
    Profile::new("no-external-memory", "Vulkan cannot export memory"),
    Profile::without_vulkan("no-vulkan", "CUDA has a GPU and Vulkan none; needs no Vulkan at all"),
    Profile::new("dma-buf", "CUDA 13.3: the CPU can map any device memory"),
    Profile::new("dma-buf-no-mmap", "CUDA 13.3: it can be exported, and not be mapped"),
    Profile::new("dma-buf-cached", "as dma-buf, and the CPU caches what it maps"),
    Profile::new("dma-buf-bar256", "as dma-buf and bar256"),
    Profile::without_vulkan("dma-buf-no-vulkan", "as dma-buf and no-vulkan"),
    Profile::late("late", "work waits until the program waits or asks, or for 0.5 s"),
];

/// ": did you mean KNOWN?" of the nearest name, or nothing where none is near.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = known.map(|known| (distance(name, known), known)).min();
    match near {
        Some((steps, known)) if steps <= 1 + name.len() / 4 => format!(": did you mean {known}?"),
        _ => String::new(),
    }
}

/// The letters to insert, remove or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The text of `--profiles`.
pub(crate) fn list() -> String {
    let mut text = String::from("Without a profile, the GPU has lavapipe's memory, all of which can be mapped.\n\n");
    for Profile { name, summary, .. } in PROFILES {
        let summary = summary.replace('\n', &format!("\n{:22}", ""));
        writeln!(text, "{name:22}{summary}").unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let known = || ["rebar", "non-coherent", "cuMemAlloc", "cuMemFree"].into_iter();
        assert_eq!(nearest("rebr", known()), ": did you mean rebar?");
        assert_eq!(nearest("cuMemAllok", known()), ": did you mean cuMemAlloc?");
        assert_eq!(nearest("gtx", known()), "");
        assert_eq!(["", "abc"].map(|text| distance(text, "abd")), [3, 1]);
    }

    #[test]
    fn the_list_of_profiles_fits_a_narrow_terminal() {
        for line in list().lines() {
            assert!(line.chars().count() <= 78, "{line}");
        }
    }
}
