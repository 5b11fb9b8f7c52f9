//! The one way that a call takes: checks, the core of the call, followers.
//!
//! A call is a value, [`Op`]. Each stage below is an exhaustive `match` over the kind of call, so a kind that a feature forgot does
//! not compile. `observe` goes around all that a call does: uses of names are noted, and the audit sees what came of it, refusals
//! too. `perform` goes around each attempt: checks (keys, versions, quotas, plugins), the core with room made for it, effects.
//! What must hold in the transaction itself (retention, the state of versions) is checked there, on the inode that is changed.
//! Not here: calls that make things durable, and `getattr`, `statfs` and `seek`, of which no feature wants to hear.
//! Read next: `calls/` (the entry points), `name_changes`, `content_changes` (the cores).

use std::sync::Arc;

use stere_features::accounting::Quotas;
use stere_features::audit::{Audit, Place, Watched};
use stere_features::extended_attributes::ExtendedAttributes;
use stere_features::features::Features;
use stere_features::plugin_events::{Doing, Notes, PluginEvents};
use stere_features::versions::Versions;
use stere_file::{COLLAPSE_RANGE, INSERT_RANGE, inode_if_any};
use stere_format::{FileKind, InodeValue};
use stere_namespace::access_times::LazyTimes;
use stere_namespace::attributes::{SetAttributes, needs_kill};
use stere_namespace::call::Caller;
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::handles::{Handle, OpenFlags};
use stere_namespace::inode::Core;
use stere_namespace::names::Found;
use stere_namespace::namespace::Namespace;
use stere_namespace::rules::PolicyRules;
use stere_plugin::EventKind;
use stere_residency::eviction::Eviction;
use stere_residency::offload::Offload;
use stere_residency::residency::Residency;
use stere_residency::residency_policy::ResidencyPolicy;

use crate::content_changes::ContentChanges;
use crate::rename;
use crate::rename::RENAME_EXCHANGE;

/// What a call does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind<'a> {
    /// Looks a name up in the inode.
    Lookup,
    /// Lists the inode.
    List,
    /// Reads the inode's target.
    ReadLink,
    Open(OpenFlags),
    Release(Handle),
    Read,
    /// `kill_set_id`: the writer has no privilege to keep set-id bits.
    Write {
        kill_set_id: bool,
    },
    /// With the mode of fallocate(2).
    Allocate {
        mode: u32,
    },
    /// Copies from the range of another inode, which begins there.
    CopyFrom {
        source: u64,
        offset: u64,
    },
    SetAttributes(&'a SetAttributes),
    SetExtended,
    RemoveExtended,
    /// Makes a name in the inode, a directory; maybe opened as it is made.
    Create {
        name: &'a [u8],
        opened: Option<OpenFlags>,
    },
    /// Makes a file without a name in the inode's file system, opened.
    CreateNameless {
        opened: OpenFlags,
    },
    /// Gives the inode a name in this directory.
    Link {
        parent: u64,
        name: &'a [u8],
    },
    /// Removes a name of the inode, or whatever has that name where that is not known yet.
    Remove {
        parent: u64,
        name: &'a [u8],
    },
    Rename(Renaming<'a>),
    /// A command changes what the pool keeps: policy, classes, accounts, keys, plugins, destinations of backups.
    Command,
}

/// A rename; `source` and `target` are what the names mean, where that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renaming<'a> {
    pub parent: u64,
    pub name: &'a [u8],
    pub new_parent: u64,
    pub new_name: &'a [u8],
    pub flags: u32,
    pub source: Option<Found>,
    pub target: Option<Found>,
}

/// Bytes of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: u64,
    pub length: u64,
}

/// A call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op<'a> {
    pub kind: Kind<'a>,
    /// What it is done to; of what is made the directory.
    pub inode: u64,
    pub range: Span,
    pub caller: &'a Caller<'a>,
}

impl<'a> Op<'a> {
    pub fn new(caller: &'a Caller<'a>, inode: u64, kind: Kind<'a>) -> Op<'a> {
        Op { kind, inode, range: Span::default(), caller }
    }

    pub fn at(self, offset: u64, length: u64) -> Op<'a> {
        Op { range: Span { offset, length }, ..self }
    }
}

/// What a call did, as far as followers want to know it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done<'t> {
    /// What was made, or opened.
    pub made: Option<(u64, FileKind)>,
    pub handle: Option<Handle>,
    /// Content came to be other than it was.
    pub is_changed: bool,
    /// The inode as it was read, or as it is now.
    pub value: Option<&'t InodeValue>,
}

