//! `SIMCUDA_WEAK=SEED`: kernels see and show global memory as late, and in as many orders, as PTX's memory model allows
//! between a device and the CPU.
//!
//! A store stays in a buffer, from which stores arrive in any order (those to one word in the program's), until a fence of
//! the scope of the system. A weak load may be served from the line that an earlier one fetched, also until such a fence. Threads of
//! one launch share the buffer and what was fetched, so that they see each other's stores at once; other kernels, copies and
//! the CPU do not. The seed and the number of the launch choose the order.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ptx::{Fault, Launch, Memory, Scope};

use super::view::View;
use crate::settings::settings;
use crate::sync::lock;

/// The most stores in a buffer.
const ROOM: usize = 64;

/// The bytes of a line of the first-level cache (CUDA programming guide, "Device Memory Accesses").
const LINE: u64 = 128;

static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Runs a launch, over weak memory if the environment asks for it.
pub(crate) fn run(launch: &Launch, view: &View) -> Result<(), Fault> {
    let Some(seed) = settings().weak else { return ptx::run(launch, view) };
    let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let weak = Weak { view, state: Mutex::new(State { random: seed | 1 << 63, ..State::default() }) };
    let outcome = ptx::run(launch, &weak);
    lock(&weak.state).drain(view);
    outcome
}

struct Weak<'v> {
    view: &'v View,
    state: Mutex<State>,
}

struct Store {
    address: u64,
    bytes: u32,
    value: u64,
}

impl Store {
    fn word(&self) -> u64 {
        word(self.address)
    }
}

/// The aligned 8 bytes that contain an access.
fn word(address: u64) -> u64 {
    address & !7
}

#[derive(Default)]
struct State {
    stores: Vec<Store>,
    /// Words that weak loads fetched.
    fetched: HashMap<u64, u64>,
    random: u64,
}

impl State {
    /// A number below a limit (xorshift).
    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % limit.max(1) as u64).unwrap_or(0)
    }

    /// Lets a store arrive: the oldest one to the word of any.
    fn arrive(&mut self, view: &View) {
        let chosen = self.below(self.stores.len());
        let Some(word) = self.stores.get(chosen).map(Store::word) else { return };
        if let Some(oldest) = self.stores.iter().position(|store| store.word() == word) {
            let store = self.stores.remove(oldest);
            // Memory that was freed meanwhile takes nothing.
            let _ = view.store(store.address, store.bytes, store.value);
        }
    }

    /// Fetches the words of a line, apart from those that the launch has stored since.
    fn fetch_line(&mut self, view: &View, address: u64) {
        let first = address & !(LINE - 1);
        for word in (first..first + LINE).step_by(8) {
            if self.stores.iter().all(|store| store.word() != word)
                && let Some(value) = view.load(word, 8)
            {
                self.fetched.entry(word).or_insert(value);
            }
        }
    }

    /// Lets all stores arrive.
    fn drain(&mut self, view: &View) {
        while !self.stores.is_empty() {
            self.arrive(view);
        }
    }

    /// Lets the stores to a word arrive, in their order, before the launch accesses it again.
    fn settle(&mut self, view: &View, address: u64) {
        while let Some(at) = self.stores.iter().position(|store| store.word() == word(address)) {
            let store = self.stores.remove(at);
            let _ = view.store(store.address, store.bytes, store.value);
        }
        // Now and then a store arrives by itself, so that a kernel that waits for the CPU is heard.
        if self.below(4) == 0 {
            self.arrive(view);
        }
    }
}

impl Memory for Weak<'_> {
    fn load(&self, address: u64, bytes: u32) -> Option<u64> {
        let mut state = lock(&self.state);
        state.settle(self.view, address);
        self.view.load(address, bytes)
    }

    fn load_weak(&self, address: u64, bytes: u32) -> Option<u64> {
        let mut state = lock(&self.state);
        state.settle(self.view, address);
        // Checks the address, too.
        let value = self.view.load(address, bytes)?;
        let fetched = match state.fetched.get(&word(address)) {
            Some(fetched) => *fetched,
            None => {
                // None where the allocation ends within the word.
                let Some(fetched) = self.view.load(word(address), 8) else { return Some(value) };
                if state.below(2) == 0 {
                    state.fetch_line(self.view, address);
                }
                fetched
            }
        };
        Some(fetched >> (8 * (address & 7)) & u64::MAX >> (64 - 8 * bytes))
    }

    fn store(&self, address: u64, bytes: u32, value: u64) -> Option<()> {
        let mut state = lock(&self.state);
        // A store that faults does so at once.
        self.view.load(address, bytes)?;
        state.fetched.remove(&word(address));
        state.stores.push(Store { address, bytes, value });
        if state.stores.len() > ROOM {
            state.arrive(self.view);
        }
        Some(())
    }

    fn update(&self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        let mut state = lock(&self.state);
        state.settle(self.view, address);
        state.fetched.remove(&word(address));
        self.view.update(address, bytes, change)
    }

    fn fence(&self, scope: Scope) {
        if scope == Scope::System {
            let mut state = lock(&self.state);
            state.drain(self.view);
            state.fetched.clear();
        }
        self.view.fence(scope);
    }

    fn allocate(&self, bytes: u64) -> Option<u64> {
        self.view.allocate(bytes)
    }

    fn release(&self, address: u64) -> Option<()> {
        lock(&self.state).drain(self.view);
        self.view.release(address)
    }

    fn interrupted(&self) -> bool {
        self.view.interrupted()
    }
}
