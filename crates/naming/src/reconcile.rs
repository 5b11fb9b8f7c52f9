//! Making files be stored as their policy says, in the background: the work that a change of policy leaves behind.
//!
//! A change of policy notes its inode in the pool, in the same transaction, so the work survives a crash; the note goes when
//! everything below was looked at. The walk starts afresh after a mount: what is right already is passed quickly.
//! Each note has a number, so that a change made while its subtree is walked is not taken for done.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use parking_lot::Mutex;
use stere_file::SharedWishes;
use stere_format::{FileKind, Key, key};
use stere_store::{Store, Transaction, Wait};

use crate::error::Error;
use crate::walk::{Walk, path_of};
use crate::{Caller, FileSystem, ROOT};

/// Names looked at in one step at most.
const NAMES_PER_STEP: usize = 512;

/// A walk over what lies below one inode.
struct Job {
    root: u64,
    /// The note's number when the walk began.
    number: u64,
    walk: Walk,
    /// The file in hand, and where to go on in it.
    file: Option<(u64, u64)>,
    shared: SharedWishes,
    waiting_bytes: u64,
}

/// Work that is under way or left over.
#[derive(Default)]
struct State {
    is_loaded: bool,
    pending: VecDeque<u64>,
    job: Option<Job>,
    blocked: Vec<(u64, String)>,
    is_paused: bool,
    moved_bytes: u64,
    files: u64,
    damaged_blobs: u64,
}

/// The work of a file system.
#[derive(Default)]
pub(crate) struct Reconciler {
    state: Mutex<State>,
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

/// Notes that what lies below an inode is to be looked at.
pub(crate) fn note(transaction: &mut Transaction<'_>, inode: u64) -> Result<(), Error> {
    let key = Key::reconcile(inode);
    let number = transaction.get(&key)?.map_or(0, |bytes| number_of(&bytes));
    transaction.put(key, &(number + 1).to_le_bytes());
    Ok(())
}

fn number_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn load(store: &Store, wait: Wait) -> Result<VecDeque<u64>, Error> {
    store.view(wait, |view| {
        let mut inodes = VecDeque::new();
        let (from, to) = (Key::new(key::tree::SYSTEM, 0, 0, 0), Key::new(key::tree::SYSTEM + 1, 0, 0, 0));
        view.scan(from, to, |key, _| {
            if key.kind == key::kind::RECONCILE {
                inodes.push_back(key.object);
            }
            ControlFlow::Continue(())
        })?;
        Ok::<_, Error>(inodes)
    })
}

impl State {
    fn ensure_loaded(&mut self, store: &Store, wait: Wait) -> Result<(), Error> {
        if !self.is_loaded {
            for inode in load(store, wait)? {
                self.push(inode);
            }
            self.is_loaded = true;
        }
        Ok(())
    }

    fn push(&mut self, inode: u64) {
        self.blocked.retain(|(root, _)| *root != inode);
        if !self.pending.contains(&inode) {
            self.pending.push_back(inode);
        }
    }
}

impl FileSystem {
    /// A change of policy was entered together with its note: the work may begin.
    pub(crate) fn reconcile_noted(&self, inode: u64) {
        self.reconciler.state.lock().push(inode);
    }

    /// Looks at everything below an inode, and moves what does not lie as its policy says. Goes on in `reconcile_step`.
    pub fn reconcile(&self, caller: &Caller<'_>, inode: u64) -> Result<(), Error> {
        self.store.update(caller.wait, |transaction| {
            let value = stere_file::inode_if_any(transaction, inode)?.ok_or(Error::Stale)?;
            match value.kind() {
                Some(FileKind::File | FileKind::Directory) => note(transaction, inode),
                _ => Err(Error::NotPermitted("only files and directories are stored by policy")),
            }
        })?;
        self.reconcile_noted(inode);
        Ok(())
    }

    /// Stops the work for now, or lets it go on; what was blocked is then tried again.
    pub fn pause_reconcile(&self, is_paused: bool) {
        let mut state = self.reconciler.state.lock();
        state.is_paused = is_paused;
        if !is_paused {
            for (root, _) in std::mem::take(&mut state.blocked) {
                state.push(root);
            }
        }
    }

