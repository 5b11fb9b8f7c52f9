//! Whether a segment that may go holds content of others: of files that do not go to media, whose copies on devices would go with it.
//!
//! Files share content: reflinks, versions, deduplication. The rows of a segment tell who stored what is alive in it. Where all of these
//! go to media and have it still, and nothing is referred to twice, nobody else is concerned. Otherwise the references are counted that
//! files have which go to media, once for all that is released together, and a segment stays of which there are more. What no name leads
//! to and is no version (a removed file that is open, names that are on media themselves) is not counted, so it makes a segment stay.
//! Invariant: nothing goes of which a reference is not known to be of a file that goes to media. Read next: `choice.rs`,
//! `docs/design/tiering.md`.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stere_format::{FileKind, Key};
use stere_namespace::call::Caller;
use stere_namespace::error::Error;
use stere_namespace::inode::Core;
use stere_namespace::names::Form;
use stere_namespace::tiers::Tiers;
use stere_namespace::walk::Walk;
use stere_store::{Io, Member, Members};

/// Extents looked at in one view.
const EXTENTS: usize = 1024;
/// Versions listed in one view.
const VERSIONS: usize = 1024;

/// References, by segment.
type References = FxHashMap<u64, u64>;

/// Finds out who is concerned when segments go.
pub struct Concerned<'a> {
    core: &'a Arc<Core>,
    tiers: &'a Tiers,
    caller: &'a Caller<'a>,
    /// What is below it is released by its name, so it goes whatever its policy says.
    named: Option<u64>,
    /// Of files that go to media, where somebody had to know.
    counted: Option<References>,
}

impl<'a> Concerned<'a> {
    pub fn new(core: &'a Arc<Core>, tiers: &'a Tiers, caller: &'a Caller<'a>, named: Option<u64>) -> Concerned<'a> {
        Concerned { core, tiers, caller, named, counted: None }
    }

    /// Whether something in a segment is of files that do not go to media.
    pub fn are_others(&mut self, segment: u64, members: &Members) -> Result<bool, Error> {
        if !members.is_shared && self.is_all_of_those_who_go(members)? {
            return Ok(false);
        }
        let counted = match self.counted.take() {
            Some(counted) => counted,
            None => self.count()?,
        };
        let of_those_who_go = self.counted.insert(counted).get(&segment).copied().unwrap_or(0);
        let blobs = members.inodes.values().flat_map(|member| member.blobs.values());
        let all: u64 = blobs.map(|references| u64::from(*references)).sum();
        Ok(all > of_those_who_go)
    }

    /// Whether those who stored it go to media, and have it.
    fn is_all_of_those_who_go(&self, members: &Members) -> Result<bool, Error> {
        for (inode, member) in &members.inodes {
            if !self.goes(*inode)? || !has_all(self.core, self.caller.io, *inode, member)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn goes(&self, inode: u64) -> Result<bool, Error> {
        Ok(self.goes_to_media(inode)?
            || match self.named {
                Some(named) => self.tiers.is_below(self.caller.io, inode, named)?,
                None => false,
            })
    }

    fn goes_to_media(&self, inode: u64) -> Result<bool, Error> {
        match self.core.effective(self.caller, inode) {
            Ok(effective) => Ok(self.core.files.policies.media_of(effective.wish.tier).is_some_and(|set| set != 0)),
            // It was removed.
            Err(Error::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Counts what files refer to that go to media.
    fn count(&self) -> Result<References, Error> {
        let (mut references, mut met) = (References::default(), BTreeSet::new());
        for root in self.tiers.tiered_roots(self.caller.io)? {
            self.count_below(root, false, &mut references, &mut met)?;
        }
        if let Some(named) = self.named {
            self.count_below(named, true, &mut references, &mut met)?;
        }
        let mut from = Some(Key::version(Key::VERSION_ORDER_FIRST, 0));
        while let Some(at) = from {
            let (versions, next) = self.versions(at)?;
            for inode in versions {
                if self.goes(inode)? && met.insert(inode) {
                    self.add(inode, &mut references)?;
                }
            }
            from = next;
        }
        Ok(references)
    }

    fn count_below(
        &self,
        root: u64,
        all_go: bool,
        references: &mut References,
        met: &mut BTreeSet<u64>,
    ) -> Result<(), Error> {
        let Some(value) = self.core.inode_value(self.caller.io, root)? else { return Ok(()) };
        let kind = value.kind().unwrap_or(FileKind::Symlink);
        let mut walk = Walk::new(root, kind, Vec::new(), Form::Plain).passing_over();
        while let Some(file) = walk.next(&self.core.store, &self.core.names, self.caller.io)? {
            let is_new = file.kind == FileKind::File && !met.contains(&file.inode);
            if is_new && (all_go || self.goes_to_media(file.inode)?) {
                met.insert(file.inode);
                self.add(file.inode, references)?;
            }
        }
        Ok(())
    }

    /// Adds the references of a file.
    fn add(&self, inode: u64, references: &mut References) -> Result<(), Error> {
        let mut from = Some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.core.store, self.caller.io, inode, at, EXTENTS)?;
            for extent in extents.iter().filter(|extent| extent.blob.tertiary_wanted() != 0) {
                *references.entry(extent.blob.segment_id()).or_default() += 1;
            }
            from = next;
        }
        Ok(())
    }

    /// Some versions, and where the next ones are listed.
    fn versions(&self, from: Key) -> Result<(Vec<u64>, Option<Key>), Error> {
        self.core.store.view(self.caller.io, |view| {
            let (mut found, mut next) = (Vec::new(), None);
            view.scan(from, Key::version(u64::MAX, u64::MAX), |key, _| {
                if found.len() == VERSIONS {
                    next = Some(*key);
                    return ControlFlow::Break(());
                }
                // Keys of other kinds lie between those of two orders.
                if key.kind == stere_format::key::kind::VERSION {
                    found.push(key.position);
                }
                ControlFlow::Continue(())
            })?;
            Ok((found, next))
        })
    }
}

/// Whether a file has all that it stored there, so that nobody else can have it who has no second reference.
pub fn has_all(core: &Core, io: Io<'_>, inode: u64, member: &Member) -> Result<bool, Error> {
    let (mut missing, mut from): (BTreeSet<u64>, _) = (member.blobs.keys().copied().collect(), Some(member.from));
    while let Some(at) = from.filter(|at| *at < member.to && !missing.is_empty()) {
        let (extents, next) = stere_file::stored_extents(&core.store, io, inode, at, EXTENTS)?;
        for extent in &extents {
            missing.remove(&extent.blob.id);
        }
        from = next;
    }
    Ok(missing.is_empty())
}
