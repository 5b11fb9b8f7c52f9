//! Users' plugins at work: which the pool has, which a file has, and asking them before something is done to a file.
//!
//! Plugins and stacks lie in the tree and never change; what a directory says of them holds for everything below it from that moment
//! on. What is stored already is brought in line in the background, like any other policy. A plugin that fails is an error (EIO)
//! for the call that needed it, told with the file's path. A pool without stacks pays one look at a flag a call.
//! Read next: the crates plugin and sandbox, `crates/file/src/plugins.rs`, `docs/design/plugins.md`.

use std::sync::Arc;

use stere_file::{Plugins, own_stack};
use stere_format::{BlobValue, InodeValue, Key, PluginRecord, PluginStack, StackMember, key};
use stere_plugin::{EventKind, Events, PluginFailure, StackFailure};
use stere_store::Store;

use crate::call::Caller;
use crate::error::Error;
use crate::inode::Core;

/// The attribute that says which plugins.
pub const ATTRIBUTE: &[u8] = b"user.stere.plugins";
/// No plugins, as people write it.
pub const NONE: &[u8] = b"none";
/// Numbers of plugins and stacks end here.
const NUMBER_MAX: u16 = 60_000;

/// What there is to know of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginInfo {
    pub number: u16,
    pub name: String,
    pub module_bytes: u32,
    pub added_seconds: i64,
    /// Whether its name means it, and not a newer one.
    pub is_current: bool,
    /// What it does, or why it cannot be loaded.
    pub hooks: Result<PluginHooks, String>,
}

/// What a plugin does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginHooks {
    /// Turns records into something else.
    pub is_codec: bool,
    /// What it is asked before.
    pub events: Vec<&'static str>,
    /// What it is told of afterwards.
    pub follows: Vec<&'static str>,
}

/// Puts what the pool says of plugins where files find it. What is damaged is not there.
pub fn load(store: &Store, plugins: &Plugins) -> Result<(), Error> {
    let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
    let (mut records, mut modules, mut stacks) = (Vec::new(), Vec::<(u64, Vec<u8>)>::new(), Vec::new());
    store.for_each_key(from, to, |key, bytes| match (key.kind, key.position) {
        (key::kind::PLUGIN, 0) => {
            records.push((key.object, PluginRecord::decode(bytes)));
            modules.push((key.object, Vec::new()));
        }
        (key::kind::PLUGIN, _) => {
            if let Some((_, module)) = modules.last_mut().filter(|(number, _)| *number == key.object) {
                module.extend_from_slice(bytes);
            }
        }
        (key::kind::PLUGIN_STACK, 0) => stacks.push((key.object, PluginStack::decode(bytes))),
        _ => {}
    })?;
    for ((number, record), (_, mut module)) in records.into_iter().zip(modules) {
        match (u16::try_from(number), record) {
            (Ok(number), Ok(record)) => {
                module.truncate(record.module_bytes as usize);
                plugins.put_plugin(number, record, module.into());
            }
            (_, error) => tracing::error!(number, ?error, "the record of a plugin is damaged; it cannot be used"),
        }
    }
    for (number, stack) in stacks {
        match (u16::try_from(number), stack) {
            (Ok(number), Ok(stack)) => plugins.put_stack(number, stack),
            (_, error) => tracing::error!(number, ?error, "the record of a stack of plugins is damaged"),
        }
    }
    Ok(())
}

fn check_plugin_name(name: &str) -> Result<(), Error> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if name.is_empty() || name.len() > PluginRecord::NAME_BYTES_MAX || !is_plain || name.as_bytes() == NONE {
        return Err(Error::Invalid("a plugin's name is 1 to 64 letters, digits, '-', '_' and '.', and not none"));
    }
    Ok(())
}

/// The next number after those that were ever used.
fn next_number(last: Option<u16>) -> Result<u16, Error> {
    let number = last.unwrap_or(0).saturating_add(1);
    if number > NUMBER_MAX { Err(Error::TooMany("plugins in this pool")) } else { Ok(number) }
}

/// The plugins and stacks that a pool has.
pub struct PluginRegistry {
    pub core: Arc<Core>,
}

impl PluginRegistry {
    pub fn plugins(&self) -> &Arc<Plugins> {
        self.core.files.plugins()
    }