/// What the audit looked up before a call.
enum Watching {
    Nothing,
    Inode(Option<Watched>),
    Place(Option<Place>),
    /// Of a rename, rarely: what is passed on with every call stays small.
    Names(Box<Renamed>),
}

/// What the audit looked up before a rename.
struct Renamed {
    source: Option<Watched>,
    target: Option<Watched>,
    place: Option<Place>,
}

/// The features that have a say in calls.
pub(crate) struct Pipeline {
    pub core: Arc<Core>,
    pub access_times: Arc<LazyTimes>,
    pub encryption: Arc<EncryptionKeys>,
    pub rules: Arc<PolicyRules>,
    pub quotas: Arc<Quotas>,
    pub versions: Arc<Versions>,
    pub audit: Arc<Audit>,
    pub residency: Arc<ResidencyPolicy>,
    pub eviction: Arc<Eviction>,
    pub offload: Arc<Offload>,
    pub attributes: Arc<ExtendedAttributes>,
    pub events: Arc<PluginEvents>,
    pub contents: Arc<ContentChanges>,
}

impl Pipeline {
    pub fn new(
        namespace: &Namespace,
        residency: &Residency,
        features: &Features,
        contents: Arc<ContentChanges>,
    ) -> Pipeline {
        Pipeline {
            core: namespace.core.clone(),
            access_times: namespace.access_times.clone(),
            encryption: namespace.encryption.clone(),
            rules: namespace.rules.clone(),
            quotas: features.quotas.clone(),
            versions: features.versions.clone(),
            audit: features.audit.clone(),
            residency: residency.policy.clone(),
            eviction: residency.eviction.clone(),
            offload: residency.offload.clone(),
            attributes: features.attributes.clone(),
            events: features.events.clone(),
            contents,
        }
    }

    /// All that a call does: noted before, seen after.
    pub fn observe<T>(
        &self,
        op: &Op<'_>,
        call: impl FnOnce() -> Result<T, Error>,
        done: impl FnOnce(&T) -> Done<'_>,
    ) -> Result<T, Error> {
        self.note_use(op);
        let watching = self.watch(op)?;
        let outcome = call();
        self.audit(op, watching, outcome.as_ref().map(done));
        outcome
    }

    /// One attempt: what speaks against it, the core with room for it, and what follows for the pool's own state.
    pub fn perform<T>(
        &self,
        op: &Op<'_>,
        mut call: impl FnMut() -> Result<T, Error>,
        done: impl Fn(&T) -> Done<'_>,
    ) -> Result<T, Error> {
        let notes = self.check(op)?;
        assert!(notes.is_none() || makes(&op.kind), "notes are of what is made");
        let outcome = match takes_room(&op.kind) {
            true => self.eviction.with_room(op.caller, call),
            false => call(),
        };
        self.follow(op, outcome.as_ref().map(&done).ok());
        if let (Some(notes), Ok(value)) = (notes, &outcome) {
            let made = done(value).made;
            assert!(made.is_some(), "what is made is told, for notes to be put with it");
            if let Some((inode, _)) = made {
                self.attributes.put_notes(op.caller, inode, notes)?;
            }
        }
        outcome
    }

    /// Both, for calls of one attempt.
    pub fn run<T>(
        &self,
        op: &Op<'_>,
        call: impl FnMut() -> Result<T, Error>,
        done: impl Fn(&T) -> Done<'_> + Copy,
    ) -> Result<T, Error> {
        self.observe(op, || self.perform(op, call, done), done)
    }

    /// Uses of names keep their metadata from being sent down; noted before, so that it does not go meanwhile.
    #[inline]
    fn note_use(&self, op: &Op<'_>) {
        let caller = op.caller;
        match &op.kind {
            Kind::Lookup | Kind::List | Kind::Open(_) | Kind::Release(_) | Kind::SetAttributes(_) => {
                self.offload.note_use(caller, op.inode);
            }
            Kind::SetExtended | Kind::RemoveExtended | Kind::Create { .. } => self.offload.note_use(caller, op.inode),
            Kind::Link { parent, .. } => {
                self.offload.note_use(caller, *parent);
                self.offload.note_use(caller, op.inode);
            }
            Kind::Remove { parent, .. } => self.offload.note_use(caller, *parent),
            Kind::Rename(rename) => {
                self.offload.note_use(caller, rename.parent);
                self.offload.note_use(caller, rename.new_parent);
            }
            // The file is open, which was noted; a link names nothing below it; what has no name is in nobody's way.
            Kind::Read | Kind::Write { .. } | Kind::Allocate { .. } | Kind::CopyFrom { .. } => {}
            Kind::ReadLink | Kind::CreateNameless { .. } | Kind::Command => {}
        }
    }

