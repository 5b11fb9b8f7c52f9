//! One module: what it must export, and how it is called.
//!
//! A call puts the parameters and the input into the instance's memory, at places that the module's own `stere_allocate` gives, and
//! gets back where the answer lies. All hooks have one form: (parameters, their length, input, its length) -> answer. The answer is
//! a place (upper half) and a length (lower half); with the highest bit set it is not the answer but why there is none.
//!
//! Only who is told afterwards what was done to a file is called several times: its answer may ask for content (a byte 3, offset,
//! length), which it then gets in the same instance (`stere_content`), until it says what came of it. So there is no function of
//! stere's in a module's reach here either.

use std::fmt;

use stere_plugin::{Event, Events, PluginFailure, Reading, UserPlugin, Verdict};
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
const AFTER_EVENTS: &str = "stere_after_events";
const AFTER: &str = "stere_after";
const CONTENT: &str = "stere_content";
/// Begins an answer that asks for content.
const WANTS: u8 = 3;
const WANT_BYTES: usize = 13;
/// Content that is handed over at once.
const PIECE_BYTES: usize = 128 << 10;
/// What asking for a little counts as, so that nobody asks for ever.
const PIECE_BYTES_MIN: u64 = 4 << 10;

/// A module that can be run.
pub(crate) struct Module {
    engine: Engine,
    limits: Limits,
    prepared: InstancePre<StoreLimits>,
    is_codec: bool,
    events: Events,
    follows: Events,
}

