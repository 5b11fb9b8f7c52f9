//! What this machine may believe of names and attributes: answers of the owner with a lease, until it says that they change.
//!
//! The kernel believes little by itself (attributes and names of directories for a second), because it cannot be made to forget a name
//! without waiting for locks that its own calls hold. So it asks here, which costs no way to the owner. The owner waits with a change until
//! this side has heard of it; hearing waits for nobody. An answer that is on its way while something is recalled is not believed.
//!
//! Invariants: nothing is believed for longer than [`LEASE_SECONDS`] after the owner was last known to hear this side, which is sooner than
//! it would go on without it; nor of an inode that the kernel does not know; what this machine itself changes is forgotten when the
//! change is sent and when it is answered. Read next: `state.rs`; `crates/owner/src/leases.rs` is the other side.

use std::collections::{HashMap, VecDeque};

use fuse_wire::abi::structs::{AttrOut, EntryOut, FileAttr, split};
use fuse_wire::{Operation, raw};
use stere_format::DirentValue;
use stere_machine_wire::{LEASE_SECONDS, Notice};
use zerocopy::IntoBytes;

#[cfg(test)]
mod tests;

const LEASE_MS: u64 = LEASE_SECONDS * 1000;
/// For so long the kernel believes attributes and names of directories.
const KERNEL_MS: u64 = 1000;
/// What changes without a request (blocks that a file takes, times of reading elsewhere) is seen after this.
const BELIEVED_MS: u64 = 4000;
/// Names and inodes; then all are forgotten.
const KNOWN_MAX: usize = 256 << 10;
/// Inodes share places in the table of what was recalled.
const PLACES: u64 = 1 << 12;

#[derive(Debug, Clone, Copy)]
enum Named {
    Node { node: u64, generation: u64 },
    Absent,
}

#[derive(Debug, Clone, Copy)]
struct Name {
    named: Named,
    until_ms: u64,
}

/// What is known of the names in a directory.
#[derive(Debug, Default)]
struct Directory {
    names: HashMap<Vec<u8>, Name>,
    /// Until then there is no name that is not here: this machine has made the directory, and all names in it.
    complete_until_ms: u64,
    /// Changes of names by this machine that are under way.
    changing: u32,
}

#[derive(Debug, Clone, Copy)]
struct Attributes {
    attributes: FileAttr,
    until_ms: u64,
}

/// What is leased.
#[derive(Debug)]
pub(crate) struct Leased {
    names: HashMap<u64, Directory>,
    attributes: HashMap<u64, Attributes>,
    count: usize,
    /// Rises with all that is recalled or changed here.
    sequence: u64,
    recalled: Box<[u64]>,
    /// Answers to what was asked before this are of another connection.
    since: u64,
    /// When pings were sent that are not answered.
    asked_ms: VecDeque<u64>,
    /// When the last one was sent that was answered.
    heard_ms: Option<u64>,
}

impl Default for Leased {
    fn default() -> Leased {
        Leased {
            names: HashMap::new(),
            attributes: HashMap::new(),
            count: 0,
            sequence: 0,
            recalled: vec![0; PLACES as usize].into_boxed_slice(),
            since: 0,
            asked_ms: VecDeque::new(),
            heard_ms: None,
        }
    }
}

/// A part of an answer.
enum Told<'a> {
    Attributes(u64, FileAttr),
    Name(u64, &'a [u8], &'a EntryOut),
}

/// Tells all that an answer tells of names and attributes.
fn each_told(operation: &Operation<'_>, code: u32, answer: &[u8], mut each: impl FnMut(Told<'_>)) {
    match *operation {
        Operation::Getattr { node, .. } | Operation::Setattr { node, .. } => {
            let told = split::<AttrOut>(answer);
            told.into_iter().for_each(|(told, _)| each(Told::Attributes(node, told.attr)));
        }
        Operation::Lookup { parent, name }
        | Operation::Create { parent, name, .. }
        | Operation::Mknod { parent, name, .. }
        | Operation::Mkdir { parent, name, .. }
        | Operation::Symlink { parent, name, .. }
        | Operation::Link { new_parent: parent, new_name: name, .. }
            if !matches!(name, b"." | b"..") =>
        {
            raw::each_entry(code, answer, |_, entry| each(Told::Name(parent, name, entry)));
        }
        Operation::Readdirplus { node, .. } => raw::each_entry(code, answer, |name, entry| {
            if let Some(name) = name.filter(|name| entry.nodeid != 0 && !matches!(*name, b"." | b"..")) {
                each(Told::Name(node, name, entry));
            }
        }),
        _ => {}
    }
}

