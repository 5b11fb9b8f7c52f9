//! Users' plugins that the pool has, the stacks of them, and which stack a file has.
//!
//! What the pool says of them is put here by who reads it (naming); a plugin is loaded when it is first needed. Which stack a file has
//! is said by itself or by the nearest directory above that says anything. A pool without stacks pays one look at a flag.
//! Invariants: a stack that was once made stays as it is; what cannot be loaded is an error for who needs it and nobody else.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use stere_format::{InodeValue, PluginRecord, PluginStack};
use stere_plugin::{Events, Loader, Member, PluginFailure, Stack, StackFailure, UserPlugin};

/// What an inode says that shall have no plugins; what is above it is 1 + the number of a stack.
const NONE: u16 = 1;

/// The plugins and stacks of a pool.
#[derive(Default)]
pub struct Plugins {
    loader: Option<Arc<dyn Loader>>,
    has_stacks: AtomicBool,
    /// A stack came that nobody looked at yet.
    has_unseen: AtomicBool,
    has_followers: AtomicBool,
    known: Mutex<Known>,
    changes: Mutex<()>,
}

/// A stack, and the number, the record and the module of each plugin in it.
pub type StackParts = (PluginStack, Vec<(u16, PluginRecord, Arc<[u8]>)>);

#[derive(Default)]
struct Known {
    plugins: BTreeMap<u16, Plugin>,
    stacks: BTreeMap<u16, PluginStack>,
    made: BTreeMap<u16, Arc<Stack>>,
    /// What each stack wants to be told of afterwards.
    follows: BTreeMap<u16, Events>,
}

struct Plugin {
    record: PluginRecord,
    module: Arc<[u8]>,
    loaded: Option<Result<Arc<dyn UserPlugin>, PluginFailure>>,
}

impl fmt::Debug for Plugins {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Plugins").field("loader", &self.loader).finish_non_exhaustive()
    }
}

impl Plugins {
    /// None yet, loaded by this.
    pub fn new(loader: Option<Arc<dyn Loader>>) -> Plugins {
        Plugins { loader, ..Plugins::default() }
    }

    /// Whether any file could have plugins.
    pub fn has_stacks(&self) -> bool {
        self.has_stacks.load(Ordering::Acquire)
    }

