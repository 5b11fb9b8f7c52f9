//! Asking a file's plugins before something is done to it: they allow it, deny it (EPERM), or allow it and have something noted.
//!
//! What is noted lies in the attribute `user.plugin.NAME` of the file, NAME being the plugin's; a later note replaces it. The kernel
//! answers reads and gathers writes out of its own memory, so plugins hear of what reaches the file system, not of each call.

use std::sync::Arc;

use stere_file::{Keys, inode_if_any};
use stere_format::InodeValue;
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::plugins::{PluginRegistry, last_name};
use stere_plugin::{Event, EventKind, Judged, Stack};

/// What is to be noted with a file that is not there yet.
#[derive(Default)]
pub struct Notes(pub Vec<(String, Vec<u8>)>);

/// What is to be done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Doing<'a> {
    pub offset: u64,
    pub length: u64,
    /// The name, where the caller knows it.
    pub name: &'a [u8],
    pub new_name: &'a [u8],
}

/// Asks the plugins of a file before something is done to it.
pub struct PluginEvents {
    pub core: Arc<Core>,
    pub registry: Arc<PluginRegistry>,
}

impl PluginEvents {
    /// The stack of an inode, if one of it wants to hear of this, and the inode.
    #[inline]
    fn listeners(
        &self,
        caller: &Caller<'_>,
        kind: EventKind,
        inode: u64,
    ) -> Result<Option<(std::sync::Arc<Stack>, InodeValue)>, Error> {
        if !self.registry.plugins().has_stacks() {
            return Ok(None);
        }
        let (number, value) = self.core.store.view(caller.io, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            Ok::<_, Error>((self.stack_number(view, inode, &value)?, value))
        })?;
        if number == 0 {
            return Ok(None);
        }
        let stack = self.registry.plugins().stack(number);
        let stack = stack.inspect_err(|failure| self.core.tell(caller.io, inode, failure)).map_err(Error::Plugin)?;
        if !stack.events().has(kind) {
            return Ok(None);
        }
        if !caller.io.may_block() {
            // Those who call without waiting have others to serve.
            return Err(Error::WouldBlock);
        }
        Ok(Some((stack, value)))
    }

    fn stack_number(&self, keys: &impl Keys, inode: u64, value: &InodeValue) -> Result<u16, Error> {
        Ok(self.core.files.policies.effective(keys, inode, value)?.plugins)
    }

    fn ask(&self, caller: &Caller<'_>, inode: u64, stack: &Stack, event: &Event<'_>) -> Result<Notes, Error> {
        match stack.judge(event) {
            Ok(Judged::Allowed { notes }) => Ok(Notes(notes)),
            Ok(Judged::Denied { name, why }) => {
                let file = String::from_utf8_lossy(event.name).into_owned();
                tracing::info!(plugin = name, file, event = event.kind.word(), why, "denied");
                Err(Error::NotPermitted("a plugin of the file denies it; the log tells which, and why"))
            }
            Err(failure) => {
                self.core.tell(caller.io, inode, &failure);
                Err(Error::Plugin(failure))
            }
        }
    }

    /// Asks before something is done to a file that is there; gives what is to be noted with it, if anybody was asked.
    #[inline]
    pub fn judge(
        &self,
        caller: &Caller<'_>,
        kind: EventKind,
        inode: u64,
        doing: Doing<'_>,
    ) -> Result<Option<Notes>, Error> {
        let Some((stack, value)) = self.listeners(caller, kind, inode)? else { return Ok(None) };
        let path = if doing.name.is_empty() { self.core.path_of(caller.io, inode)? } else { Vec::new() };
        let name = if doing.name.is_empty() { last_name(&path) } else { doing.name };
        let (user, group, size) = (caller.uid, caller.gid, value.size);
        let Doing { offset, length, new_name, .. } = doing;
        let event = Event { kind, user, group, offset, length, size, name, new_name };
        self.ask(caller, inode, &stack, &event).map(Some)
    }

    /// Asks before something is made in a directory.
    pub fn judge_new(&self, caller: &Caller<'_>, directory: u64, name: &[u8]) -> Result<Notes, Error> {
        let kind = EventKind::Create;
        let Some((stack, _)) = self.listeners(caller, kind, directory)? else { return Ok(Notes::default()) };
        let (user, group) = (caller.uid, caller.gid);
        let event = Event { kind, user, group, offset: 0, length: 0, size: 0, name, new_name: b"" };
        self.ask(caller, directory, &stack, &event)
    }
}