    /// What the audit must know before the call: afterwards names may be gone, and the caller may not be able to wait.
    #[inline]
    fn watch(&self, op: &Op<'_>) -> Result<Watching, Error> {
        let caller = op.caller;
        Ok(match &op.kind {
            Kind::Open(_) => Watching::Inode(self.audit.watched(caller, op.inode)?),
            Kind::SetAttributes(set) if set.size.is_some() => Watching::Inode(self.audit.watched(caller, op.inode)?),
            Kind::Create { .. } | Kind::CreateNameless { .. } => {
                Watching::Place(self.audit.watched_place(caller, op.inode)?)
            }
            Kind::Remove { parent, name } => Watching::Inode(self.audit.watched_name(caller, *parent, name)?),
            Kind::Rename(rename) => {
                let source = self.audit.watched_name(caller, rename.parent, rename.name)?;
                let target = self.audit.watched_name(caller, rename.new_parent, rename.new_name)?;
                let place = if source.is_some() { self.audit.place(caller, rename.new_parent)? } else { None };
                Watching::Names(Box::new(Renamed { source, target, place }))
            }
            // Of open files the session knows; other attributes, links and what is only looked at are not noted.
            Kind::Release(_) | Kind::Read | Kind::Write { .. } | Kind::Allocate { .. } | Kind::CopyFrom { .. } => {
                Watching::Nothing
            }
            Kind::SetAttributes(_) | Kind::SetExtended | Kind::RemoveExtended | Kind::Link { .. } => Watching::Nothing,
            Kind::Lookup | Kind::List | Kind::ReadLink | Kind::Command => Watching::Nothing,
        })
    }

    /// Refuses what features speak against; gives what plugins want noted with what is made.
    #[inline]
    fn check(&self, op: &Op<'_>) -> Result<Option<Notes>, Error> {
        let (caller, inode) = (op.caller, op.inode);
        let doing = Doing { offset: op.range.offset, length: op.range.length, ..Doing::default() };
        match &op.kind {
            Kind::Open(flags) => self.check_open(op, *flags)?,
            Kind::Release(_) => match self.judge(caller, EventKind::Close, inode, doing) {
                // Nobody can be kept from closing.
                Err(Error::NotPermitted(_) | Error::Retained(_) | Error::Plugin(_) | Error::Stale) => {}
                asked => asked?,
            },
            Kind::Read => self.judge(caller, EventKind::Read, inode, doing)?,
            Kind::Write { kill_set_id } => {
                self.judge(caller, EventKind::Write, inode, doing)?;
                if *kill_set_id && self.core.store.view(caller.io, |view| needs_kill(view, inode, caller))? {
                    self.contents.kill_set_id(caller, inode)?;
                }
                self.versions.keep_before_change(caller, inode)?;
            }
            // All modes: those that change no byte take room, which is a matter of writing too.
            Kind::Allocate { .. } => {
                self.judge(caller, EventKind::Write, inode, doing)?;
                self.versions.keep_before_change(caller, inode)?;
            }
            Kind::CopyFrom { source, offset } => {
                self.judge(caller, EventKind::Read, *source, Doing { offset: *offset, ..doing })?;
                self.judge(caller, EventKind::Write, inode, doing)?;
                self.versions.keep_before_change(caller, inode)?;
            }
            Kind::SetAttributes(set) => {
                if let Some(size) = set.size {
                    self.judge(caller, EventKind::Write, inode, Doing { offset: size, ..Doing::default() })?;
                    self.versions.check_writable(caller.io, inode)?;
                    self.versions.keep_before_change(caller, inode)?;
                }
            }
            Kind::SetExtended | Kind::RemoveExtended => self.versions.check_writable(caller.io, inode)?,
            Kind::Create { name, .. } => return self.events.judge_new(caller, inode, name).map(Some),
            Kind::CreateNameless { .. } => return self.events.judge_new(caller, inode, b"").map(Some),
            Kind::Link { parent, name } => {
                // Notes are of new files only.
                self.events.judge_new(caller, *parent, name)?;
            }
            Kind::Remove { name, .. } => {
                self.judge(caller, EventKind::Delete, inode, Doing { name, ..Doing::default() })?;
            }
            Kind::Rename(rename) => self.check_rename(caller, rename)?,
            // Nobody is asked before names are looked at; who may give a command is asked where it arrives.
            Kind::Lookup | Kind::List | Kind::ReadLink | Kind::Command => {}
        }
        Ok(None)
    }