/// Whether the owner notes the next read, as far as this side can tell: times of access move when something was changed since.
fn is_atime_due(attributes: &FileAttr) -> bool {
    let FileAttr { atime, atimensec, mtime, mtimensec, ctime, ctimensec, .. } = *attributes;
    (atime.cast_signed(), atimensec) <= (mtime.cast_signed(), mtimensec).max((ctime.cast_signed(), ctimensec))
}

impl Leased {
    /// The time at which a question is sent, for `learn`.
    pub fn now(&self) -> u64 {
        self.sequence
    }

    /// Nothing is believed any more: the connection is gone, or another one.
    pub fn clear(&mut self) {
        self.forget_all();
        self.sequence += 1;
        self.since = self.sequence;
        self.asked_ms.clear();
        self.heard_ms = None;
    }

    fn forget_all(&mut self) {
        self.names.clear();
        self.attributes.clear();
        self.count = 0;
    }

    /// The owner is asked whether it hears this side.
    pub fn asks(&mut self, now_ms: u64) {
        self.asked_ms.push_back(now_ms);
    }

    /// It does.
    pub fn heard(&mut self) {
        if let Some(asked_ms) = self.asked_ms.pop_front() {
            assert!(self.heard_ms.is_none_or(|before| before <= asked_ms), "pings are answered in their order");
            self.heard_ms = Some(asked_ms);
        }
    }

    /// For how long the kernel may believe what is leased now; 0: nothing is.
    pub fn believed_ms(&self, now_ms: u64) -> u64 {
        assert!(self.heard_ms.is_none_or(|heard| heard <= now_ms), "the clock goes on");
        let left = self.heard_ms.map_or(0, |heard| (heard + LEASE_MS).saturating_sub(now_ms));
        if left == 0 { 0 } else { KERNEL_MS }
    }

    /// The answer to a request, if it is leased.
    pub fn answer(&self, now_ms: u64, operation: &Operation<'_>) -> Option<Vec<u8>> {
        if self.believed_ms(now_ms) == 0 {
            return None;
        }
        match *operation {
            Operation::Lookup { parent, name } => match self.named(now_ms, parent, name)? {
                Named::Absent => Some(EntryOut::default().as_bytes().to_vec()),
                Named::Node { node, generation } => {
                    let attr = self.attributes_of(now_ms, node)?;
                    Some(EntryOut { nodeid: node, generation, attr, ..EntryOut::default() }.as_bytes().to_vec())
                }
            },
            Operation::Getattr { node, .. } => {
                let attr = self.attributes_of(now_ms, node)?;
                Some(AttrOut { attr, ..AttrOut::default() }.as_bytes().to_vec())
            }
            _ => None,
        }
    }

    fn named(&self, now_ms: u64, directory: u64, name: &[u8]) -> Option<Named> {
        let directory = self.names.get(&directory)?;
        match directory.names.get(name) {
            Some(known) => (now_ms < known.until_ms).then_some(known.named),
            None if now_ms < directory.complete_until_ms && directory.changing == 0 => {
                // Names with a dot may be there without having been made, and the owner says of others that they are too long.
                (!name.starts_with(b".") && name.len() <= DirentValue::NAME_BYTES_MAX).then_some(Named::Absent)
            }
            None => None,
        }
    }

    fn attributes_of(&self, now_ms: u64, node: u64) -> Option<FileAttr> {
        let known = self.attributes.get(&node).filter(|known| now_ms < known.until_ms)?;
        Some(known.attributes)
    }

    /// Whether the answer with a lease to what was asked at `since` may be believed: nothing that it tells was recalled or changed since.
    pub fn may_learn(&self, (now_ms, since): (u64, u64), operation: &Operation<'_>, code: u32, answer: &[u8]) -> bool {
        assert!(since <= self.sequence, "asked at {since}, and it is {}", self.sequence);
        if since < self.since || self.believed_ms(now_ms) == 0 {
            return false;
        }
        let mut may = operation.changed().inodes().all(|node| !self.is_recalled(node, since));
        each_told(operation, code, answer, |told| match told {
            Told::Attributes(node, _) => may &= !self.is_recalled(node, since),
            Told::Name(directory, _, entry) => {
                may &= !self.is_recalled(directory, since) && !self.is_recalled(entry.nodeid, since);
            }
        });
        may
    }

    /// Believes an answer.
    pub fn learn(&mut self, now_ms: u64, operation: &Operation<'_>, code: u32, answer: &[u8]) {
        assert!(self.believed_ms(now_ms) > 0, "an answer is believed while the owner hears this side");
        let until_ms = now_ms + BELIEVED_MS;
        each_told(operation, code, answer, |told| match told {
            Told::Attributes(node, attributes) => self.learn_attributes(node, attributes, until_ms),
            Told::Name(directory, name, entry) => {
                self.learn_entry(directory, name, entry, until_ms);
                if let Operation::Mkdir { .. } = operation {
                    self.names.entry(entry.nodeid).or_default().complete_until_ms = until_ms;
                }
            }
        });
    }

