//! Faults to inject: `FUNCTION[:NTH]:CODE`.

use std::collections::BTreeSet;
use std::path::Path;

use object::{Object, ObjectSymbol};
use simcommon::FALLIBLE;
use simcommon::faults::base_name;

use crate::driver::Driver;
use crate::profile::nearest;

/// The `nth` call of a function returns `code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) driver: Driver,
    function: String,
    nth: u64,
    code: i32,
}

impl Fault {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let (function, nth, code) = match parts[..] {
            [function, code] => (function, "1", code),
            [function, nth, code] => (function, nth, code),
            _ => return Err(format!("'{text}' is not FUNCTION:CODE or FUNCTION:NTH:CODE")),
        };
        let driver = Driver::of(function)
            .ok_or_else(|| format!("'{function}' is no function of CUDA's driver (cu...) or Vulkan (vk...)"))?;
        let nth = nth.parse().ok().filter(|nth| *nth > 0);
        let nth = nth.ok_or_else(|| format!("in '{text}', the number of the call must be 1 or more"))?;
        Ok(Self { driver, function: function.to_owned(), nth, code: driver.code(code)? })
    }

    /// Refuses a function that the driver does not have, or Vulkan's layer cannot make fail; a driver would end the program.
    pub(crate) fn check(&self, cuda: &BTreeSet<String>) -> Result<(), String> {
        let Self { driver, function, .. } = self;
        let (name, known): (_, Vec<&str>) = match driver {
            Driver::Cuda => (base_name(function), cuda.iter().map(String::as_str).collect()),
            Driver::Vulkan => (function.as_str(), FALLIBLE.to_vec()),
        };
        if known.contains(&name) {
            return Ok(());
        }
        let near = nearest(name, known.into_iter());
        Err(format!("no call of '{function}' can be made to fail{near}"))
    }

    /// The syntax of `SIMCUDA_FAIL` and `VKLAYER_FAIL`.
    pub(crate) fn entry(&self) -> String {
        let Self { function, nth, code, .. } = self;
        format!("{function}:{nth}:{code}")
    }
}

/// The functions of the CUDA driver in a file, by their names without versions.
pub(crate) fn functions(driver: &Path) -> Result<BTreeSet<String>, String> {
    let complain = |error: &dyn std::fmt::Display| format!("{}: {error}", driver.display());
    let bytes = std::fs::read(driver).map_err(|error| complain(&error))?;
    let file = object::File::parse(&*bytes).map_err(|error| complain(&error))?;
    let symbols = file.dynamic_symbols().filter(ObjectSymbol::is_definition);
    let names = symbols.filter_map(|symbol| symbol.name().ok()).filter(|name| name.starts_with("cu"));
    Ok(names.map(|name| base_name(name).to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> Result<String, String> {
        Fault::parse(text).map(|fault| fault.entry())
    }

    #[test]
    fn the_first_call_fails_unless_another_is_named() {
        assert_eq!(entry("cuMemAlloc:2").as_deref(), Ok("cuMemAlloc:1:2"));
        assert_eq!(entry("vkMapMemory:7:-5").as_deref(), Ok("vkMapMemory:7:-5"));
    }

    #[test]
    fn codes_have_names() {
        assert_eq!(entry("cuInit:CUDA_ERROR_NO_DEVICE").as_deref(), Ok("cuInit:1:100"));
        let out_of_memory = entry("vkAllocateMemory:3:VK_ERROR_OUT_OF_DEVICE_MEMORY");
        assert_eq!(out_of_memory.as_deref(), Ok("vkAllocateMemory:3:-2"));
    }

    #[test]
    fn functions_that_there_are_not_are_refused_and_the_nearest_named() {
        let cuda = BTreeSet::from(["cuMemAlloc", "cuInit"].map(str::to_owned));
        let checked = |text| Fault::parse(text)?.check(&cuda);
        assert_eq!(checked("cuMemAlloc_v2:2"), Ok(()));
        assert_eq!(checked("vkMapMemory:-5"), Ok(()));
        for (text, near) in [("cuMemAllok:1:2", "cuMemAlloc?"), ("vkAlocateMemory:-2", "vkAllocateMemory?")] {
            match checked(text) {
                Err(complaint) => assert!(complaint.contains(near), "{complaint}"),
                Ok(()) => panic!("{text} is taken"),
            }
        }
    }

    #[test]
    fn a_base_name_has_no_version() {
        let names =
            ["cuMemFree", "cuMemFree_v2", "cuMemcpyHtoD_v2_ptds", "cuStreamQuery_ptsz", "cuMemcpy2D", "cuMemsetD8_v2"];
        let bases = ["cuMemFree", "cuMemFree", "cuMemcpyHtoD", "cuStreamQuery", "cuMemcpy2D", "cuMemsetD8"];
        assert_eq!(names.map(base_name), bases);
    }

    #[test]
    fn what_is_no_fault_is_refused_and_said() {
        for (text, word) in [
            ("cuInit", "FUNCTION:CODE"),
            ("cuInit:1:2:3", "FUNCTION:CODE"),
            ("malloc:1:2", "malloc"),
            ("cuInit:0:2", "1 or more"),
            ("cuInit:-1:2", "1 or more"),
            ("cuInit:1:0", "not 0"),
            ("cuInit:NO_SUCH", "NO_SUCH"),
            ("cuInit:VK_ERROR_DEVICE_LOST", "VK_ERROR_DEVICE_LOST"),
            ("vkMapMemory:5", "negative"),
        ] {
            match entry(text) {
                Err(complaint) => assert!(complaint.contains(word), "{text}: {complaint}"),
                Ok(entry) => panic!("{text}: {entry}"),
            }
        }
    }
}
