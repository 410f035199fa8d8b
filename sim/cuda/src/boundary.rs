//! The entry to every driver function. Each is declared with `exports!` and runs through [`call`], which counts the
//! call, injects failures, refuses calls before `cuInit` and inside a host function, and stops panics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::call;
use crate::code::{Outcome, SUCCESS, UNKNOWN};
use crate::control;
use crate::control::site::{Policy, Site};
use crate::graph::capture;
use crate::settings::settings;

/// Runs the body of an exported function.
pub(crate) fn call(site: &Site, body: impl FnOnce() -> Outcome) -> i32 {
    // A forked child has no driver, and may find the locks of the controls held by threads that it does not have.
    let injected = if call::is_forked() { None } else { control::enter(site) };
    match (injected, site.policy()) {
        (Some(code), Policy::Release) => {
            run(site, body);
            code
        }
        (Some(code), _) => code,
        (None, _) => run(site, body),
    }
}

fn run(site: &Site, body: impl FnOnce() -> Outcome) -> i32 {
    call::set_name(site.name());
    let checked = matches!(site.policy(), Policy::Plain | Policy::Release | Policy::Missing);
    if let Some(code) = checked.then(call::check).and_then(Result::err) {
        return code;
    }
    if site.policy() == Policy::Missing && site.first_time() {
        say_missing(site);
    }
    if let Err(code) = capture::check_call(site) {
        return code;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => UNKNOWN,
    }
}

// One line for each function, since programs rarely print the name of the call that failed.
fn say_missing(site: &Site) {
    say(format_args!("{} is not simulated: CUDA_ERROR_NOT_SUPPORTED", site.name()));
}

/// Says on stderr what is not simulated. `SIMCUDA_QUIET=1` is for programs that only ask what there is.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    if settings().quiet {
        return;
    }
    simcommon::say!("simcuda: {line}");
}

/// Declares exported functions: one C function for each name, all with the same body, each with an entry in
/// [`SITES`](crate::control::site::SITES).
///
/// `cuMemFree_v2 => free(pointer: usize), Release;` makes a symbol `cuMemFree_v2` that runs `free(pointer)`.
/// Argument types are those of the C prototype, with pointers as `ffi` types, and enums as `u32`.
macro_rules! exports {
    (@entry $names:tt $body:ident $args:tt) => { exports!(@entry $names $body $args Plain); };
    (@entry [$($name:ident)+] $body:ident $args:tt $policy:ident) => {
        $( exports!(@function $name $body $args $policy); )+
    };
    (@function $name:ident $body:ident ($($arg:ident: $type:ty),*) $policy:ident) => {
        #[expect(unsafe_code, reason = "a C symbol of the driver API")]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            #[linkme::distributed_slice($crate::control::site::SITES)]
            static SITE: $crate::control::site::Site = $crate::control::site::Site::new(
                stringify!($name),
                $crate::control::site::Policy::$policy,
                || $name as *const () as usize,
            );
            $crate::boundary::call(&SITE, || $body($($arg),*))
        }
    };
    ($( $($name:ident),+ => $body:ident $args:tt $(, $policy:ident)? ; )+) => {
        $( exports!(@entry [$($name)+] $body $args $($policy)?); )+
    };
}
pub(crate) use exports;
