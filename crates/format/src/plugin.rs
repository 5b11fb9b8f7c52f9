//! Users' plugins that a pool has, and the stacks of them that files have.
//!
//! A plugin is a record and its module, in pieces under the keys that follow; a stack names plugins by number. Neither is ever changed:
//! what was stored with it must be read with it. Invariants: a number is not used twice; the record of a removed plugin stays, its
//! module goes.

use crate::error::DecodeError;
use crate::wire::{Reader, Writer};

/// The value of [`crate::Key::plugin`] at piece 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginRecord {
    /// How people call it. The one with the greatest number of those of a name is meant by it.
    pub name: String,
    /// Bytes of the module.
    pub module_bytes: u32,
    pub added_seconds: i64,
    /// Nothing is stored with it any more, and its module is gone.
    pub is_removed: bool,
}

/// One plugin of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackMember {
    /// Which plugin.
    pub plugin: u16,
    pub parameters: String,
}

/// The value of [`crate::Key::plugin_stack`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PluginStack {
    /// The first one is nearest to the file.
    pub members: Vec<StackMember>,
}

const REMOVED: u8 = 1;

impl PluginRecord {
    pub const VERSION: u8 = 1;
    pub const NAME_BYTES_MAX: usize = 64;
    pub const MODULE_BYTES_MAX: u32 = 1 << 20;
    /// Bytes of a piece of a module, all but the last.
    pub const PIECE_BYTES: usize = 32 << 10;
    /// Before the name.
    pub const FIXED_BYTES: usize = 16;
    const STRUCTURE: &'static str = "plugin";

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::NAME_BYTES_MAX).contains(&self.name.len()), "a plugin's name has 1 to 64 bytes");
        assert!(self.module_bytes <= Self::MODULE_BYTES_MAX, "larger modules are refused before they get here");
        let mut out = Vec::with_capacity(Self::FIXED_BYTES + self.name.len());
        let flags = if self.is_removed { REMOVED } else { 0 };
        out.extend_from_slice(&[Self::VERSION, flags, self.name.len() as u8, 0]);
        out.put_u32(self.module_bytes);
        out.put_u64(self.added_seconds as u64);
        out.extend_from_slice(self.name.as_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let [flags, name_bytes] = reader.array()?;
        reader.zeros(1)?;
        reader.check(flags & !REMOVED == 0, "flags", u64::from(flags))?;
        let possible = (1..=Self::NAME_BYTES_MAX).contains(&usize::from(name_bytes));
        reader.check(possible, "name length", u64::from(name_bytes))?;
        let module_bytes = reader.u32()?;
        reader.check(module_bytes <= Self::MODULE_BYTES_MAX, "module length", u64::from(module_bytes))?;
        let added_seconds = reader.u64()? as i64;
        let name = reader.name(usize::from(name_bytes), "name")?;
        reader.finish()?;
        Ok(Self { name, module_bytes, added_seconds, is_removed: flags & REMOVED != 0 })
    }
}

impl PluginStack {
    pub const VERSION: u8 = 1;
    pub const MEMBERS_MAX: usize = 8;
    pub const PARAMETERS_BYTES_MAX: usize = 256;
    /// Before the members.
    pub const FIXED_BYTES: usize = 4;
    const STRUCTURE: &'static str = "stack of plugins";

    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=Self::MEMBERS_MAX).contains(&self.members.len()), "a stack has 1 to 8 plugins");
        let mut out = vec![Self::VERSION, self.members.len() as u8, 0, 0];
        for member in &self.members {
            assert!(member.plugin >= 1, "plugins are counted from 1");
            assert!(member.parameters.len() <= Self::PARAMETERS_BYTES_MAX, "longer parameters are refused before");
            out.put_u16(member.plugin);
            out.put_u16(member.parameters.len() as u16);
            out.extend_from_slice(member.parameters.as_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(Self::STRUCTURE, bytes);
        reader.version(Self::VERSION)?;
        let count = reader.u8()?;
        reader.zeros(2)?;
        reader.check((1..=Self::MEMBERS_MAX).contains(&usize::from(count)), "count of plugins", u64::from(count))?;
        let mut members = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let (plugin, length) = (reader.u16()?, usize::from(reader.u16()?));
            reader.check(plugin >= 1, "plugin", 0)?;
            reader.check(length <= Self::PARAMETERS_BYTES_MAX, "parameters length", length as u64)?;
            members.push(StackMember { plugin, parameters: reader.utf8(length, "parameters")? });
        }
        reader.finish()?;
        Ok(Self { members })
    }
}
