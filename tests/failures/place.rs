//! The two places of an allocation: a plain context that is current, and the primary context retained by the handle.

use support::cuda::Context;
use vkgdr::{OpenFlags, Vkgdr};

use crate::Result;

/// A handle and the context of its allocations.
pub(crate) struct Place {
    pub(crate) name: &'static str,
    pub(crate) gpu: Vkgdr,
    // Last: the handle's memory is in this context.
    context: Option<Context>,
}

impl Place {
    /// In a plain context, which becomes current on this thread.
    pub(crate) fn plain(flags: OpenFlags) -> Result<Self> {
        let context = Context::create(0);
        Ok(Self { name: "plain context", gpu: Vkgdr::open(0, flags)?, context: Some(context) })
    }

    /// In the primary context, with none current on this thread.
    pub(crate) fn primary(flags: OpenFlags) -> Result<Self> {
        Ok(Self { name: "primary context", gpu: Vkgdr::open_primary_context(0, flags)?, context: None })
    }

    /// Runs `work` with the context of allocations current, if it is a plain one.
    pub(crate) fn inside<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.context {
            Some(context) => context.with_current(work),
            None => work(),
        }
    }

    /// Runs a check in each place, one after the other.
    pub(crate) fn each(flags: OpenFlags, check: impl Fn(&Self) -> Result) -> Result {
        check(&Self::plain(flags)?)?;
        check(&Self::primary(flags)?)
    }
}

/// Whether the GPU is that of a device profile.
pub(crate) fn is_of(profile: &str) -> bool {
    std::env::var("VKGDR_TEST_PROFILE").is_ok_and(|name| name == profile)
}
