//! One module: what it must export, and how it is called.
//!
//! A call puts the parameters and the input into the instance's memory, at places that the module's own `stere_allocate` gives, and
//! gets back where the answer lies. All hooks have one form: (parameters, their length, input, its length) -> answer. The answer is
//! a place (upper half) and a length (lower half); with the highest bit set it is not the answer but why there is none.

use std::fmt;

use stere_plugin::{Event, Events, PluginFailure, UserPlugin, Verdict};
use wasmtime::{
    Engine, ExternType, Instance, InstancePre, Linker, Memory, Store, StoreLimits, StoreLimitsBuilder, Trap,
};

use crate::limits::Limits;
use crate::one_line;

/// What this version of the interface is called.
const INTERFACE: u32 = 1;
/// Of a reason for refusing, what is told on.
const REASON_BYTES_MAX: usize = 1024;
const REFUSED: u64 = 1 << 63;

const ABI: &str = "stere_abi";
const ALLOCATE: &str = "stere_allocate";
const ENCODE: &str = "stere_encode";
const DECODE: &str = "stere_decode";
const EVENTS: &str = "stere_events";
const EVENT: &str = "stere_event";

/// A module that can be run.
pub(crate) struct Module {
    engine: Engine,
    limits: Limits,
    prepared: InstancePre<StoreLimits>,
    is_codec: bool,
    events: Events,
}

impl fmt::Debug for Module {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Module");
        shown.field("is_codec", &self.is_codec).field("events", &self.events).finish_non_exhaustive()
    }
}

/// An instance in the midst of a call.
struct Running {
    store: Store<StoreLimits>,
    instance: Instance,
    fuel: u64,
}

impl Module {
    /// Compiles a module, and finds out what it can do.
    pub fn load(engine: &Engine, limits: Limits, bytes: &[u8]) -> Result<Module, PluginFailure> {
        let refused = |why: String| Err(PluginFailure::Unloadable(why));
        let unloadable = |error: wasmtime::Error| PluginFailure::Unloadable(one_line(&error));
        if bytes.len() > limits.module_bytes {
            return refused(format!("it has {} bytes, and may have {}", bytes.len(), limits.module_bytes));
        }
        let module = wasmtime::Module::new(engine, bytes).map_err(unloadable)?;
        if let Some(import) = module.imports().next() {
            let (from, name) = (import.module().to_owned(), import.name().to_owned());
            return refused(format!("it imports {from}.{name}; a plugin is given nothing, so build it without"));
        }
        if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
            return refused("it exports no memory under the name 'memory'".into());
        }
        let has = |name: &str| module.get_export(name).is_some();
        let is_codec = has(ENCODE) || has(DECODE);
        if let Some(missing) = [ENCODE, DECODE].into_iter().find(|name| is_codec && !has(name)) {
            return refused(format!("it does not export {missing}; what encodes must decode, and the other way"));
        }
        let prepared = Linker::new(engine).instantiate_pre(&module).map_err(unloadable)?;
        let mut loaded = Module { engine: engine.clone(), limits, prepared, is_codec, events: Events::NONE };
        let interface = loaded.ask(ABI)?;
        if interface != INTERFACE {
            return refused(format!("it is written for interface {interface}, and this is {INTERFACE}"));
        }
        if has(EVENTS) || has(EVENT) {
            loaded.events = Events(loaded.ask(EVENTS)?);
            if !loaded.events.is_known() {
                return refused(format!("it asks for events {:#x}, some of which are not known", loaded.events.0));
            }
        }
        if !is_codec && loaded.events == Events::NONE {
            return refused(format!("it has no hook: neither {ENCODE} and {DECODE} nor {EVENTS} and {EVENT}"));
        }
        loaded.check_hooks()?;
        Ok(loaded)
    }

    /// That all hooks are functions of their form.
    fn check_hooks(&self) -> Result<(), PluginFailure> {
        let mut running = self.start(0)?;
        running.hook::<u32, u32>(ALLOCATE)?;
        let codec = if self.is_codec { &[ENCODE, DECODE][..] } else { &[] };
        let event = if self.events == Events::NONE { &[][..] } else { &[EVENT] };
        for name in codec.iter().chain(event) {
            running.hook::<(u32, u32, u32, u32), u64>(name)?;
        }
        Ok(())
    }

    /// A number that the module tells of itself.
    fn ask(&self, name: &str) -> Result<u32, PluginFailure> {
        let mut running = self.start(0)?;
        let hook = running.hook::<(), u32>(name)?;
        let answer = hook.call(&mut running.store, ());
        answer.map_err(|error| running.failure(&error))
    }

    /// A new instance, with fuel for a call of so many bytes.
    fn start(&self, bytes: usize) -> Result<Running, PluginFailure> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(self.limits.memory_bytes)
            .table_elements(self.limits.table_entries)
            .instances(1)
            .memories(1)
            .tables(1)
            .build();
        let mut store = Store::new(&self.engine, limits);
        store.limiter(|limits| limits);
        let fuel = self.limits.fuel(bytes);
        store.set_fuel(fuel).map_err(|error| PluginFailure::Unloadable(one_line(&error)))?;
        let instance = self.prepared.instantiate(&mut store).map_err(|error| failure(fuel, &error))?;
        Ok(Running { store, instance, fuel })
    }

    fn call(&self, hook: &str, parameters: &str, input: &[u8], bytes_max: usize) -> Result<Vec<u8>, PluginFailure> {
        let mut running = self.start(parameters.len() + input.len())?;
        let memory = running.memory()?;
        let parameters_at = running.put(memory, parameters.as_bytes())?;
        let input_at = running.put(memory, input)?;
        let hook = running.hook::<(u32, u32, u32, u32), u64>(hook)?;
        let arguments = (parameters_at, parameters.len() as u32, input_at, input.len() as u32);
        let answer = hook.call(&mut running.store, arguments).map_err(|error| running.failure(&error))?;
        let (place, length) = ((answer & !REFUSED) >> 32, answer & u64::from(u32::MAX));
        let is_refused = answer & REFUSED != 0;
        let bytes_max = if is_refused { self.limits.memory_bytes } else { bytes_max };
        if length > bytes_max as u64 {
            return Err(PluginFailure::Nonsense(format!("{length} bytes, of {bytes_max} that it may give")));
        }
        let range = place as usize..(place + length) as usize;
        let Some(bytes) = memory.data(&running.store).get(range) else {
            return Err(PluginFailure::Nonsense(format!("{length} bytes at {place}, which is not in its memory")));
        };
        if is_refused {
            let reason = &bytes[..bytes.len().min(REASON_BYTES_MAX)];
            return Err(PluginFailure::Refused(String::from_utf8_lossy(reason).replace(char::is_control, " ")));
        }
        Ok(bytes.to_vec())
    }
}

