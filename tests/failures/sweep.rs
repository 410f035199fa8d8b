//! The sweep: makes the first driver call of an operation fail, then the second, and so on to the last.

use std::collections::BTreeSet;

use vkgdr::Vkgdr;

use crate::Result;
use crate::place::is_of;
use support::Controls;
use support::codes;
use support::driver::is_real;
use support::state::State;
use support::test_all;

/// Excludes the codes of a destroyed context (DEINITIALIZED, INVALID_CONTEXT, CONTEXT_IS_DESTROYED): after those, CUDA
/// has freed its side already.
const CUDA_CODES: [i32; 2] = [codes::UNKNOWN, codes::OUT_OF_MEMORY];
const VULKAN_CODES: [i32; 3] =
    [codes::vulkan::OUT_OF_HOST_MEMORY, codes::vulkan::OUT_OF_DEVICE_MEMORY, codes::vulkan::INITIALIZATION_FAILED];
/// Of exhaustion and refusal one each: on a real driver a fault costs milliseconds.
const FEWER_VULKAN_CODES: [i32; 2] = [codes::vulkan::OUT_OF_HOST_MEMORY, codes::vulkan::INITIALIZATION_FAILED];
/// Vulkan's loader calls the first of each pair within the second, and returns its failure as the second's.
const INSIDE: [(&str, &str); 1] = [("vkEnumerateDeviceExtensionProperties", "vkCreateDevice")];
/// The calls that ask whether a context exists, where it is not current or is new: without an answer it counts as alive. And
/// those that ask whether memory of CUDA can be mapped, where Vulkan's cannot: without an answer it cannot.
const QUESTIONS: [&str; 7] = [
    "cuPointerGetAttributes",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease",
    "cuDriverGetVersion",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem",
];
/// The profile whose Vulkan device cannot share memory. Each open tries to create it again, and survives a failure.
const WITHOUT_DEVICE: &str = "no-external-memory";
/// An upper bound of the calls of any operation.
const ENDLESS: u64 = 200;

/// A driver with fault injection, and the codes to inject.
#[derive(Clone, Copy)]
pub(crate) struct Victim {
    pub(crate) name: &'static str,
    pub(crate) controls: &'static Controls,
    pub(crate) codes: &'static [i32],
}

/// The drivers of this process with fault injection. Prints the others, with reasons.
pub(crate) fn victims() -> Vec<Victim> {
    let cuda = support::simcuda().map(|sim| Victim { name: "cuda", controls: sim, codes: &CUDA_CODES });
    let codes: &[i32] = if is_real() || !test_all() { &FEWER_VULKAN_CODES } else { &VULKAN_CODES };
    let vulkan = support::vklayer().map(|layer| Victim { name: "vulkan", controls: layer, codes });
    if cuda.is_none() {
        eprintln!("skipped: CUDA's calls, since the driver is not the simulated one");
    }
    if vulkan.is_none() {
        eprintln!("skipped: Vulkan's calls, since VKGDR_TEST_LAYERS is neither faults nor validation");
    }
    cuda.into_iter().chain(vulkan).collect()
}

/// Names of driver functions.
type Names = Vec<&'static str>;

/// The expectations of an operation whose calls fail one by one.
pub(crate) struct Sweep<'a> {
    what: String,
    named: Names,
    survived: Names,
    incidental: Names,
    settle: Box<dyn Fn() + 'a>,
}

/// The functions that failed, and the number of attempts.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) named: BTreeSet<String>,
    pub(crate) survived: BTreeSet<String>,
    /// The driver calls that can fail in one run of the operation.
    pub(crate) calls: u64,
    pub(crate) faults: u64,
}

impl Seen {
    /// Prints the result.
    pub(crate) fn report(&self, what: &str) {
        println!("sweep calls={} faults={} what={what}", self.calls, self.faults);
    }
}

impl<'a> Sweep<'a> {
    pub(crate) fn of(what: impl Into<String>) -> Self {
        let [named, survived, incidental] = [(); 3].map(|()| Vec::new());
        Self { what: what.into(), named, survived, incidental, settle: Box::new(|| ()) }
    }

