//! [`Pending`]: the device work that a release waits for, where it cannot wait at once.
#![forbid(unsafe_code)]

use crate::Result;
use crate::device::deferred_frees::WaitScope;
use crate::driver::context::{Context, Entered};
use crate::driver::cuda::cuda;
use crate::driver::raw_event::RawEvent;
use crate::report::report;
use crate::stream::binding::DropPolicy;

/// After a release that waited for its context, scans may wait for that context, too.
pub(crate) fn wait_scope_after<T>(released: &Result<T>, policy: DropPolicy, context: Context) -> WaitScope {
    match policy {
        DropPolicy::WaitForContext if released.is_ok() => WaitScope::Context(context),
        _ => WaitScope::None,
    }
}

/// The work that a release waits for.
pub(super) enum Awaited {
    Event(RawEvent),
    /// All work of the context and of these others: waiting for it failed for a reason that may pass, such as a stream
    /// capture.
    Contexts(Vec<Context>),
}

impl Awaited {
    /// Does not wait, unless `scope` covers `context` and the others.
    fn is_complete(&self, context: Context, scope: WaitScope) -> Result<bool> {
        match self {
            Self::Event(event) => event.is_complete(),
            Self::Contexts(others) => {
                let mut contexts = others.iter().chain([&context]);
                if contexts.all(|&context| scope.covers(context)) {
                    self.synchronize().map(|()| true)
                } else {
                    Ok(false)
                }
            }
        }
    }

    /// In the context of the release, which must be current.
    pub(super) fn synchronize(&self) -> Result<()> {
        match self {
            Self::Event(event) => event.synchronize(),
            Self::Contexts(others) => {
                others.iter().try_for_each(|other| other.finish())?;
                cuda()?.context_synchronize()
            }
        }
    }

    /// Forgets what CUDA destroyed with the context.
    pub(super) fn abandon(&mut self) {
        if let Self::Event(event) = self {
            event.abandon();
        }
    }
}

/// Work of a context that the device may not have finished.
pub(crate) struct Pending {
    pub(super) awaited: Awaited,
    pub(super) context: Context,
}

impl Pending {
    /// Whether the device has finished, as far as that can be known without a wait that is not allowed.
    pub(crate) fn is_finished(&self, scope: WaitScope) -> bool {
        self.ask(|awaited| awaited.is_complete(self.context, scope))
    }

    /// Waits for the device. False when that fails for a reason that may pass.
    pub(crate) fn wait(&self) -> bool {
        self.ask(|awaited| awaited.synchronize().map(|()| true))
    }

    /// Runs `question` in the context. An error that ends the context counts as true, since its work has ended with it;
    /// any other as false.
    fn ask(&self, question: impl FnOnce(&Awaited) -> Result<bool>) -> bool {
        let answer = match self.context.try_enter() {
            Ok(Entered::Current(_guard)) => question(&self.awaited),
            Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => Ok(true),
            Err(error) => Err(error),
        };
        answer.unwrap_or_else(|error| {
            report!(Debug, "deferred free: {error}");
            error.is_fatal_to_context()
        })
    }

    /// Releases what the wait needed, in the context.
    #[cfg(feature = "vulkan")]
    pub(crate) fn end(mut self) {
        match self.context.try_enter() {
            Ok(Entered::Current(_guard)) => drop(self.awaited),
            Ok(Entered::Destroyed(_) | Entered::ShutDown(_)) => self.awaited.abandon(),
            // The device has finished, so that this is safe in whatever context is current.
            Err(_) => drop(self.awaited),
        }
    }
}