    fn check_open(&self, op: &Op<'_>, flags: OpenFlags) -> Result<(), Error> {
        let (caller, inode) = (op.caller, op.inode);
        self.encryption.check_key(caller, inode)?;
        if flags.write || flags.truncate {
            self.core.store.view(caller.io, |view| match inode_if_any(view, inode)? {
                Some(value) => {
                    self.versions.check_no_version(inode, &value)?;
                    Ok::<_, Error>(stere_file::check_changeable(&value, caller.now)?)
                }
                None => Ok(()),
            })?;
        }
        self.judge(caller, EventKind::Open, inode, Doing::default())
    }

    /// Asks the plugins of what is renamed, and of what goes by that; and whether it fits where it goes.
    fn check_rename(&self, caller: &Caller<'_>, rename: &Renaming<'_>) -> Result<(), Error> {
        let (name, new_name) = (rename.name, rename.new_name);
        if let Some(source) = rename.source {
            self.quotas.prepare_move(caller, source.inode, source.kind, rename.new_parent)?;
            self.judge(caller, EventKind::Rename, source.inode, Doing { name, new_name, ..Doing::default() })?;
            self.check_arrival(caller, rename, rename.new_parent, new_name)?;
        }
        match rename.target {
            Some(target) if rename.flags == RENAME_EXCHANGE => {
                self.quotas.prepare_move(caller, target.inode, target.kind, rename.parent)?;
                let doing = Doing { name: new_name, new_name: name, ..Doing::default() };
                self.judge(caller, EventKind::Rename, target.inode, doing)?;
                self.check_arrival(caller, rename, rename.parent, name)
            }
            Some(target) if rename.flags == 0 => {
                self.judge(caller, EventKind::Delete, target.inode, Doing { name: new_name, ..Doing::default() })
            }
            _ => Ok(()),
        }
    }

    /// What comes from another directory is new in this one, as with a link: the plugins there are asked.
    fn check_arrival(&self, caller: &Caller<'_>, rename: &Renaming<'_>, to: u64, name: &[u8]) -> Result<(), Error> {
        match rename.parent == rename.new_parent {
            true => Ok(()),
            // Notes are of new files only.
            false => self.events.judge_new(caller, to, name).map(drop),
        }
    }

    /// Asks the plugins of a file that is there; what they want noted with it is noted before it is done.
    #[inline]
    fn judge(&self, caller: &Caller<'_>, event: EventKind, inode: u64, doing: Doing<'_>) -> Result<(), Error> {
        match self.events.judge(caller, event, inode, doing)? {
            Some(notes) => self.attributes.put_notes(caller, inode, notes),
            None => Ok(()),
        }
    }

    /// What follows for the pool's own state when an attempt was made; `done` is none where it failed.
    #[inline]
    fn follow(&self, op: &Op<'_>, done: Option<Done<'_>>) {
        let is_made = done.as_ref().is_some_and(|done| done.made.is_some());
        assert!(!is_made || makes(&op.kind), "only calls that make something tell what was made");
        let (caller, inode) = (op.caller, op.inode);
        match (&op.kind, &done) {
            (Kind::Release(_), _) => {
                self.versions.note_closed(inode);
                self.rules.note_facts_changed(inode);
            }
            (Kind::Read | Kind::ReadLink, Some(Done { value: Some(value), .. })) => {
                self.access_times.note_access(caller, inode, value);
            }
            (Kind::SetAttributes(set), Some(Done { value: Some(value), .. })) => {
                if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some() {
                    self.rules.note_facts_changed(inode);
                    if value.kind() == Some(FileKind::Directory) {
                        self.residency.note_directory_changed(caller.io);
                    }
                }
            }
            (Kind::Create { opened, .. }, Some(Done { made: Some((made, kind)), .. })) => {
                if *kind == FileKind::Directory {
                    self.offload.note_use(caller, *made);
                }
                if opened.is_some() {
                    self.encryption.note_open(caller, *made);
                }
            }
            (Kind::CreateNameless { .. }, Some(Done { made: Some((made, _)), .. })) => {
                self.encryption.note_open(caller, *made);
            }
            // Size and times are looked at when the file is closed; names note theirs in their transaction.
            (Kind::Write { .. } | Kind::Allocate { .. } | Kind::CopyFrom { .. } | Kind::Open(_), _) => {}
            (Kind::Lookup | Kind::List | Kind::Read | Kind::ReadLink | Kind::SetAttributes(_), _) => {}
            (Kind::SetExtended | Kind::RemoveExtended | Kind::Create { .. } | Kind::CreateNameless { .. }, _) => {}
            (Kind::Remove { parent, .. }, Some(_)) => self.eviction.note_name_gone(caller, *parent),
            (Kind::Rename(rename), Some(_)) => {
                self.eviction.note_name_gone(caller, rename.parent);
                if rename.new_parent != rename.parent {
                    self.eviction.note_name_gone(caller, rename.new_parent);
                }
            }
            (Kind::Link { .. } | Kind::Remove { .. } | Kind::Rename(_) | Kind::Command, _) => {}
        }
    }