impl fmt::Debug for Module {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Module");
        shown.field("is_codec", &self.is_codec).field("events", &self.events).field("follows", &self.follows);
        shown.finish_non_exhaustive()
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
        let (events, follows) = (Events::NONE, Events::NONE);
        let mut loaded = Module { engine: engine.clone(), limits, prepared, is_codec, events, follows };
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
        if has(AFTER_EVENTS) || has(AFTER) {
            loaded.follows = Events(loaded.ask(AFTER_EVENTS)?);
            if !loaded.follows.is_within(Events::FOLLOWED) {
                let asked = loaded.follows.0;
                return refused(format!(
                    "it asks to be told of events {asked:#x} afterwards; that can be create, close, rename and delete"
                ));
            }
        }
        if !is_codec && loaded.events == Events::NONE && loaded.follows == Events::NONE {
            let events = format!("{EVENTS} and {EVENT}");
            return refused(format!(
                "it has no hook: neither {ENCODE} and {DECODE} nor {events} nor {AFTER_EVENTS} and {AFTER}"
            ));
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
        let after = if self.follows == Events::NONE { &[][..] } else { &[AFTER] };
        for name in codec.iter().chain(event).chain(after) {
            running.hook::<(u32, u32, u32, u32), u64>(name)?;
        }
        if self.follows != Events::NONE {
            running.hook::<(u32, u32), u64>(CONTENT)?;
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
        running.call(hook, parameters, input, bytes_max)
    }

    /// Tells it of an event, and gives it what content it asks for, until it says what came of that.
    fn tell(&self, parameters: &str, event: &Event<'_>, read: &mut Reading<'_>) -> Result<Verdict, PluginFailure> {
        let input = event.encode();
        let mut running = self.start(parameters.len() + input.len())?;
        let mut answer = running.call(AFTER, parameters, &input, Verdict::NOTE_BYTES_MAX + 1)?;
        let (mut place, mut piece) = (None, vec![0; PIECE_BYTES]);
        let mut left = event.size.saturating_mul(2).saturating_add(1 << 20);
        while let Some((offset, length)) = wanted(&answer) {
            let length = (length as usize).min(PIECE_BYTES);
            let Some(rest) = left.checked_sub((length as u64).max(PIECE_BYTES_MIN)) else {
                return Err(PluginFailure::Nonsense("it asks for content again and again".into()));
            };
            left = rest;
            let given = read(offset, &mut piece[..length]).map_err(PluginFailure::Unreadable)?;
            let memory = running.memory()?;
            let at = match place {
                Some(at) => at,
                None => running.room(memory, PIECE_BYTES)?,
            };
            place = Some(at);
            running.refuel(self.limits.fuel(given))?;
            running.write(memory, at, &piece[..given])?;
            let hook = running.hook::<(u32, u32), u64>(CONTENT)?;
            let told = hook.call(&mut running.store, (at, given as u32)).map_err(|error| running.failure(&error))?;
            answer = running.answer(memory, told, Verdict::NOTE_BYTES_MAX + 1)?;
        }
        Verdict::decode(&answer)
    }
}

/// Which content an answer asks for: from where on, and how much.
fn wanted(answer: &[u8]) -> Option<(u64, u32)> {
    let bytes: &[u8; WANT_BYTES] = answer.try_into().ok()?;
    let (code, rest) = bytes.split_first()?;
    let (offset, length) = rest.split_first_chunk::<8>()?;
    let length: &[u8; 4] = length.try_into().ok()?;
    (*code == WANTS).then(|| (u64::from_le_bytes(*offset), u32::from_le_bytes(*length)))
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

    /// Calls a hook. The memory is asked for anew each time, for it may have grown.
    fn call(&mut self, hook: &str, parameters: &str, input: &[u8], bytes_max: usize) -> Result<Vec<u8>, PluginFailure> {
        let memory = self.memory()?;
        let parameters_at = self.put(memory, parameters.as_bytes())?;
        let input_at = self.put(memory, input)?;
        let hook = self.hook::<(u32, u32, u32, u32), u64>(hook)?;
        let arguments = (parameters_at, parameters.len() as u32, input_at, input.len() as u32);
        let answer = hook.call(&mut self.store, arguments).map_err(|error| self.failure(&error))?;
        self.answer(memory, answer, bytes_max)
    }

    /// What lies where an answer says.
    fn answer(&self, memory: Memory, answer: u64, bytes_max: usize) -> Result<Vec<u8>, PluginFailure> {
        let (place, length) = ((answer & !REFUSED) >> 32, answer & u64::from(u32::MAX));
        let is_refused = answer & REFUSED != 0;
        // Why it refuses may be as long as it likes; what is told on is cut.
        let bytes_max = if is_refused { memory.data_size(&self.store) } else { bytes_max };
        if length > bytes_max as u64 {
            return Err(PluginFailure::Nonsense(format!("{length} bytes, of {bytes_max} that it may give")));
        }
        let range = place as usize..(place + length) as usize;
        let Some(bytes) = memory.data(&self.store).get(range) else {
            return Err(PluginFailure::Nonsense(format!("{length} bytes at {place}, which is not in its memory")));
        };
        if is_refused {
            let reason = &bytes[..bytes.len().min(REASON_BYTES_MAX)];
            return Err(PluginFailure::Refused(String::from_utf8_lossy(reason).replace(char::is_control, " ")));
        }
        Ok(bytes.to_vec())
    }

    /// Steps for one more call.
    fn refuel(&mut self, fuel: u64) -> Result<(), PluginFailure> {
        self.fuel = fuel;
        self.store.set_fuel(fuel).map_err(|error| PluginFailure::Unloadable(one_line(&error)))
    }

    /// Hands bytes over.
    fn put(&mut self, memory: Memory, bytes: &[u8]) -> Result<u32, PluginFailure> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let place = self.room(memory, bytes.len())?;
        self.write(memory, place, bytes)?;
        Ok(place)
    }

    /// Room for so many bytes, as the module gives it.
    fn room(&mut self, memory: Memory, bytes: usize) -> Result<u32, PluginFailure> {
        let allocate = self.hook::<u32, u32>(ALLOCATE)?;
        let place = allocate.call(&mut self.store, bytes as u32).map_err(|error| self.failure(&error))?;
        let is_inside = place != 0 && place as usize + bytes <= memory.data_size(&self.store);
        match is_inside {
            true => Ok(place),
            false => Err(outside(bytes, place)),
        }
    }

    fn write(&mut self, memory: Memory, place: u32, bytes: &[u8]) -> Result<(), PluginFailure> {
        let range = place as usize..place as usize + bytes.len();
        let room = memory.data_mut(&mut self.store).get_mut(range).ok_or_else(|| outside(bytes.len(), place))?;
        room.copy_from_slice(bytes);
        Ok(())
    }
}

fn outside(bytes: usize, place: u32) -> PluginFailure {
    PluginFailure::Nonsense(format!("{bytes} bytes of room at {place}, which is not in its memory"))
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

    fn follows(&self) -> Events {
        self.follows
    }

    fn follow(&self, parameters: &str, event: &Event<'_>, read: &mut Reading<'_>) -> Result<Verdict, PluginFailure> {
        self.tell(parameters, event, read)
    }
}

#[cfg(test)]
mod tests;