    pub fn is_recalled(&self, node: u64, since: u64) -> bool {
        self.recalled[(node % PLACES) as usize] > since
    }

    fn learn_attributes(&mut self, node: u64, attributes: FileAttr, until_ms: u64) {
        self.count += usize::from(self.attributes.insert(node, Attributes { attributes, until_ms }).is_none());
        self.bound();
    }

    fn learn_entry(&mut self, directory: u64, name: &[u8], entry: &EntryOut, until_ms: u64) {
        let named = match entry.nodeid {
            0 => Named::Absent,
            node => {
                self.learn_attributes(node, entry.attr, until_ms);
                Named::Node { node, generation: entry.generation }
            }
        };
        let names = &mut self.names.entry(directory).or_default().names;
        self.count += usize::from(names.insert(name.to_vec(), Name { named, until_ms }).is_none());
        self.bound();
    }

    fn bound(&mut self) {
        if self.count > KNOWN_MAX {
            self.forget_all();
        }
        assert!(self.count <= KNOWN_MAX, "{} names and inodes are known", self.count);
    }

    fn note_recalled(&mut self, node: u64) {
        self.sequence += 1;
        self.recalled[(node % PLACES) as usize] = self.sequence;
    }

    fn drop_attributes(&mut self, node: u64) {
        self.count -= usize::from(self.attributes.remove(&node).is_some());
    }

    fn drop_name(&mut self, directory: u64, name: &[u8]) {
        if let Some(known) = self.names.get_mut(&directory) {
            self.count -= usize::from(known.names.remove(name).is_some());
        }
    }

    /// The owner says that something changes. Whoever hears that content has changed was told before that attributes would.
    pub fn recall(&mut self, notice: &Notice) {
        match notice {
            Notice::Inode { offset: 0.., .. } => {}
            Notice::Inode { node, .. } => self.change_attributes(*node),
            Notice::Entry { parent, name } => {
                self.change_name(*parent, name);
                self.is_incomplete(*parent);
            }
        }
    }

    /// Attributes change, by whomever.
    pub fn change_attributes(&mut self, node: u64) {
        self.note_recalled(node);
        self.drop_attributes(node);
    }

    fn change_name(&mut self, directory: u64, name: &[u8]) {
        self.note_recalled(directory);
        self.drop_name(directory, name);
    }

    fn is_incomplete(&mut self, directory: u64) {
        self.names.entry(directory).and_modify(|known| known.complete_until_ms = 0);
    }

    /// This machine asks for something: what that may change is forgotten.
    pub fn begin(&mut self, operation: &Operation<'_>) {
        self.note(operation);
        for (directory, _) in operation.changed().names {
            self.names.entry(directory).and_modify(|known| known.changing += 1);
        }
    }

    /// It has the answer: done, and believed, or not.
    pub fn end(&mut self, operation: &Operation<'_>, is_done: bool, is_believed: bool) {
        self.note(operation);
        let is_removed = is_done && matches!(operation, Operation::Unlink { .. } | Operation::Rmdir { .. });
        for (directory, _) in operation.changed().names {
            self.names.entry(directory).and_modify(|known| known.changing = known.changing.saturating_sub(1));
            if !is_removed && !is_believed {
                self.is_incomplete(directory);
            }
        }
    }

    fn note(&mut self, operation: &Operation<'_>) {
        if let Operation::Read { node, .. }
        | Operation::Readlink { node }
        | Operation::Readdir { node, .. }
        | Operation::Readdirplus { node, .. } = *operation
            && self.attributes.get(&node).is_some_and(|known| is_atime_due(&known.attributes))
        {
            return self.change_attributes(node);
        }
        let changed = operation.changed();
        if changed.is_nothing() {
            return;
        }
        for (directory, name) in &changed.names {
            let known = self.names.get(directory).and_then(|known| known.names.get(*name)).map(|known| known.named);
            if let Some(Named::Node { node, .. }) = known {
                self.change_attributes(node);
            }
            self.change_name(*directory, name);
        }
        changed.inodes().for_each(|node| self.change_attributes(node));
    }

    /// The kernel does not know an inode any more.
    pub fn forget(&mut self, node: u64) {
        self.drop_attributes(node);
        if let Some(known) = self.names.remove(&node) {
            assert!(self.count >= known.names.len(), "names are counted");
            self.count -= known.names.len();
        }
    }
}
