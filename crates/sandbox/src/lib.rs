//! Users' plugins: WebAssembly modules, run where they can reach nothing.
//!
//! A module may import nothing, so it has no clock, no randomness, no files and no network; all it sees is what a call hands over.
//! Each call gets a new instance, which is thrown away after it: nothing is carried from one record, file or user to another, and
//! equal calls give equal answers. Memory, table entries, stack and steps (fuel) are bounded; whoever needs more ends with an error.
//! There are no signal handlers: bounds are checked in the code that is made, so that a plugin's trap is never the process's.
//!
//! Invariants: no module's answer is believed before it was checked to lie in its memory; no failure of a module is a panic.
//! Read next: `module.rs`, and `docs/design/plugins.md` for what a module exports.

mod limits;
mod module;

use std::fmt;
use std::sync::Arc;

use stere_plugin::{Loader, PluginFailure, UserPlugin};
use wasmtime::{Config, Engine, OptLevel};

pub use limits::Limits;

/// Loads modules, and holds them to its limits.
pub struct Sandbox {
    engine: Engine,
    limits: Limits,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sandbox").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// One that holds modules to these limits.
    pub fn new(limits: Limits) -> Result<Sandbox, PluginFailure> {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            .cranelift_opt_level(OptLevel::Speed)
            .max_wasm_stack(limits.stack_bytes)
            // Equal calls give equal answers, on every machine.
            .cranelift_nan_canonicalization(true)
            .wasm_relaxed_simd(false)
            // Small memories out of the heap: a new one for each call costs little, and none reserves gigabytes of addresses.
            .signals_based_traps(false)
            .memory_reservation(0)
            .memory_guard_size(0)
            .memory_init_cow(false)
            // What a module can be is what every tool makes, and no more.
            .wasm_memory64(false)
            .wasm_multi_memory(false)
            .wasm_tail_call(false);
        let engine = Engine::new(&config).map_err(|error| PluginFailure::Unloadable(one_line(&error)))?;
        Ok(Sandbox { engine, limits })
    }
}

impl Loader for Sandbox {
    fn load(&self, module: &[u8]) -> Result<Arc<dyn UserPlugin>, PluginFailure> {
        Ok(Arc::new(module::Module::load(&self.engine, self.limits, module)?))
    }
}

/// An error and its causes.
fn one_line(error: &wasmtime::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}
