//! Facts about an inode's policy and data, answered by reading attributes that are never listed.

use std::collections::BTreeSet;

use stere_file::inode_if_any;
use stere_policy::{Computed, Setting, Source};

use crate::error::Error;
use crate::{Caller, FileSystem};

impl FileSystem {
    /// The value of a computed attribute.
    pub(crate) fn computed(&self, caller: &Caller<'_>, inode: u64, computed: Computed) -> Result<Vec<u8>, Error> {
        match computed {
            Computed::Effective(setting) => self.effective_setting(caller, inode, setting),
            Computed::Source(setting) => self.source_of(caller, inode, setting),
            Computed::State => self.state(caller, inode),
            Computed::Where => self.devices(caller, inode),
            Computed::Survives => self.survives(caller, inode),
            // Everything lies on local devices as long as there is no tertiary storage.
            Computed::Residency => Ok(b"online".to_vec()),
        }
    }

    fn effective(&self, caller: &Caller<'_>, inode: u64) -> Result<stere_policy::Effective, Error> {
        self.store.view(caller.wait, |view| {
            let value = inode_if_any(view, inode)?.ok_or(Error::Stale)?;
            Ok(self.files.effective(view, inode, &value)?)
        })
    }

    fn effective_setting(&self, caller: &Caller<'_>, inode: u64, setting: Setting) -> Result<Vec<u8>, Error> {
        let effective = self.effective(caller, inode)?;
        let value = effective.value(setting, self.files.device_count()).ok_or(Error::NoAttribute)?;
        Ok(value.into_bytes())
    }

    fn source_of(&self, caller: &Caller<'_>, inode: u64, setting: Setting) -> Result<Vec<u8>, Error> {
        let text = match self.effective(caller, inode)?.source(setting) {
            Source::Pool => "default class of the pool".to_owned(),
            Source::Inode(number) if number == inode => "set here".to_owned(),
            Source::Inode(number) => format!("inherited from directory with inode {number}"),
        };
        Ok(text.into_bytes())
    }

    fn state(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let effective = self.effective(caller, inode)?;
        let wanted = self.files.scheme_now(&effective);
        let facts = self.files.stored_facts(&caller.context(), inode)?;
        let pending: u64 = facts.iter().filter(|fact| fact.scheme != wanted).map(|fact| fact.bytes).sum();
        if pending > 0 {
            return Ok(format!("pending {pending} bytes").into_bytes());
        }
        let (survives, wished) = (wanted.parity, effective.wish.scheme.survives());
        if survives < wished {
            let devices = self.files.device_count();
            let why = format!("impossible: surviving {wished} device losses needs more than {devices} devices");
            return Ok(why.into_bytes());
        }
        Ok(b"compliant".to_vec())
    }

    fn survives(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let facts = self.files.stored_facts(&caller.context(), inode)?;
        let stored = facts.iter().map(|fact| fact.scheme.parity).min();
        let survives = match stored {
            Some(survives) => survives,
            // Nothing is stored yet: what new data would get.
            None => self.files.scheme_now(&self.effective(caller, inode)?).parity,
        };
        Ok(survives.to_string().into_bytes())
    }

    fn devices(&self, caller: &Caller<'_>, inode: u64) -> Result<Vec<u8>, Error> {
        let facts = self.files.stored_facts(&caller.context(), inode)?;
        let indices: BTreeSet<u16> = facts.iter().flat_map(|fact| fact.devices.iter().copied()).collect();
        let entries = self.store.device_entries();
        let names = indices.iter().map(|index| {
            let entry = entries.iter().find(|entry| entry.index == *index);
            entry.map_or_else(|| format!("device {index}"), |entry| entry.name.clone())
        });
        Ok(names.collect::<Vec<_>>().join(" ").into_bytes())
    }
}
