//! Devices, and their semaphores.
#![expect(unsafe_code, reason = "is called by the loader and calls the next layer")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::khr::{external_semaphore_fd, timeline_semaphore};
use ash::vk;

use super::instance::{ADDED, Instance, has};
use super::mirror::Timeline;
use super::shared::Shared;
use crate::dispatch::DeviceState;
use crate::interface::{extension_names, text};
use crate::next::{CreateDevice, NextDevice};
use crate::tables::Tables;
use simcommon::payload::{Kind, Payload};

/// All devices of the process.
pub(super) static DEVICES: Tables<Device> = Tables::new();

/// The layer's state of a device.
pub(super) struct Device {
    passive: bool,
    pub(super) next: NextDevice,
    /// Whether the application has enabled the extension.
    pub(super) enabled: bool,
    /// The driver's functions for descriptors of other types, where it has the extension itself.
    pub(super) of_driver: Option<external_semaphore_fd::DeviceFn>,
    semaphores: Mutex<BTreeMap<vk::Semaphore, Known>>,
    /// The number of shared semaphores, so that programs without them pay for one load.
    shared: AtomicUsize,
}

/// A semaphore of the application's.
pub(super) enum Known {
    /// The driver's alone.
    Plain(Kind),
    Shared(Arc<Shared>),
}

impl Device {
    /// A semaphore with a payload, over one of the driver's, that no one else has yet.
    pub(super) fn new_shared(&self, driver: vk::Semaphore, kind: Kind, payload: Payload) -> Arc<Shared> {
        let timeline = Timeline::new(self.next.fp_v1_2().clone(), self.next.handle, driver, payload);
        Arc::new(Shared::new(timeline, driver, kind))
    }

    /// Remembers a semaphore; returns what was shared under the handle before.
    pub(super) fn insert(&self, handle: vk::Semaphore, known: Known) -> Option<Arc<Shared>> {
        let mut semaphores = self.semaphores();
        let old = semaphores.insert(handle, known);
        self.count(&semaphores);
        shared(old)
    }

    /// Forgets a semaphore; returns what was shared.
    pub(super) fn remove(&self, handle: vk::Semaphore) -> Option<Arc<Shared>> {
        let mut semaphores = self.semaphores();
        let old = semaphores.remove(&handle);
        self.count(&semaphores);
        shared(old)
    }

    /// The shared semaphore of a handle.
    pub(super) fn find(&self, handle: vk::Semaphore) -> Option<Arc<Shared>> {
        if !self.shares() {
            return None;
        }
        match self.semaphores().get(&handle)? {
            Known::Plain(_) => None,
            Known::Shared(shared) => Some(Arc::clone(shared)),
        }
    }

    /// The type of a semaphore; that of a handle that is not known is the default.
    pub(super) fn kind(&self, handle: vk::Semaphore) -> Kind {
        match self.semaphores().get(&handle) {
            None => Kind::Binary,
            Some(Known::Plain(kind)) => *kind,
            Some(Known::Shared(shared)) => shared.kind,
        }
    }

    /// Whether there are shared semaphores.
    pub(super) fn shares(&self) -> bool {
        self.shared.load(Ordering::Acquire) > 0
    }

    /// All shared semaphores.
    pub(super) fn all_shared(&self) -> Vec<Arc<Shared>> {
        if !self.shares() {
            return Vec::new();
        }
        let shared = |known: &Known| match known {
            Known::Plain(_) => None,
            Known::Shared(shared) => Some(Arc::clone(shared)),
        };
        self.semaphores().values().filter_map(shared).collect()
    }

    fn semaphores(&self) -> MutexGuard<'_, BTreeMap<vk::Semaphore, Known>> {
        self.semaphores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, semaphores: &BTreeMap<vk::Semaphore, Known>) {
        let shared = semaphores.values().filter(|known| matches!(known, Known::Shared(_))).count();
        self.shared.store(shared, Ordering::Release);
    }
}

fn shared(known: Option<Known>) -> Option<Arc<Shared>> {
    match known? {
        Known::Plain(_) => None,
        Known::Shared(shared) => Some(shared),
    }
}

impl DeviceState for Device {
    type Instance = Instance;

    fn all() -> &'static Tables<Self> {
        &DEVICES
    }

    unsafe fn create(instance: &Instance, call: &CreateDevice<'_>) -> Result<Self, vk::Result> {
        let passive = crate::dispatch::InstanceState::is_passive(instance);
        // SAFETY: the caller's create info.
        let mut names =
            unsafe { extension_names(call.info.pp_enabled_extension_names, call.info.enabled_extension_count) };
        let named = |wanted| {
            // SAFETY: the names are terminated strings.
            move |name: &*const std::ffi::c_char| unsafe { text(*name) } == Some(wanted)
        };
        let enabled = !passive && names.iter().any(named(ADDED));
        let mut driver_has = false;
        if enabled {
            // SAFETY: the physical device is the instance's.
            driver_has = has(&unsafe { instance.of_driver(call.physical) }?, ADDED);
            if !driver_has {
                names.retain(|name| !named(ADDED)(name));
            }
            // For the semaphores of the driver beneath the shared ones.
            if !names.iter().any(named(timeline_semaphore::NAME)) {
                names.push(timeline_semaphore::NAME.as_ptr());
            }
        }
        // SAFETY: the caller's promise; the extensions are alive during the call.
        let next = unsafe { call.pass_on(&call.info.enabled_extension_names(&names)) }?;
        // SAFETY: a live device: it was just created.
        let of_driver = || external_semaphore_fd::DeviceFn::load(|name| unsafe { next.find(name) });
        let of_driver = driver_has.then(of_driver);
        let (semaphores, shared) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Self { passive, next, enabled, of_driver, semaphores, shared })
    }

    fn before_destroying(&self) {
        // Semaphores that the application leaked: their threads end before the device does.
        self.all_shared().iter().for_each(|shared| shared.stop());
    }

    fn next(&self) -> &NextDevice {
        &self.next
    }

    fn has_added_functions(&self) -> bool {
        self.enabled
    }

    fn is_passive(&self) -> bool {
        self.passive
    }
}