    /// All plugins that were not removed.
    pub fn plugin_list(&self) -> Vec<PluginInfo> {
        let living = self.plugins().list().into_iter().filter(|(_, record)| !record.is_removed);
        living
            .map(|(number, record)| {
                let PluginRecord { name, module_bytes, added_seconds, .. } = record;
                let is_current = self.plugins().find(&name) == Some(number);
                let loaded = self.plugins().plugin(number).map_err(|failure| failure.to_string());
                let words = |events: Events| {
                    EventKind::ALL.into_iter().filter(|kind| events.has(*kind)).map(EventKind::word).collect()
                };
                let hooks = loaded.map(|plugin| PluginHooks {
                    is_codec: plugin.is_codec(),
                    events: words(plugin.events()),
                    follows: words(plugin.follows()),
                });
                PluginInfo { number, name, module_bytes, added_seconds, is_current, hooks }
            })
            .collect()
    }

    /// Adds a plugin to the pool. From now on its name means it; stacks that have an older one of that name keep that.
    pub fn add_plugin(&self, caller: &Caller<'_>, name: &str, module: &[u8]) -> Result<u16, Error> {
        check_plugin_name(name)?;
        let loaded = if module.len() > PluginRecord::MODULE_BYTES_MAX as usize {
            Err(PluginFailure::Unloadable("a module has at most 1 MiB".into()))
        } else {
            self.plugins().try_module(module).map(drop)
        };
        loaded.map_err(|failure| Error::NoPlugin(StackFailure { name: name.into(), failure }))?;
        let _alone = self.plugins().changing();
        let number = next_number(self.plugins().list().last().map(|(number, _)| *number))?;
        assert_ne!(number, 0, "plugins are counted from 1");
        let pieces = module.chunks(PluginRecord::PIECE_BYTES).zip(1..);
        for (piece, at) in pieces {
            self.core.store.update(caller.io, |transaction| {
                transaction.put(Key::plugin(number, at), piece);
                Ok::<_, Error>(())
            })?;
        }
        // With the record it is there: what a crash leaves of pieces without one is written over by the next.
        let (module_bytes, added_seconds) = (module.len() as u32, caller.now.seconds);
        let record = PluginRecord { name: name.into(), module_bytes, added_seconds, is_removed: false };
        let bytes = record.encode();
        self.core.store.update(caller.io, |transaction| {
            transaction.put(Key::plugin(number, 0), &bytes);
            Ok::<_, Error>(())
        })?;
        self.core.store.commit(caller.io)?;
        self.plugins().put_plugin(number, record, module.into());
        Ok(number)
    }

    /// Removes all plugins of a name. Refused while something is stored with one, or a policy asks for it.
    pub fn remove_plugin(&self, caller: &Caller<'_>, name: &str) -> Result<(), Error> {
        let _alone = self.plugins().changing();
        let is_meant = |record: &PluginRecord| record.name == name && !record.is_removed;
        let meant: Vec<_> = self.plugins().list().into_iter().filter(|(_, record)| is_meant(record)).collect();
        if meant.is_empty() {
            return Err(Error::Invalid("the pool has no plugin of this name; see `stere plugin list`"));
        }
        let has_it = |stack: &PluginStack| {
            stack.members.iter().any(|member| meant.iter().any(|(number, _)| *number == member.plugin))
        };
        // What was encoded elsewhere before the policy changed is entered, and counts.
        self.core.files.direct_writes.wait_for_all(caller.io)?;
        let stacks: Vec<u16> =
            self.plugins().stacks().into_iter().filter(|(_, stack)| has_it(stack)).map(|(number, _)| number).collect();
        let (records, policies) = self.stack_use(&stacks)?;
        if (records, policies) != (0, 0) {
            let used = format!("{records} records passed it, and {policies} policies ask for it");
            return Err(Error::PluginInUse { name: name.into(), used });
        }
        for (number, record) in meant {
            let record = PluginRecord { is_removed: true, ..record };
            let bytes = record.encode();
            let pieces = (record.module_bytes as usize).div_ceil(PluginRecord::PIECE_BYTES) as u64;
            self.core.store.update(caller.io, |transaction| {
                transaction.put(Key::plugin(number, 0), &bytes);
                (1..=pieces).for_each(|piece| transaction.delete(Key::plugin(number, piece)));
                Ok::<_, Error>(())
            })?;
            self.plugins().put_plugin(number, record, Arc::new([]));
        }
        Ok(self.core.store.commit(caller.io)?)
    }