    /// How far the work is.
    pub fn reconcile_status(&self, wait: Wait) -> Result<ReconcileStatus, Error> {
        let mut state = self.reconciler.state.lock();
        state.ensure_loaded(&self.store, wait)?;
        let path = |inode| Ok::<_, Error>(path_of(&self.store, wait, inode)?.unwrap_or_else(|| b"?".to_vec()));
        let current = state.job.as_ref().map(|job| job.root);
        let others = state.pending.iter().copied().filter(|root| Some(*root) != current);
        let pending = current.into_iter().chain(others).map(path).collect::<Result<Vec<_>, Error>>()?;
        let blocked = state.blocked.iter().map(|(root, why)| Ok(Blocked { path: path(*root)?, why: why.clone() }));
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
        let mut state = self.reconciler.state.lock();
        state.ensure_loaded(&self.store, caller.wait)?;
        if state.is_paused {
            return Ok(false);
        }
        let mut job = match state.job.take() {
            Some(job) => job,
            None => match self.begin(&mut state, caller)? {
                Some(job) => job,
                None => return Ok(!state.pending.is_empty()),
            },
        };
        // Status and new work must not wait for the moving.
        drop(state);
        let mut progress = Progress { budget_bytes, ..Progress::default() };
        let outcome = self.work(caller, &mut job, &mut progress);
        let mut state = self.reconciler.state.lock();
        state.moved_bytes += progress.moved_bytes;
        state.files += progress.files;
        state.damaged_blobs += progress.damaged_blobs;
        match outcome {
            Ok(false) => state.job = Some(job),
            Ok(true) => self.finish(&mut state, caller, &job)?,
            Err(error) => {
                let root = job.root;
                state.blocked.push((root, error.to_string()));
                return if matches!(error, Error::NoSpace) { Ok(!state.pending.is_empty()) } else { Err(error) };
            }
        }
        Ok(state.job.is_some() || !state.pending.is_empty())
    }

    fn begin(&self, state: &mut State, caller: &Caller<'_>) -> Result<Option<Job>, Error> {
        let Some(root) = state.pending.pop_front() else { return Ok(None) };
        let begun = self.store.view(caller.wait, |view| {
            let Some(note) = view.get(&Key::reconcile(root))? else { return Ok(None) };
            let kind = stere_file::inode_if_any(view, root)?.and_then(|value| value.kind());
            Ok::<_, Error>(Some((number_of(&note), kind)))
        })?;
        let Some((number, kind)) = begun else { return Ok(None) };
        let walk = Walk::new(root, kind.unwrap_or(FileKind::Symlink), Vec::new());
        Ok(Some(Job { root, number, walk, file: None, shared: SharedWishes::default(), waiting_bytes: 0 }))
    }

    /// Takes the note away, unless it was made anew meanwhile.
    fn finish(&self, state: &mut State, caller: &Caller<'_>, job: &Job) -> Result<(), Error> {
        if job.waiting_bytes > 0 {
            let why = format!(
                "{} bytes wait for devices that are away; attach them, then `stere reconcile resume`",
                job.waiting_bytes
            );
            state.blocked.push((job.root, why));
            return Ok(());
        }
        let key = Key::reconcile(job.root);
        let is_done = self.store.update(caller.wait, |transaction| {
            let number = transaction.get(&key)?.map(|bytes| number_of(&bytes));
            if number == Some(job.number) {
                transaction.delete(key);
            }
            Ok::<_, Error>(number.is_none_or(|number| number == job.number))
        })?;
        if !is_done {
            state.push(job.root);
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
                let done = self.files.reconcile(&context, inode, from, left, &mut job.shared)?;
                progress.moved_bytes += done.moved_bytes;
                progress.damaged_blobs += u64::from(done.damaged_blobs);
                job.waiting_bytes += done.waiting_bytes;
                job.file = done.next.map(|next| (inode, next));
                progress.files += u64::from(job.file.is_none());
            }
            match job.walk.next(&self.store, caller.wait)? {
                None => return Ok(true),
                Some(met) if met.kind == FileKind::File => job.file = Some((met.inode, 0)),
                Some(_) => {}
            }
        }
        Ok(false)
    }

    /// The path of an inode from the root of the pool; the root where it has no name.
    pub fn path_of(&self, wait: Wait, inode: u64) -> Result<Vec<u8>, Error> {
        assert!(inode >= ROOT, "inodes are numbered from the root");
        Ok(path_of(&self.store, wait, inode)?.unwrap_or_else(|| b"(without a name)".to_vec()))
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
