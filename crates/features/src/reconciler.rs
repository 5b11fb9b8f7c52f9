//! Making files be stored as their policy says, in the background: the work that a change of policy leaves behind.
//!
//! A change of policy notes its inode in the pool, in the same transaction, so the work survives a crash; the note goes when
//! everything below was looked at. The walk starts afresh after a mount: what is right already is passed quickly.
//! Each note has a number, so that a change made while its subtree is walked is not taken for done.

use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use stere_faults::{Bug, is_planted};
use stere_file::{SharedWishes, Twins};
use stere_format::{FileKind, Key, key};
use stere_namespace::call::Caller;
use stere_namespace::encryption::EncryptionKeys;
use stere_namespace::error::Error;
use stere_namespace::inode::{Core, dedup_domain};
use stere_namespace::names::Form;
use stere_namespace::reconcile_queue::{number_of, put_note};
use stere_namespace::rules::PolicyRules;
use stere_namespace::tiers::Tiers;
use stere_namespace::walk::{Met, Walk, path_and_form, path_of};
use stere_policy::Decision;
use stere_residency::quiescence;
use stere_residency::quiescence::Quiescence;
use stere_residency::units::Units;
use stere_store::{Io, Store};

use crate::retention::Retentions;
use crate::versions::Versions;

/// Names looked at in one step at most.
const NAMES_PER_STEP: usize = 512;

/// A walk over what lies below one inode.
struct Job {
    root: u64,
    /// The note's number when the walk began.
    number: u64,
    walk: Walk,
    /// Where that began.
    beginning: Beginning,
    /// The file in hand, and where to go on in it.
    file: Option<(u64, u64)>,
    /// The same file after that, where content that is stored twice is to become one: where to go on, and in which domain.
    twin: Option<(u64, u64, u64)>,
    shared: SharedWishes,
    waiting_bytes: u64,
    /// Bytes, names and links that wait for a key.
    locked_bytes: u64,
    locked_names: u64,
    /// Changes of rules when the walk began.
    rule_changes: u64,
    /// What rules came to for the names met so far of files that have several, and how many those were.
    linked: FxHashMap<u64, (Decision, u32)>,
    /// Units that are not quiet are left alone; what is known of them.
    deferred: Option<quiescence::Found>,
}

/// Where a walk begins.
struct Beginning {
    inode: u64,
    kind: FileKind,
    path: Vec<u8>,
    form: Form,
}

impl Beginning {
    fn walk(&self) -> Walk {
        Walk::new(self.inode, self.kind, self.path.clone(), self.form).passing_over()
    }
}

/// Files with several names that one walk remembers.
const LINKED_MAX: usize = 1 << 16;

/// Work that is under way or left over.
#[derive(Default)]
struct State {
    is_loaded: bool,
    pending: VecDeque<u64>,
    /// Of these, whose unit was walked over since they were noted.
    gathered: BTreeSet<u64>,
    job: Option<Job>,
    /// Of the job, also while it is at work: inode and number of its note.
    in_hand: Option<(u64, u64)>,
    /// Inode, number of its note, why.
    blocked: Vec<(u64, u64, String)>,
    is_paused: bool,
    moved_bytes: u64,
    files: u64,
    damaged_blobs: u64,
}

/// The work of a file system.
pub struct Reconciler {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
    pub units: Arc<Units>,
    pub quiescence: Arc<Quiescence>,
    pub tiers: Arc<Tiers>,
    pub versions: Arc<Versions>,
    pub encryption: Arc<EncryptionKeys>,
    pub retention: Arc<Retentions>,
    state: Mutex<State>,
    /// Where content was met that may be met again.
    twins: Mutex<Twins>,
}

/// Work that cannot go on for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// Below which path.
    pub path: Vec<u8>,
    /// Why.
    pub why: String,
}

/// How far the work is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReconcileStatus {
    pub is_paused: bool,
    /// Paths whose subtrees are still to be done, the one in hand first.
    pub pending: Vec<Vec<u8>>,
    pub blocked: Vec<Blocked>,
    /// Since the mount.
    pub moved_bytes: u64,
    pub files: u64,
    /// Blobs that cannot be read, so they stay as they are.
    pub damaged_blobs: u64,
}

