//! A file's own stack of users' plugins: applied one after the other when a record is written, undone the other way round.
//!
//! Invariant: what [`Stack::encode`] gives was decoded again, and was what it had been, before anybody stores it. A plugin that
//! loses data is found out when it is told to write, and not when somebody reads.

use std::sync::Arc;

use crate::user::{Event, Events, PluginFailure, Reading, UserPlugin, Verdict};

/// Plugins that a stack can have.
pub const PLUGINS_MAX: usize = 8;

/// A plugin with the parameters that a file gives it.
#[derive(Debug, Clone)]
pub struct Member {
    /// For people.
    pub name: String,
    pub parameters: String,
    pub plugin: Arc<dyn UserPlugin>,
}

/// Plugins in their order.
#[derive(Debug, Clone, Default)]
pub struct Stack {
    /// The first one is nearest to the file.
    pub members: Vec<Member>,
}

/// A plugin that failed, by its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plugin '{name}' {failure}")]
pub struct StackFailure {
    pub name: String,
    pub failure: PluginFailure,
}

impl Member {
    fn named(&self, failure: PluginFailure) -> StackFailure {
        StackFailure { name: self.name.clone(), failure }
    }
}

/// Bytes that a record of so many can become: a sector more for each block, so that room can be reserved for it.
pub fn encoded_bytes_max(content_bytes: usize) -> usize {
    content_bytes + content_bytes.div_ceil(stere_format::BLOCK_BYTES) * (stere_format::SECTOR_BYTES / 2)
}

impl Stack {
    /// Whether records pass it as they are.
    pub fn is_transparent(&self) -> bool {
        !self.members.iter().any(|member| member.plugin.is_codec())
    }

    /// The events that any of them wants to hear of.
    pub fn events(&self) -> Events {
        self.members.iter().fold(Events::NONE, |all, member| all.and(member.plugin.events()))
    }

    /// The events that any of them wants to be told of afterwards.
    pub fn follows(&self) -> Events {
        self.members.iter().fold(Events::NONE, |all, member| all.and(member.plugin.follows()))
    }

    /// Tells them what was done to a file, one after the other. Gives the notes, with whose they are.
    pub fn follow(&self, event: &Event<'_>, read: &mut Reading<'_>) -> Result<Vec<(String, Vec<u8>)>, StackFailure> {
        let mut notes = Vec::new();
        for member in self.members.iter().filter(|member| member.plugin.follows().has(event.kind)) {
            match member.plugin.follow(&member.parameters, event, read).map_err(|why| member.named(why))? {
                Verdict::Allow => {}
                Verdict::Deny(why) => return Err(member.named(PluginFailure::Refused(why))),
                Verdict::Annotate(note) => notes.push((member.name.clone(), note)),
            }
        }
        Ok(notes)
    }

    fn codecs(&self) -> impl DoubleEndedIterator<Item = &Member> {
        self.members.iter().filter(|member| member.plugin.is_codec())
    }

    /// What is stored in place of a record.
    pub fn encode(&self, content: &[u8]) -> Result<Vec<u8>, StackFailure> {
        let bytes_max = encoded_bytes_max(content.len());
        let mut bytes = content.to_vec();
        for member in self.codecs() {
            let encoded =
                member.plugin.encode(&member.parameters, &bytes, bytes_max).map_err(|why| member.named(why))?;
            check_undone(member, &encoded, &bytes)?;
            bytes = encoded;
        }
        Ok(bytes)
    }

    /// The record again, which is as long as `out`.
    pub fn decode(&self, stored: &[u8], out: &mut [u8]) -> Result<(), StackFailure> {
        let bytes_max = encoded_bytes_max(out.len());
        let mut bytes = stored.to_vec();
        let mut last = None;
        for member in self.codecs().rev() {
            bytes = member.plugin.decode(&member.parameters, &bytes, bytes_max).map_err(|why| member.named(why))?;
            last = Some(member);
        }
        if bytes.len() != out.len() {
            let said = format!("{} bytes of a record that has {}", bytes.len(), out.len());
            let name = last.map_or_else(|| "none".to_owned(), |member| member.name.clone());
            return Err(StackFailure { name, failure: PluginFailure::Nonsense(said) });
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }

    /// What they say of an event, in their order: the first that denies it ends it. Gives the notes, with whose they are.
    pub fn judge(&self, event: &Event<'_>) -> Result<Judged, StackFailure> {
        let mut notes = Vec::new();
        for member in self.members.iter().filter(|member| member.plugin.events().has(event.kind)) {
            match member.plugin.judge(&member.parameters, event).map_err(|why| member.named(why))? {
                Verdict::Allow => {}
                Verdict::Deny(why) => return Ok(Judged::Denied { name: member.name.clone(), why }),
                Verdict::Annotate(note) => notes.push((member.name.clone(), note)),
            }
        }
        Ok(Judged::Allowed { notes })
    }
}

/// What a whole stack says of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    Allowed { notes: Vec<(String, Vec<u8>)> },
    Denied { name: String, why: String },
}

fn check_undone(member: &Member, encoded: &[u8], content: &[u8]) -> Result<(), StackFailure> {
    let lost = |why: String| member.named(PluginFailure::LosesData(why));
    match member.plugin.decode(&member.parameters, encoded, encoded_bytes_max(content.len())) {
        Ok(decoded) if decoded == content => Ok(()),
        Ok(decoded) if decoded.len() != content.len() => {
            Err(lost(format!("{} bytes became {}", content.len(), decoded.len())))
        }
        Ok(decoded) => {
            let at = decoded.iter().zip(content).position(|(one, other)| one != other).unwrap_or(0);
            Err(lost(format!("from byte {at} on")))
        }
        Err(why) => Err(lost(format!("it {why}"))),
    }
}

#[cfg(test)]
mod tests;