    /// Functions whose failure the operation's error must name: each must have failed.
    pub(crate) fn named(mut self, functions: &[&'static str]) -> Self {
        self.named.extend(functions);
        self
    }

    /// Functions whose failure the operation survives, since a drop cannot return it or nothing depends on it: each must have
    /// failed and been survived. No other may be survived.
    pub(crate) fn survived(mut self, functions: &[&'static str]) -> Self {
        self.survived.extend(functions);
        self
    }

    /// Further functions whose failure the operation may survive: they restore the current context, which is compared.
    pub(crate) fn incidental(mut self, functions: &[&'static str]) -> Self {
        self.incidental.extend(functions);
        self
    }

    /// What completes the operation's deferred work.
    pub(crate) fn settling(mut self, settle: impl Fn() + 'a) -> Self {
        self.settle = Box::new(settle);
        self
    }

    /// The handle that collects afterwards.
    pub(crate) fn collecting(self, gpu: &'a Vkgdr) -> Self {
        self.settling(|| _ = gpu.collect())
    }

    /// [`run`](Self::run) for what needs nothing, and whose result is dropped.
    #[track_caller]
    pub(crate) fn call<R>(&self, operate: impl Fn() -> vkgdr::Result<R>) -> Result {
        self.run(|| Ok(()), |()| operate(), |_| Ok(()))
    }

    /// [`run`](Self::run) for a drop of what `prepare` makes.
    #[track_caller]
    pub(crate) fn drop<P>(&self, prepare: impl Fn() -> Result<P>) -> Result {
        self.run(prepare, |_dropped| Ok(()), |()| Ok(()))
    }

    /// Sweeps `operate` on the result of `prepare`, with one injected fault at a time, and passes its result to
    /// `finish`.
    ///
    /// The first run has no fault, so that the drivers create their lasting objects before the state is compared.
    #[track_caller]
    pub(crate) fn run<P, R>(
        &self,
        prepare: impl Fn() -> Result<P>,
        operate: impl Fn(P) -> vkgdr::Result<R>,
        finish: impl Fn(R) -> Result,
    ) -> Result {
        finish(operate(prepare()?)?)?;
        (self.settle)();
        let mut seen = Seen::default();
        for victim in victims() {
            let mut most = 0;
            for &code in victim.codes {
                most = most.max(self.fail_each(victim, code, &mut seen, &prepare, &operate, &finish)?);
            }
            seen.calls += most;
        }
        self.check(&seen);
        Ok(())
    }

    /// Returns the number of calls that can fail.
    #[track_caller]
    fn fail_each<P, R>(
        &self,
        victim: Victim,
        code: i32,
        seen: &mut Seen,
        prepare: &impl Fn() -> Result<P>,
        operate: &impl Fn(P) -> vkgdr::Result<R>,
        finish: &impl Fn(R) -> Result,
    ) -> Result<u64> {
        // Where work is late, the number of questions whether it is done varies from run to run.
        let (mut quiet, enough) = (0, if is_of("late") { 5 } else { 1 });
        for nth in 1.. {
            assert!(nth < ENDLESS, "{}: {} calls and no end", self.what, victim.name);
            let before = State::take();
            let prepared = prepare()?;
            victim.controls.fail("*", nth, code);
            let result = operate(prepared);
            let fired = victim.controls.last_fault();
            victim.controls.clear_faults();
            let after_what = format!("{}, {} call {nth} ({fired:?}) failed with {code}", self.what, victim.name);
            judge(fired.as_deref(), code, result.as_ref().err(), seen, &after_what);
            if let Ok(value) = result {
                finish(value)?;
            }
            (self.settle)();
            State::assert_unchanged(&before, &after_what);
            if fired.is_some() {
                (quiet, seen.faults) = (0, seen.faults + 1);
                continue;
            }
            quiet += 1;
            if quiet == enough {
                return Ok(nth - quiet);
            }
        }
        Ok(0)
    }

    /// Fails a sweep in which no call failed. Prints the result.
    #[track_caller]
    pub(crate) fn check(&self, seen: &Seen) {
        let what = &self.what;
        let victims = victims();
        let reachable = |function: &str| {
            let driver = if function.starts_with("vk") { "vulkan" } else { "cuda" };
            victims.iter().any(|victim| victim.name == driver)
        };
        for function in self.named.iter().filter(|function| reachable(function)) {
            assert!(seen.named.contains(*function), "{what}: no error named {function}; named: {:?}", seen.named);
        }
        // Late work makes the numbers of later calls vary from run to run, so that a sweep may miss one.
        for function in self.survived.iter().filter(|function| reachable(function) && !is_of("late")) {
            assert!(seen.survived.contains(*function), "{what}: {function} was never survived: {:?}", seen.survived);
        }
        for function in &seen.survived {
            let allowed =
                self.survived.iter().chain(&self.incidental).chain(&QUESTIONS).any(|allowed| allowed == function);
            let looks_for_vulkan = function.starts_with("vk") && is_of(WITHOUT_DEVICE);
            assert!(allowed || looks_for_vulkan, "{what}: succeeded although {function} failed");
        }
        seen.report(what);
    }
}

/// Checks that the error names the function and keeps its code, and records the function as named or survived.
#[track_caller]
pub(crate) fn judge(fired: Option<&str>, code: i32, error: Option<&vkgdr::Error>, seen: &mut Seen, after_what: &str) {
    match (fired, error) {
        (None, None) => {}
        (None, Some(error)) => panic!("no call failed, but: {error} (after {after_what})"),
        (Some(function), None) => {
            seen.survived.insert(function.to_owned());
        }
        (Some(function), Some(error)) => {
            let text = error.to_string();
            let code_kept = error.cuda_code() == Some(code) || error.vulkan_code() == Some(code);
            let names = |name: &str| text.starts_with(&format!("{name} failed ("));
            let named = names(function) || INSIDE.iter().any(|&(inner, outer)| inner == function && names(outer));
            assert!(named, "{function} is not named: {text:?} (after {after_what})");
            assert!(!text.contains('\n'), "more than one line: {text:?}");
            assert!(code_kept, "{code} is not kept: {error:?} (after {after_what})");
            seen.named.insert(function.to_owned());
        }
    }
}