/// What is noted: inodes, and the numbers of their notes.
pub fn read_notes(store: &Store, io: Io<'_>) -> Result<Vec<(u64, u64)>, Error> {
    store.view(io, |view| {
        let mut notes = Vec::new();
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        view.scan(from, to, |key, bytes| {
            if key.kind == key::kind::RECONCILE {
                notes.push((key.object, number_of(bytes)));
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(notes)
    })
}

impl State {
    /// Reads the notes that were made since the last call.
    fn load(&mut self, store: &Store, io: Io<'_>, has_new_notes: &AtomicBool) -> Result<(), Error> {
        if !self.is_loaded || has_new_notes.swap(false, Ordering::AcqRel) {
            // An error leaves them for the next call.
            self.is_loaded = false;
            for (inode, number) in read_notes(store, io)? {
                self.push(inode, number);
            }
            self.is_loaded = true;
        }
        Ok(())
    }

    /// Work that is blocked stays so until it is asked for anew.
    fn push(&mut self, inode: u64, number: u64) {
        let is_known = |blocked: &(u64, u64, String)| (blocked.0, blocked.1) == (inode, number);
        if self.in_hand == Some((inode, number)) || self.blocked.iter().any(is_known) {
            return;
        }
        self.blocked.retain(|(root, _, _)| *root != inode);
        if !self.pending.contains(&inode) {
            self.pending.push_back(inode);
        }
    }

    /// A job ends and cannot be finished for now.
    fn block(&mut self, job: &Job, why: String) {
        let is_other = |(root, _, _): &(u64, u64, String)| *root != job.root;
        assert!(self.blocked.iter().all(is_other), "what is blocked below inode {} is no job", job.root);
        self.blocked.push((job.root, job.number, why));
    }
}

/// What the reconciler works with.
pub struct ReconcilerParts {
    pub core: Arc<Core>,
    pub rules: Arc<PolicyRules>,
    pub units: Arc<Units>,
    pub quiescence: Arc<Quiescence>,
    pub tiers: Arc<Tiers>,
    pub versions: Arc<Versions>,
    pub encryption: Arc<EncryptionKeys>,
    pub retention: Arc<Retentions>,
}

impl Reconciler {
    pub fn new(parts: ReconcilerParts) -> Reconciler {
        let ReconcilerParts { core, rules, units, quiescence, tiers, versions, encryption, retention } = parts;
        let (state, twins) = Default::default();
        Reconciler { core, rules, units, quiescence, tiers, versions, encryption, retention, state, twins }
    }

    /// Looks at everything below an inode, and moves what does not lie as its policy says. Goes on in `reconcile_step`.
    pub fn reconcile(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.core.request_reconcile(caller, inode)
    }

    pub fn reconcile_as(&self, caller: &Caller<'_>, inode: u64, is_deferred: bool) -> Result<(), Error> {
        // Whoever waits for nobody comes first.
        let is_asked = |view: &stere_store::View<'_>| Ok::<_, Error>(view.get(&Key::reconcile(inode))?.is_some());
        if is_deferred && self.core.store.view(caller.io, is_asked)? {
            let is_blocked = self.state.lock().blocked.iter().any(|(root, _, _)| *root == inode);
            return if is_blocked { self.try_again(caller, inode) } else { Ok(()) };
        }
        self.core.store.update(caller.io, |transaction| {
            self.core.put_reconcile_request(transaction, inode)?;
            if is_deferred {
                self.core.reconcile.deferred.lock().insert(inode);
            }
            Ok(())
        })
    }

    /// What was blocked is tried again, as patiently as before.
    fn try_again(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.core.store.update(caller.io, |transaction| {
            put_note(transaction, inode)?;
            self.core.reconcile.has_new_notes.store(true, Ordering::Release);
            Ok(())
        })
    }

    /// The same for new files, and for all that goes down.
    pub fn try_new_again(&self, caller: &Caller<'_>) -> Result<(), Error> {
        let blocked: Vec<u64> = self.state.lock().blocked.iter().map(|(root, _, _)| *root).collect();
        if blocked.is_empty() {
            return Ok(());
        }
        let roots = self.tiers.tiered_roots(caller.io)?;
        let is_new = |inode: &u64| roots.contains(inode) || self.core.reconcile.deferred.lock().contains(inode);
        blocked.into_iter().filter(is_new).try_for_each(|inode| self.try_again(caller, inode))
    }

    /// Whether there is work.
    pub fn is_reconciling(&self, io: Io<'_>) -> Result<bool, Error> {
        let mut state = self.state.lock();
        state.load(&self.core.store, io, &self.core.reconcile.has_new_notes)?;
        Ok(state.in_hand.is_some() || !state.pending.is_empty())
    }

    /// Stops the work for now, or lets it go on; what was blocked is then tried again.
    pub fn pause_reconcile(&self, is_paused: bool) {
        let mut state = self.state.lock();
        state.is_paused = is_paused;
        if !is_paused {
            for (root, number, _) in std::mem::take(&mut state.blocked) {
                state.push(root, number);
            }
        }
    }

    /// How far the work is.
    pub fn reconcile_status(&self, io: Io<'_>) -> Result<ReconcileStatus, Error> {
        let mut state = self.state.lock();
        state.load(&self.core.store, io, &self.core.reconcile.has_new_notes)?;
        let path = |inode| {
            Ok::<_, Error>(path_of(&self.core.store, &self.core.names, io, inode)?.unwrap_or_else(|| b"?".to_vec()))
        };
        let current = state.in_hand.map(|(root, _)| root);
        let others = state.pending.iter().copied().filter(|root| Some(*root) != current);
        let pending = current.into_iter().chain(others).map(path).collect::<Result<Vec<_>, Error>>()?;
        let blocked = state.blocked.iter().map(|(root, _, why)| Ok(Blocked { path: path(*root)?, why: why.clone() }));
        Ok(ReconcileStatus {
            is_paused: state.is_paused,
            pending,
            blocked: blocked.collect::<Result<Vec<_>, Error>>()?,
            moved_bytes: state.moved_bytes,
            files: state.files,
            damaged_blobs: state.damaged_blobs,
        })
    }

    /// A piece of the work: moves about so many bytes. Tells whether there is more to do.
    pub fn reconcile_step(&self, caller: &Caller<'_>, budget_bytes: u64) -> Result<bool, Error> {
        let mut state = self.state.lock();
        state.load(&self.core.store, caller.io, &self.core.reconcile.has_new_notes)?;
        // One at a time: who comes while another one works has nothing to do.
        if state.is_paused || (state.in_hand.is_some() && state.job.is_none()) {
            return Ok(false);
        }
        let mut job = match state.job.take() {
            Some(job) => job,
            None => match self.begin(&mut state, caller)? {
                Some(job) => job,
                None => return Ok(!state.pending.is_empty()),
            },
        };
        assert!(state.job.is_none(), "a job that is at work waits nowhere");
        let in_hand = (job.root, job.number);
        assert!(state.in_hand.is_none_or(|other| other == in_hand), "{:?} is in hand still", state.in_hand);
        state.in_hand = Some(in_hand);
        // Status and new work must not wait for the moving.
        drop(state);
        let mut progress = Progress { budget_bytes, ..Progress::default() };
        let outcome = self.work(caller, &mut job, &mut progress);
        let mut state = self.state.lock();
        state.moved_bytes += progress.moved_bytes;
        state.files += progress.files;
        state.damaged_blobs += progress.damaged_blobs;
        if let Ok(false) = outcome {
            state.job = Some(job);
            return Ok(true);
        }
        assert_eq!(state.in_hand, Some((job.root, job.number)), "one job at a time is in hand");
        state.in_hand = None;
        match outcome {
            Ok(_) => self.finish_job(&mut state, caller, &job)?,
            Err(error) => {
                state.block(&job, error.to_string());
                return if matches!(error, Error::NoSpace) { Ok(!state.pending.is_empty()) } else { Err(error) };
            }
        }
        let has_new_notes = self.core.reconcile.has_new_notes.load(Ordering::Acquire);
        Ok(!state.pending.is_empty() || has_new_notes)
    }

    fn begin(&self, state: &mut State, caller: &Caller<'_>) -> Result<Option<Job>, Error> {
        assert!(state.in_hand.is_none() && state.job.is_none(), "one job at a time is in hand");
        let Some(root) = state.pending.pop_front() else { return Ok(None) };
        let begun = self.core.store.view(caller.io, |view| {
            let Some(note) = view.get(&Key::reconcile(root))? else { return Ok(None) };
            let kind = stere_file::inode_if_any(view, root)?.and_then(|value| value.kind());
            Ok::<_, Error>(Some((number_of(&note), kind)))
        })?;
        let Some((number, kind)) = begun else { return Ok(None) };
        if self.core.reconcile.changing.try_write().is_none() {
            // The note may be of a change that does not hold everywhere yet. The work stays where it was.
            state.pending.push_front(root);
            return Ok(None);
        }
        let unit = self.gather_unit(state, caller, root)?;
        let (start, kind) = match unit {
            Some(unit) => (unit, Some(FileKind::Directory)),
            None => (root, kind),
        };
        let found = path_and_form(&self.core.store, &self.core.names, caller.io, start)?;
        let (path, form) = found.filter(|(path, _)| path != b"/").unwrap_or((Vec::new(), Form::Plain));
        let rule_changes = self.core.policy.changes();
        let beginning = Beginning { inode: start, kind: kind.unwrap_or(FileKind::Symlink), path, form };
        let (shared, linked) = (SharedWishes::default(), FxHashMap::default());
        Ok(Some(Job {
            root,
            number,
            walk: beginning.walk(),
            beginning,
            file: None,
            twin: None,
            shared,
            waiting_bytes: 0,
            locked_bytes: 0,
            locked_names: 0,
            rule_changes,
            linked,
            deferred: self.core.reconcile.deferred.lock().contains(&root).then(quiescence::Found::default),
        }))
    }

    /// What belongs together goes down together: the unit to walk over in place of something below it, and with it all that is noted
    /// of the same unit.
    fn gather_unit(&self, state: &mut State, caller: &Caller<'_>, root: u64) -> Result<Option<u64>, Error> {
        if state.gathered.remove(&root) || is_planted(Bug::UnitGoesApart) {
            return Ok(None);
        }
        let Some(unit) = self.units.unit_of(caller.io, root)?.filter(|unit| *unit != root) else { return Ok(None) };
        for other in &state.pending {
            if self.units.unit_of(caller.io, *other)? == Some(unit) {
                state.gathered.insert(*other);
            }
        }
        Ok(Some(unit))
    }

    /// Takes the note away, unless it was made anew meanwhile.
    fn finish_job(&self, state: &mut State, caller: &Caller<'_>, job: &Job) -> Result<(), Error> {
        if job.deferred.is_none() {
            self.quiescence.wait_anew_below(caller.io, job.root)?;
        }
        if job.waiting_bytes > 0 {
            let why = format!(
                "{} bytes wait for devices or media that are away; attach them, then `stere reconcile resume`",
                job.waiting_bytes
            );
            state.block(job, why);
            return Ok(());
        }
        if job.locked_bytes > 0 || job.locked_names > 0 {
            let why = format!(
                "{} bytes and {} names wait for a key that is locked; unlock it with `stere key unlock`",
                job.locked_bytes, job.locked_names
            );
            state.block(job, why);
            return Ok(());
        }
        let key = Key::reconcile(job.root);
        if self.core.policy.changes() != job.rule_changes {
            // What was decided on the way may be by the old rules: once more.
            state.pending.push_back(job.root);
            return Ok(());
        }
        let is_done = self.core.store.update(caller.io, |transaction| {
            let number = transaction.get(&key)?.map(|bytes| number_of(&bytes));
            if number == Some(job.number) {
                transaction.delete(key);
            }
            Ok::<_, Error>(number.is_none_or(|number| number == job.number))
        })?;
        if is_done {
            self.core.reconcile.deferred.lock().remove(&job.root);
        } else {
            // Asked for again while it was done.
            self.core.reconcile.has_new_notes.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// True when the whole subtree was looked at.
    fn work(&self, caller: &Caller<'_>, job: &mut Job, progress: &mut Progress) -> Result<bool, Error> {
        let context = caller.context();
        for _ in 0..NAMES_PER_STEP {
            while let Some((inode, from)) = job.file {
                if progress.moved_bytes >= progress.budget_bytes {
                    return Ok(false);
                }
                let left = progress.budget_bytes - progress.moved_bytes;
                let done = self.core.files.converter.reconcile(&context, inode, from, left, &mut job.shared)?;
                progress.moved_bytes += done.moved_bytes;
                progress.damaged_blobs += u64::from(done.damaged_blobs);
                job.waiting_bytes += done.waiting_bytes;
                job.locked_bytes += done.locked_bytes;
                if done.moved_bytes > 0 {
                    self.encryption.note_stored_anew(inode);
                }
                assert!(done.next.is_none_or(|next| next >= from), "a file is gone through in order");
                job.file = done.next.map(|next| (inode, next));
                progress.files += u64::from(job.file.is_none());
                if job.file.is_none() {
                    job.twin = self.dedup_domain(caller, inode)?.map(|domain| (inode, 0, domain));
                }
            }
            while let Some((inode, from, domain)) = job.twin {
                if progress.moved_bytes >= progress.budget_bytes {
                    return Ok(false);
                }
                let left = progress.budget_bytes - progress.moved_bytes;
                let mut twins = self.twins.lock();
                let done = self.core.files.deduplicator.deduplicate(&context, inode, from, left, domain, &mut twins)?;
                progress.moved_bytes += done.compared_bytes;
                assert!(done.next.is_none_or(|next| next >= from), "a file is gone through in order");
                job.twin = done.next.map(|next| (inode, next, domain));
            }
            match job.walk.next(&self.core.store, &self.core.names, caller.io)? {
                None if job.shared.begin_separating() => job.walk = job.beginning.walk(),
                None => return Ok(true),
                Some(met) if met.kind == FileKind::File => {
                    let is_version = self.versions.review_version(caller, &met)?;
                    if !is_version {
                        self.review_met(caller, job, &met)?;
                        self.versions.pass_versions_on(caller, met.inode)?;
                    }
                    if !is_version && let Some(directory) = job.walk.directory(&met) {
                        self.retention.await_retention_of_met(caller, met.inode, directory)?;
                    }
                    let waits = match &mut job.deferred {
                        Some(found) => self.quiescence.waits_for_unit(caller, met.inode, found)?,
                        None => false,
                    };
                    job.file = (!waits).then_some((met.inode, 0));
                }
                Some(met) => {
                    self.versions.review_version(caller, &met)?;
                    job.locked_names += self.encryption.reencrypt_names(caller, &met)?;
                }
            }
        }
        Ok(false)
    }

    /// Among which files content of this one is to be found again, if it is to be at all: those below the same directory that says so.
    fn dedup_domain(&self, caller: &Caller<'_>, inode: u64) -> Result<Option<u64>, Error> {
        self.core.store.view(caller.io, |view| {
            let Some(value) = stere_file::inode_if_any(view, inode)? else { return Ok(None) };
            Ok::<_, Error>(dedup_domain(&self.core.files.policies.effective(view, inode, &value)?))
        })
    }

    /// Lets the rules decide anew for a file that the walk came to. Of a file with several names the stricter holds, so less is
    /// decided only when all its names were met.
    fn review_met(&self, caller: &Caller<'_>, job: &mut Job, met: &Met) -> Result<(), Error> {
        let value = self.core.store.view(caller.io, |view| stere_file::inode_if_any(view, met.inode))?;
        let Some(value) = value.filter(|value| value.nlink > 0) else { return Ok(()) };
        if job.walk.form() == Form::Opaque {
            // Rules ask for names, and nobody can read them now.
            return Ok(());
        }
        let directory = job.walk.directory(met).unwrap_or(value.parent);
        let before = stere_file::rule_decision(&value);
        let (mut decision, by) = self.rules.decide(caller, directory, job.walk.path(), met.inode)?;
        if value.nlink > 1 {
            let is_known = job.linked.contains_key(&met.inode) || job.linked.len() < LINKED_MAX;
            let (so_far, count) = job.linked.get(&met.inode).copied().unwrap_or_default();
            let classes = self.core.files.resolver().classes();
            decision = decision.or_more(&so_far, &classes);
            if is_known {
                job.linked.insert(met.inode, (decision, count + 1));
                assert!(job.linked.len() <= LINKED_MAX, "files that one walk remembers are bounded");
            }
            if !is_known || count + 1 < value.nlink {
                decision = decision.or_more(&before, &classes);
            }
        }
        if decision != before {
            // The log is not encrypted.
            let hidden = format!("inode {}", met.inode);
            let is_plain = job.walk.form() == Form::Plain;
            let path = if is_plain { job.walk.path() } else { hidden.as_bytes() };
            self.rules.put_decision(caller, path, met.inode, decision, &by)?;
        }
        Ok(())
    }
}

/// What one step did.
#[derive(Default)]
struct Progress {
    budget_bytes: u64,
    moved_bytes: u64,
    files: u64,
    damaged_blobs: u64,
}

impl Reconciler {
    /// As `reconcile`, by who looks for new files now and then: units that are being written are left for later.
    pub fn reconcile_new(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.reconcile_as(caller, inode, true)
    }
}