    /// Records that passed one of these stacks, and files and directories that ask for one, from what is stored.
    fn stack_use(&self, stacks: &[u16]) -> Result<(u64, u64), Error> {
        let tree = |tree: u8| (Key::new(tree, 0, 0, 0), Key::new(tree + 1, 0, 0, 0));
        let (mut records, mut policies) = (0, 0);
        let (from, to) = tree(key::tree::BLOBS);
        self.core.store.for_each_key(from, to, |_, bytes| {
            records += u64::from(BlobValue::decode(bytes).is_ok_and(|value| stacks.contains(&value.stack)));
        })?;
        let (from, to) = tree(key::tree::NAMES);
        self.core.store.for_each_key(from, to, |key, bytes| {
            if key.kind == key::kind::INODE {
                let Ok(value) = InodeValue::decode(bytes) else { return };
                let ruled = stere_file::rule_decision(&value).plugins().map(|plugins| plugins - 1);
                let locked = stere_file::own_locks(&value).plugins.checked_sub(1);
                let asks =
                    [own_stack(&value), ruled, locked].into_iter().flatten().any(|asked| stacks.contains(&asked));
                policies += u64::from(asks);
            }
        })?;
        let classes = self.core.files.resolver().classes();
        let by_class = |definition: &stere_policy::Definition| {
            definition.own.plugins.checked_sub(1).is_some_and(|stack| stacks.contains(&stack))
        };
        policies += classes.in_use().filter(|(_, definition)| by_class(definition)).count() as u64;
        Ok((records, policies))
    }

    /// Sees to it that every stack there is which these texts name, so that rules and classes can mean it.
    pub fn make_stacks(&self, caller: &Caller<'_>, texts: &[String]) -> Result<(), Error> {
        for text in texts {
            self.stack_of_text(caller, text.as_bytes())?;
        }
        Ok(())
    }

    /// What a class or a rule says of plugins, as in `Own`.
    pub fn plugins_wish(&self, caller: &Caller<'_>, text: &str) -> Result<u16, Error> {
        match text {
            "" => Ok(0),
            "none" => Ok(1),
            _ => Ok(self.stack_of_text(caller, text.as_bytes())? + 1),
        }
    }

    /// The other way.
    pub fn plugins_wish_text(&self, plugins: u16) -> Option<String> {
        plugins.checked_sub(1).map(|stack| String::from_utf8_lossy(&self.stack_text(stack)).into_owned())
    }

    /// The number of the stack that a text means: names of plugins, each with its parameters behind a colon.
    pub fn stack_of_text(&self, caller: &Caller<'_>, text: &[u8]) -> Result<u16, Error> {
        let bad = |why: &str| {
            let (key, value) = ("plugins", String::from_utf8_lossy(text).into_owned());
            tracing::info!(value, why, "plugins that were asked for are refused");
            let expected = stere_policy::PLUGINS_EXPECTED;
            Error::Policy(stere_policy::PolicyError::BadValue { key, value, expected })
        };
        let written = std::str::from_utf8(text).map_err(|_| bad("it is no text"))?;
        let mut members = Vec::new();
        for one in written.split(',').map(str::trim) {
            let (name, parameters) = one.split_once(':').unwrap_or((one, ""));
            let plugin = self.plugins().find(name).ok_or_else(|| bad("the pool has no such plugin"))?;
            if parameters.len() > PluginStack::PARAMETERS_BYTES_MAX || parameters.contains(char::is_control) {
                return Err(bad("parameters are at most 256 bytes of text"));
            }
            members.push(StackMember { plugin, parameters: parameters.into() });
        }
        if members.len() > PluginStack::MEMBERS_MAX {
            return Err(bad("there are too many"));
        }
        let stack = PluginStack { members };
        let _alone = self.plugins().changing();
        let number = match self.plugins().find_stack(&stack) {
            Some(number) => number,
            None => {
                let number = next_number(self.plugins().stacks().last().map(|(number, _)| *number))?;
                assert_ne!(number, 0, "0 stands for no plugins");
                let bytes = stack.encode();
                self.core.store.update(caller.io, |transaction| {
                    transaction.put(Key::plugin_stack(number), &bytes);
                    Ok::<_, Error>(())
                })?;
                self.plugins().put_stack(number, stack);
                number
            }
        };
        self.plugins().stack(number).map_err(Error::NoPlugin)?;
        Ok(number)
    }

    pub fn stack_text(&self, stack: u16) -> Vec<u8> {
        self.plugins().text(stack).map_or_else(|| NONE.to_vec(), String::into_bytes)
    }
}

/// The last name of a path.
pub fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}