impl Running {
    fn failure(&self, error: &wasmtime::Error) -> PluginFailure {
        failure(self.fuel, error)
    }

    fn hook<Arguments, Answer>(&mut self, name: &str) -> Result<wasmtime::TypedFunc<Arguments, Answer>, PluginFailure>
    where
        Arguments: wasmtime::WasmParams,
        Answer: wasmtime::WasmResults,
    {
        let found = self.instance.get_typed_func(&mut self.store, name);
        found.map_err(|error| PluginFailure::Unloadable(format!("its hook {name}: {}", one_line(&error))))
    }

    fn memory(&mut self) -> Result<Memory, PluginFailure> {
        let memory = self.instance.get_memory(&mut self.store, "memory");
        memory.ok_or_else(|| PluginFailure::Unloadable("it exports no memory under the name 'memory'".into()))
    }

    /// Hands bytes over.
    fn put(&mut self, memory: Memory, bytes: &[u8]) -> Result<u32, PluginFailure> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let allocate = self.hook::<u32, u32>(ALLOCATE)?;
        let place = allocate.call(&mut self.store, bytes.len() as u32).map_err(|error| self.failure(&error))?;
        let range = place as usize..place as usize + bytes.len();
        let room = memory.data_mut(&mut self.store).get_mut(range).filter(|_| place != 0);
        let Some(room) = room else {
            let said = format!("{} bytes of room at {place}, which is not in its memory", bytes.len());
            return Err(PluginFailure::Nonsense(said));
        };
        room.copy_from_slice(bytes);
        Ok(place)
    }
}

fn failure(fuel: u64, error: &wasmtime::Error) -> PluginFailure {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => PluginFailure::TooLong { fuel },
        Some(trap) => PluginFailure::Trapped(trap.to_string()),
        None => PluginFailure::Trapped(one_line(error)),
    }
}

impl UserPlugin for Module {
    fn is_codec(&self) -> bool {
        self.is_codec
    }

    fn events(&self) -> Events {
        self.events
    }

    fn encode(&self, parameters: &str, content: &[u8], bytes_max: usize) -> Result<Vec<u8>, PluginFailure> {
        self.call(ENCODE, parameters, content, bytes_max)
    }

    fn decode(&self, parameters: &str, stored: &[u8], bytes_max: usize) -> Result<Vec<u8>, PluginFailure> {
        self.call(DECODE, parameters, stored, bytes_max)
    }

    fn judge(&self, parameters: &str, event: &Event<'_>) -> Result<Verdict, PluginFailure> {
        let answer = self.call(EVENT, parameters, &event.encode(), Verdict::NOTE_BYTES_MAX + 1)?;
        Verdict::decode(&answer)
    }
}

#[cfg(test)]
mod tests;