    /// Who writes, and what was done or refused, for files of which that is noted.
    #[inline]
    fn audit(&self, op: &Op<'_>, watching: Watching, outcome: Result<Done<'_>, &Error>) {
        let caller = op.caller;
        match (&op.kind, watching) {
            (Kind::Write { .. } | Kind::Allocate { .. } | Kind::CopyFrom { .. }, _) => match outcome {
                Ok(done) if done.is_changed => self.audit.saw_change(caller, op.inode),
                Ok(_) => {}
                Err(error) => self.audit.saw_no_change(caller, op.inode, error),
            },
            (Kind::Open(flags), Watching::Inode(watched)) => {
                self.audit.saw_open(caller, watched, *flags, outcome.map(|done| done.handle));
            }
            (Kind::Release(handle), _) => {
                if !matches!(outcome, Err(Error::WouldBlock)) {
                    self.audit.saw_release(caller, op.inode, *handle);
                }
            }
            (Kind::SetAttributes(_), Watching::Inode(watched)) => {
                self.audit.saw_cut(caller, watched, outcome.map(drop));
            }
            (Kind::Create { name, opened }, Watching::Place(Some(place))) => {
                if let Ok(Done { made: Some((inode, _)), handle, .. }) = outcome {
                    self.audit.saw_made(caller, &place, name, inode, handle.zip(*opened));
                }
            }
            (Kind::CreateNameless { opened }, Watching::Place(Some(place))) => {
                if let Ok(Done { made: Some((inode, _)), handle: Some(handle), .. }) = outcome {
                    self.audit.saw_made(caller, &place, b"(without a name)", inode, Some((handle, *opened)));
                }
            }
            (Kind::Remove { .. }, Watching::Inode(watched)) => {
                self.audit.saw_removed(caller, watched, outcome.map(drop));
            }
            (Kind::Rename(renaming), Watching::Names(renamed)) => {
                let Renamed { source, target, place } = *renamed;
                let is_exchange = renaming.flags == rename::RENAME_EXCHANGE;
                let place = (place.as_ref(), renaming.new_name);
                self.audit.saw_renamed(caller, [source, target], place, is_exchange, outcome.map(drop));
            }
            // Nothing was to be noted of where these were made, or of what they did.
            (Kind::Create { .. } | Kind::CreateNameless { .. } | Kind::SetAttributes(_), _) => {}
            (Kind::Lookup | Kind::List | Kind::ReadLink | Kind::Read | Kind::Link { .. }, _) => {}
            (Kind::SetExtended | Kind::RemoveExtended | Kind::Command, _) => {}
            (Kind::Open(_) | Kind::Remove { .. } | Kind::Rename(_), _) => unreachable!("looked up before the call"),
        }
    }
}

/// Whether a call makes an inode.
fn makes(kind: &Kind<'_>) -> bool {
    matches!(kind, Kind::Create { .. } | Kind::CreateNameless { .. })
}

/// Whether room is made for a call where there is none; what it did before it failed must bear repetition.
fn takes_room(kind: &Kind<'_>) -> bool {
    match kind {
        Kind::Allocate { mode } => {
            // These move what is behind them, which nobody may do twice.
            mode & (COLLAPSE_RANGE | INSERT_RANGE) == 0
        }
        // A write makes room piece by piece.
        Kind::Write { .. } => false,
        Kind::CopyFrom { .. } | Kind::SetExtended | Kind::RemoveExtended | Kind::Command => true,
        Kind::Create { .. } | Kind::CreateNameless { .. } | Kind::Link { .. } | Kind::Rename(_) => true,
        Kind::Lookup | Kind::List | Kind::ReadLink | Kind::Open(_) | Kind::Release(_) | Kind::Read => false,
        // Full is never stuck: attributes and removals take reserved room.
        Kind::SetAttributes(_) | Kind::Remove { .. } => false,
    }
}
