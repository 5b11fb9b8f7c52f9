//! Whether a segment that may go holds content of others: of files that do not go to media, whose copies on devices would go with it.
//!
//! Files share content: reflinks, versions, deduplication. The rows of a segment tell who stored what is alive in it. Where all of these
//! go to media and have it still, and nothing is referred to twice, nobody else is concerned. Otherwise what files have that go to media is
//! counted, once for all that is released together: a blob counts when all references to it were met, and a segment in which more is
//! alive than was counted stays. What is released by its name is counted first, and its rows are not read. What no name leads to and is no
//! version (a removed file that is open, files whose names are on media themselves) is not counted, so it makes a segment stay; but what
//! came back from media had been released before, when nobody else had it. Metadata that is offloaded is nobody else's.
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
use stere_store::{BlobHandle, Io, Member, Members};

/// Extents looked at in one view.
const EXTENTS: usize = 1024;
/// Versions listed in one view.
const VERSIONS: usize = 1024;

/// What files have that go to media.
#[derive(Default)]
struct Counted {
    /// Live bytes of blobs to which nobody else refers, by segment.
    live_bytes: FxHashMap<u64, u64>,
    /// References met to blobs that have several, as long as some are missing.
    shared: FxHashMap<u64, u32>,
    /// The files.
    met: BTreeSet<u64>,
    /// What goes by itself is counted, beside what is released by its name.
    is_whole: bool,
}

impl Counted {
    fn add(&mut self, blob: &BlobHandle) {
        let references = blob.value.references;
        let met = match references {
            1 => 1,
            _ => {
                let met = self.shared.entry(blob.id).or_default();
                *met += 1;
                *met
            }
        };
        if met == references {
            *self.live_bytes.entry(blob.segment_id()).or_default() += stere_store::blob_usage_bytes(&blob.value);
        }
    }

    /// Whether all that is alive in a segment was counted. Something may have died since, which looks as if something was missing.
    fn has_all_of(&self, segment: u64, live_bytes: u64) -> bool {
        self.live_bytes.get(&segment).copied().unwrap_or(0) == live_bytes
    }
}

/// Finds out who is concerned when segments go.
pub struct Concerned<'a> {
    core: &'a Arc<Core>,
    tiers: &'a Tiers,
    /// Brings no names back.
    caller: Caller<'a>,
    /// What is below it is released by its name, so it goes whatever its policy says.
    named: Option<u64>,
    /// Where somebody had to know.
    counted: Option<Counted>,
}

impl<'a> Concerned<'a> {
    pub fn new(core: &'a Arc<Core>, tiers: &'a Tiers, caller: &'a Caller<'a>, named: Option<u64>) -> Concerned<'a> {
        let caller = Caller { io: caller.io.skipping_offloaded(), ..*caller };
        Concerned { core, tiers, caller, named, counted: None }
    }

    /// Whether something in a segment is of files that do not go to media; `members` are what its rows tell, if they were read.
    pub fn are_others(&mut self, segment: u64, members: Option<&Members>) -> Result<bool, Error> {
        if let Some(members) = members
            && !members.is_shared
            && self.is_all_of_those_who_go(segment, members)?
        {
            return Ok(false);
        }
        let live_bytes = |core: &Core| core.store.segments().get(segment).map_or(0, |segment| segment.live_bytes());
        let mut counted = match self.counted.take() {
            Some(counted) => counted,
            None => self.count_named()?,
        };
        let mut has_all = counted.has_all_of(segment, live_bytes(self.core));
        if !has_all && !counted.is_whole {
            self.count_the_rest(&mut counted)?;
            has_all = counted.has_all_of(segment, live_bytes(self.core));
        }
        self.counted = Some(counted);
        if !has_all && members.is_none() && self.core.store.tier.heat.heat_of(segment).is_back {
            // Files whose names are on media were not counted: its rows tell whose content came back with what was read.
            let members = self.core.store.tier.heat.members_of_segment(segment)?;
            return Ok(members.is_shared || !self.is_all_of_those_who_go(segment, &members)?);
        }
        Ok(!has_all)
    }

    /// Whether those who stored it go to media, and have it.
    fn is_all_of_those_who_go(&self, segment: u64, members: &Members) -> Result<bool, Error> {
        for (inode, member) in &members.inodes {
            let is_all = match self.goes(*inode) {
                Ok(true) => has_all(self.core, self.caller.io, *inode, member),
                goes => goes,
            };
            match is_all {
                Ok(true) => {}
                // Its name is on media.
                Err(Error::Elsewhere(..)) if self.core.store.tier.heat.heat_of(segment).is_back => {}
                Ok(false) | Err(Error::Elsewhere(..)) => return Ok(false),
                Err(error) => return Err(error),
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
        match self.core.effective(&self.caller, inode) {
            Ok(effective) => Ok(self.core.files.policies.media_of(effective.wish.tier).is_some_and(|set| set != 0)),
            // It was removed.
            Err(Error::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn count_named(&self) -> Result<Counted, Error> {
        let mut counted = Counted::default();
        for names in self.core.store.offload().folds(self.caller.io)? {
            counted.add(&names.blob);
        }
        if let Some(named) = self.named {
            self.count_below(named, true, &mut counted)?;
        }
        Ok(counted)
    }

    /// Counts what files have that go to media by themselves.
    fn count_the_rest(&self, counted: &mut Counted) -> Result<(), Error> {
        assert!(!counted.is_whole, "all names below tiers are walked over once");
        for root in self.tiers.tiered_roots(self.caller.io)? {
            self.count_below(root, false, counted)?;
        }
        let mut from = Some(Key::version(Key::VERSION_ORDER_FIRST, 0));
        while let Some(at) = from {
            let (versions, next) = self.versions(at)?;
            for inode in versions {
                if self.goes(inode)? {
                    self.count_file(inode, counted)?;
                }
            }
            from = next;
        }
        counted.is_whole = true;
        Ok(())
    }

    fn count_below(&self, root: u64, all_go: bool, counted: &mut Counted) -> Result<(), Error> {
        let Some(value) = self.core.inode_value(self.caller.io, root)? else { return Ok(()) };
        let kind = value.kind().unwrap_or(FileKind::Symlink);
        let mut walk = Walk::new(root, kind, Vec::new(), Form::Plain).passing_over();
        while let Some(file) = walk.next(&self.core.store, &self.core.names, self.caller.io)? {
            if file.kind == FileKind::File && (all_go || self.goes_to_media(file.inode)?) {
                self.count_file(file.inode, counted)?;
            }
        }
        Ok(())
    }

    /// Counts what a file has, once.
    fn count_file(&self, inode: u64, counted: &mut Counted) -> Result<(), Error> {
        let mut from = counted.met.insert(inode).then_some(0);
        while let Some(at) = from {
            let (extents, next) = stere_file::stored_extents(&self.core.store, self.caller.io, inode, at, EXTENTS)?;
            let on_media = extents.iter().filter(|extent| extent.blob.tertiary_wanted() != 0);
            on_media.for_each(|extent| counted.add(&extent.blob));
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
    let (mut missing, mut from): (BTreeSet<u64>, _) = (member.blobs.clone(), Some(member.from));
    while let Some(at) = from.filter(|at| *at < member.to && !missing.is_empty()) {
        let (extents, next) = stere_file::stored_extents(&core.store, io, inode, at, EXTENTS)?;
        for extent in &extents {
            missing.remove(&extent.blob.id);
        }
        from = next;
    }
    Ok(missing.is_empty())
}