    /// Held by who gives out numbers.
    pub fn changing(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    /// Loads a module, to see whether it is a plugin.
    pub fn try_module(&self, module: &[u8]) -> Result<Arc<dyn UserPlugin>, PluginFailure> {
        match &self.loader {
            Some(loader) => loader.load(module),
            None => Err(PluginFailure::Unloadable("this program runs no plugins".into())),
        }
    }

    /// Notes a plugin of the pool; of a removed one the record alone.
    pub fn put_plugin(&self, number: u16, record: PluginRecord, module: Arc<[u8]>) {
        self.known.lock().plugins.insert(number, Plugin { record, module, loaded: None });
    }

    /// Notes a stack of the pool.
    pub fn put_stack(&self, number: u16, stack: PluginStack) {
        self.known.lock().stacks.insert(number, stack);
        self.has_unseen.store(true, Ordering::Release);
        self.has_stacks.store(true, Ordering::Release);
    }

    /// All plugins that were ever there, by number.
    pub fn list(&self) -> Vec<(u16, PluginRecord)> {
        self.known.lock().plugins.iter().map(|(number, plugin)| (*number, plugin.record.clone())).collect()
    }

    /// The plugin that is meant by a name: the newest of those that were not removed.
    pub fn find(&self, name: &str) -> Option<u16> {
        let known = self.known.lock();
        let is_meant = |plugin: &Plugin| plugin.record.name == name && !plugin.record.is_removed;
        known.plugins.iter().rev().find(|(_, plugin)| is_meant(plugin)).map(|(number, _)| *number)
    }

    /// The stack of these plugins, if there is one already.
    pub fn find_stack(&self, stack: &PluginStack) -> Option<u16> {
        self.known.lock().stacks.iter().find(|(_, known)| *known == stack).map(|(number, _)| *number)
    }

    /// All stacks, by number.
    pub fn stacks(&self) -> Vec<(u16, PluginStack)> {
        self.known.lock().stacks.iter().map(|(number, stack)| (*number, stack.clone())).collect()
    }

    /// What a stack is made of: each plugin with its record and module.
    pub fn parts(&self, number: u16) -> Option<StackParts> {
        let known = self.known.lock();
        let stack = known.stacks.get(&number)?.clone();
        let part = |plugin: u16| {
            let known = known.plugins.get(&plugin)?;
            Some((plugin, known.record.clone(), known.module.clone()))
        };
        let parts = stack.members.iter().map(|member| part(member.plugin)).collect::<Option<Vec<_>>>()?;
        assert_eq!(parts.len(), stack.members.len(), "each plugin of a stack has its part");
        Some((stack, parts))
    }

    /// A stack as it is written: names with their parameters.
    pub fn text(&self, number: u16) -> Option<String> {
        let known = self.known.lock();
        let stack = known.stacks.get(&number)?;
        let texts = stack.members.iter().map(|member| {
            let plugin = known.plugins.get(&member.plugin);
            let name = plugin.map_or_else(|| format!("#{}", member.plugin), |plugin| plugin.record.name.clone());
            if member.parameters.is_empty() { name } else { format!("{name}:{}", member.parameters) }
        });
        Some(texts.collect::<Vec<_>>().join(","))
    }

    /// A stack, ready to be used. Plugins that were not needed before are loaded, which may take a while.
    pub fn stack(&self, number: u16) -> Result<Arc<Stack>, StackFailure> {
        let mut known = self.known.lock();
        if let Some(made) = known.made.get(&number) {
            return Ok(made.clone());
        }
        let stack = known.stacks.get(&number).cloned();
        let stack = stack.ok_or_else(|| unknown(format!("stack {number}"), "the pool does not have it"))?;
        let mut members = Vec::with_capacity(stack.members.len());
        for member in stack.members {
            let plugin = self.loaded(&mut known, member.plugin)?;
            let name = known.plugins.get(&member.plugin).map_or_else(String::new, |known| known.record.name.clone());
            members.push(Member { name, parameters: member.parameters, plugin });
        }
        let made = Arc::new(Stack { members });
        known.made.insert(number, made.clone());
        Ok(made)
    }

    /// Whether any stack wants to be told of anything afterwards. Looks at new stacks, which may take a while once.
    pub fn has_followers(&self) -> bool {
        if self.loader.is_some() && self.has_unseen.swap(false, Ordering::AcqRel) {
            let stacks: Vec<u16> = self.known.lock().stacks.keys().copied().collect();
            let any = stacks.into_iter().any(|number| self.follows(number) != Events::NONE);
            self.has_followers.store(any, Ordering::Release);
        }
        self.has_followers.load(Ordering::Acquire)
    }

    /// What a stack wants to be told of afterwards. Of one that cannot be loaded nobody knows, so all is kept for it; but nothing
    /// for one of which a plugin was removed.
    pub fn follows(&self, number: u16) -> Events {
        if number == 0 || self.is_removed(number) {
            return Events::NONE;
        }
        if let Some(known) = self.known.lock().follows.get(&number) {
            return *known;
        }
        let follows = self.stack(number).map_or(Events::FOLLOWED, |stack| stack.follows());
        self.known.lock().follows.insert(number, follows);
        follows
    }

    /// Whether a plugin of a stack was removed from the pool.
    pub fn is_removed(&self, number: u16) -> bool {
        let known = self.known.lock();
        let is_removed = |plugin: u16| known.plugins.get(&plugin).is_none_or(|plugin| plugin.record.is_removed);
        known.stacks.get(&number).is_none_or(|stack| stack.members.iter().any(|member| is_removed(member.plugin)))
    }

    /// A plugin, ready to be used.
    pub fn plugin(&self, number: u16) -> Result<Arc<dyn UserPlugin>, StackFailure> {
        self.loaded(&mut self.known.lock(), number)
    }

    fn loaded(&self, known: &mut Known, number: u16) -> Result<Arc<dyn UserPlugin>, StackFailure> {
        let plugin = known.plugins.get_mut(&number);
        let plugin = plugin.ok_or_else(|| unknown(format!("#{number}"), "the pool does not have it"))?;
        let name = || plugin.record.name.clone();
        if plugin.record.is_removed {
            return Err(unknown(name(), "it was removed from the pool"));
        }
        if plugin.loaded.is_none() {
            plugin.loaded = Some(self.try_module(&plugin.module));
        }
        match &plugin.loaded {
            Some(Ok(loaded)) => Ok(loaded.clone()),
            Some(Err(failure)) => Err(StackFailure { name: name(), failure: failure.clone() }),
            None => Err(unknown(name(), "it was not loaded")),
        }
    }

    /// The stack that records pass, if a file's stack has any hook for them. What cannot be loaded might.
    pub(crate) fn codecs(&self, number: u16) -> u16 {
        match number {
            0 => 0,
            _ if self.stack(number).is_ok_and(|stack| stack.is_transparent()) => 0,
            _ => number,
        }
    }
}

impl stere_policy::Stacks for Plugins {
    /// The newest that is written so and of which nothing was removed.
    fn stack(&self, text: &str) -> Option<u16> {
        let known = self.known.lock();
        let is_it = |stack: &PluginStack| {
            let mut written = text.split(',').map(str::trim);
            let are_all = stack.members.iter().all(|member| {
                let Some((name, parameters)) = written.next().map(|one| one.split_once(':').unwrap_or((one, "")))
                else {
                    return false;
                };
                let plugin = known.plugins.get(&member.plugin).filter(|plugin| !plugin.record.is_removed);
                plugin.is_some_and(|plugin| plugin.record.name == name) && member.parameters == parameters
            });
            are_all && written.next().is_none()
        };
        known.stacks.iter().rev().find(|(_, stack)| is_it(stack)).map(|(number, _)| *number)
    }
}

fn unknown(name: String, why: &str) -> StackFailure {
    StackFailure { name, failure: PluginFailure::Unloadable(why.into()) }
}

/// What an inode says itself: nothing, none (0), or the number of a stack.
pub fn own_stack(value: &InodeValue) -> Option<u16> {
    value.policy.map_or(0, |policy| policy.plugins).checked_sub(NONE)
}

/// Notes that.
pub fn set_own_stack(value: &mut InodeValue, stack: Option<u16>) {
    let mut policy = value.policy.unwrap_or_default();
    policy.plugins = stack.map_or(0, |stack| stack + NONE);
    value.policy = (policy != stere_format::InodePolicy::default()).then_some(policy);
    assert_eq!(own_stack(value), stack, "what is noted is read again");
}
